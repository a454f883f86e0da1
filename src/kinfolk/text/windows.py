"""Where special tokens are placed, and how a long text is split into windows that each carry them.

A tokenizer.json says in its post-processor what surrounds a text or a pair ([CLS] a [SEP] b [SEP]). `Template` reads
that once; then windows and truncated texts are slices of the tokens between the special ones. Nothing is lost: windows
overlap by `stride` tokens and the last one ends with the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kinfolk.errors import InputError
from kinfolk.text.encoding import Content, Offset

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a template: a special token (with an id), or a whole text (sequence 0 or 1)."""

    segment: int
    sequence: int | None = None
    id: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Template:
    """What surrounds one text (`single`) and two (`pair`)."""

    single: tuple[Slot, ...]
    pair: tuple[Slot, ...]

    def slots(self, pair: bool, special: bool = True) -> tuple[Slot, ...]:
        """The slots for one text or for two, with those of special tokens or without."""
        slots = self.pair if pair else self.single
        return slots if special else tuple(slot for slot in slots if slot.sequence is not None)

    def count(self, pair: bool) -> int:
        """The number of special tokens that are added."""
        return sum(slot.sequence is None for slot in self.slots(pair))


class TemplateEncoding:
    """Tokens start..end of each text in a template; has the fields of the library's encoding, made when asked for."""

    __slots__ = ("contents", "ranges", "slots")

    def __init__(self, slots: tuple[Slot, ...], contents: list[Content], ranges: list[Range]):
        self.slots, self.contents, self.ranges = slots, contents, ranges

    def __len__(self) -> int:
        return sum(slot.sequence is None for slot in self.slots) + sum(end - start for start, end in self.ranges)

    def _collect(self, field: str, special: Callable[[Slot], Any]) -> list[Any]:
        """A field of the texts' tokens, with `special` of a slot for its special token."""
        values: list[Any] = []
        for slot in self.slots:
            if slot.sequence is None:
                values.append(special(slot))
            else:
                start, end = self.ranges[slot.sequence]
                values += getattr(self.contents[slot.sequence], field)[start:end]
        return values

    def _repeat(self, value: Callable[[Slot], Any]) -> list[Any]:
        """A value of a slot for each of its tokens."""
        values: list[Any] = []
        for slot in self.slots:
            start, end = (0, 1) if slot.sequence is None else self.ranges[slot.sequence]
            values += [value(slot)] * (end - start)
        return values

    @property
    def ids(self) -> list[int]:
        return self._collect("ids", lambda slot: slot.id)

    @property
    def tokens(self) -> list[str]:
        return self._collect("tokens", lambda slot: slot.token)

    @property
    def offsets(self) -> list[Offset]:
        return self._collect("offsets", lambda slot: (0, 0))

    @property
    def word_ids(self) -> list[int | None]:
        return self._collect("word_ids", lambda slot: None)

    @property
    def type_ids(self) -> list[int]:
        return self._repeat(lambda slot: slot.segment)

    @property
    def sequence_ids(self) -> list[int | None]:
        return self._repeat(lambda slot: slot.sequence)


PLAIN = Template((Slot(0, 0),), (Slot(0, 0), Slot(1, 1)))


def read_template(processor: dict[str, Any] | None) -> Template:
    """The template that a (validated) post-processor of tokenizer.json describes."""
    if processor is None or processor["type"] == "ByteLevel":
        return PLAIN
    if processor["type"] == "Sequence":
        templates = [read_template(inner) for inner in processor["processors"]]
        return next((template for template in templates if template is not PLAIN), PLAIN)
    if processor["type"] == "TemplateProcessing":
        return Template(*(_slots(processor[kind], processor["special_tokens"]) for kind in ("single", "pair")))
    first, last = (Slot(0, None, processor[role][1], processor[role][0]) for role in ("cls", "sep"))
    single = (first, Slot(0, 0), last)
    if processor["type"] == "RobertaProcessing":
        return Template(single, (*single, last, Slot(0, 1), last))
    return Template(single, (*single, Slot(1, 1), Slot(1, None, last.id, last.token)))


def _slots(steps: list[dict[str, Any]], special_tokens: dict[str, Any]) -> tuple[Slot, ...]:
    slots: list[Slot] = []
    for step in steps:
        if "Sequence" in step:
            slots.append(Slot(step["Sequence"]["type_id"], "AB".index(step["Sequence"]["id"])))
        else:
            special, segment = special_tokens[step["SpecialToken"]["id"]], step["SpecialToken"]["type_id"]
            pairs = zip(special["ids"], special["tokens"], strict=True)
            slots += [Slot(segment, None, id, token) for id, token in pairs]
    return tuple(slots)


def window_ranges(lengths: list[int], size: int, stride: int, special: int) -> list[list[Range]]:
    """For each window, which tokens of each text it holds. Of a pair the longer text is windowed, the other repeated.

    The longer one is the text with more tokens, the second when they are equal.
    """
    whole = [(0, length) for length in lengths]
    if sum(lengths) + special <= size:
        return [whole]
    cut = len(lengths) - 1 if lengths[-1] >= lengths[0] else 0
    room = size - special - (sum(lengths) - lengths[cut])
    if room < 1:
        shorter = f" and {sum(lengths) - lengths[cut]} tokens of the shorter text" if len(lengths) > 1 else ""
        raise InputError(f"size={size} leaves no room beside {special} special tokens{shorter}; use a larger size")
    if not 0 <= stride < room:
        raise InputError(f"stride={stride} must be from 0 to {room - 1}: {room} tokens of text fit in a window")
    windows = []
    for start in range(0, lengths[cut] - stride, room - stride):
        ranges = list(whole)
        ranges[cut] = (start, min(start + room, lengths[cut]))
        windows.append(ranges)
    return windows


def truncated_lengths(lengths: list[int], room: int) -> list[int]:
    """How many tokens of each text are kept when `room` fit: the longer text is cut first, then both share."""
    if room < 0:
        raise InputError(f"size is {-room} less than the number of special tokens; use a larger size")
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    shorter = min(lengths)
    kept = (shorter, room - shorter) if 2 * shorter <= room else (room // 2, room - room // 2)
    return list(kept) if lengths[0] <= lengths[1] else [kept[1], kept[0]]
