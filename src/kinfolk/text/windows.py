"""Where special tokens stand, and how a long text is cut into windows that each carry them.

A tokenizer.json says in its post-processor what surrounds a text or a pair ([CLS] a [SEP] b [SEP]). `Layout` reads that
once; then windows and cuts are slices of the tokens between the specials. Nothing is lost: windows overlap by `stride`
tokens and the last one ends with the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kinfolk.errors import InputError
from kinfolk.text.encoding import Content, Offset


@dataclass(frozen=True, slots=True)
class Slot:
    """One place of a layout: a special token (with an id), or a whole text (sequence 0 or 1)."""

    segment: int
    sequence: int | None = None
    id: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands around one text (`single`) and around two (`pair`)."""

    single: tuple[Slot, ...]
    pair: tuple[Slot, ...]

    def slots(self, pair: bool, specials: bool = True) -> tuple[Slot, ...]:
        """The places for one text or for two."""
        slots = self.pair if pair else self.single
        return slots if specials else tuple(slot for slot in slots if slot.sequence is not None)

    def specials(self, pair: bool) -> int:
        """How many special tokens are added."""
        return sum(slot.sequence is None for slot in self.slots(pair))


class Placed:
    """Tokens start..end of each text in their places; looks like the library's encoding, lists made when asked for."""

    __slots__ = ("contents", "ranges", "slots")

    def __init__(self, slots: tuple[Slot, ...], contents: list[Content], ranges: list[tuple[int, int]]):
        self.slots = slots
        self.contents = contents
        self.ranges = ranges

    def __len__(self) -> int:
        specials = sum(slot.sequence is None for slot in self.slots)
        return specials + sum(end - start for start, end in self.ranges)

    def _collect(self, field: str, special: Callable[[Slot], Any]) -> list[Any]:
        collected: list[Any] = []
        for slot in self.slots:
            if slot.sequence is None:
                collected.append(special(slot))
            else:
                start, end = self.ranges[slot.sequence]
                collected += getattr(self.contents[slot.sequence], field)[start:end]
        return collected

    def _repeat(self, value: Callable[[Slot], Any]) -> list[Any]:
        repeated: list[Any] = []
        for slot in self.slots:
            start, end = (0, 1) if slot.sequence is None else self.ranges[slot.sequence]
            repeated += [value(slot)] * (end - start)
        return repeated

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


PLAIN = Layout((Slot(0, 0),), (Slot(0, 0), Slot(1, 1)))


def read_layout(processor: dict[str, Any] | None) -> Layout:
    """The layout that a (checked) post-processor of tokenizer.json describes."""
    if processor is None or processor["type"] == "ByteLevel":
        return PLAIN
    if processor["type"] == "Sequence":
        layouts = [read_layout(inner) for inner in processor["processors"]]
        return next((layout for layout in layouts if layout is not PLAIN), PLAIN)
    if processor["type"] == "TemplateProcessing":
        return Layout(*(_template(processor[kind], processor["special_tokens"]) for kind in ("single", "pair")))
    first, last = (Slot(0, None, processor[role][1], processor[role][0]) for role in ("cls", "sep"))
    single = (first, Slot(0, 0), last)
    if processor["type"] == "RobertaProcessing":
        return Layout(single, (*single, last, Slot(0, 1), last))
    return Layout(single, (*single, Slot(1, 1), Slot(1, None, last.id, last.token)))


def _template(steps: list[dict[str, Any]], specials: dict[str, Any]) -> tuple[Slot, ...]:
    slots: list[Slot] = []
    for step in steps:
        if "Sequence" in step:
            slots.append(Slot(step["Sequence"]["type_id"], "AB".index(step["Sequence"]["id"])))
        else:
            special, segment = specials[step["SpecialToken"]["id"]], step["SpecialToken"]["type_id"]
            pairs = zip(special["ids"], special["tokens"], strict=True)
            slots += [Slot(segment, None, number, token) for number, token in pairs]
    return tuple(slots)


def window_ranges(lengths: list[int], size: int, stride: int, specials: int) -> list[list[tuple[int, int]]]:
    """For each window, which tokens of each text it holds. Of a pair the longer text is windowed, the other repeated.

    The longer one is the text with more tokens, the second when they are equal.
    """
    whole = [(0, length) for length in lengths]
    if sum(lengths) + specials <= size:
        return [whole]
    cut = len(lengths) - 1 if lengths[-1] >= lengths[0] else 0
    room = size - specials - (sum(lengths) - lengths[cut])
    if room < 1:
        shorter = f" and {sum(lengths) - lengths[cut]} tokens of the shorter text" if len(lengths) > 1 else ""
        raise InputError(f"size={size} leaves no room beside {specials} special tokens{shorter}; use a larger size")
    if not 0 <= stride < room:
        raise InputError(f"stride={stride} must be from 0 to {room - 1}: {room} tokens of text fit in a window")
    windows = []
    for start in range(0, lengths[cut] - stride, room - stride):
        ranges = list(whole)
        ranges[cut] = (start, min(start + room, lengths[cut]))
        windows.append(ranges)
    return windows


def kept_lengths(lengths: list[int], room: int) -> list[int]:
    """How many tokens of each text stay when `room` are left: the longer text gives way first, then both share."""
    if room < 0:
        raise InputError(f"size is {-room} less than the number of special tokens; use a larger size")
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    shorter = min(lengths)
    kept = (shorter, room - shorter) if 2 * shorter <= room else (room // 2, room - room // 2)
    return list(kept) if lengths[0] <= lengths[1] else [kept[1], kept[0]]
