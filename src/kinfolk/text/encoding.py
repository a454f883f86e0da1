"""What a text becomes: ids with their segments, and for each token its characters in the user's own string.

An `Encoding` wraps either the tokenizers library's object (the fast way) or one that was cut or joined here (windows,
long words). Offsets are cleaned when asked for: tokenizers disagree on whether a token owns the space before it, and
normalizers lose sight of accents. Here a slice of the user's string never starts or ends with a space, starts never go
back, and the tokens of a word tile it.

A tokenizer.json says in its post-processor what surrounds a text or a pair ([CLS] a [SEP] b [SEP]). `Template` reads
that once; then windows and truncated texts are slices of the tokens between the special ones. Nothing is lost: windows
overlap by `stride` tokens and the last one ends with the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kinfolk.errors import InputError

Text = str | tuple[str, str]  # one text, or a pair
Offset = tuple[int, int]
Range = tuple[int, int]


class Content:
    """The tokens of one text without special tokens, from one or more parts that the library encoded separately.

    Lists are made once, when first asked for: of a text of ten million tokens often only the ids are wanted.
    """

    def __init__(self, parts: list[tuple[int, str, Any]]):
        self.parts = parts  # (start in the text, its characters, the library's encoding of it)

    def __len__(self) -> int:
        return sum(len(encoding) for _, _, encoding in self.parts)

    @cached_property
    def ids(self) -> list[int]:
        return [id for _, _, encoding in self.parts for id in encoding.ids]

    @cached_property
    def tokens(self) -> list[str]:
        return [token for _, _, encoding in self.parts for token in encoding.tokens]

    @cached_property
    def offsets(self) -> list[Offset]:
        offsets: list[Offset] = []
        for shift, text, encoding in self.parts:
            cleaned = clean_offsets(encoding.offsets, encoding.sequence_ids, (text,))
            offsets += [(start + shift, end + shift) for start, end in cleaned] if shift else cleaned
        return offsets

    @cached_property
    def word_ids(self) -> list[int | None]:
        words: list[int | None] = []
        count = 0
        for _, _, encoding in self.parts:
            part_words = encoding.word_ids
            words += [word if word is None else word + count for word in part_words] if count else part_words
            count += 1 + max((word for word in part_words if word is not None), default=-1)
        return words


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


class Encoding:
    """The tokens of a text or pair. Lists are made when asked for: ids and segments are cheap, offsets cost a pass."""

    __slots__ = ("_offsets", "_source", "_texts")

    def __init__(self, source: Any, raw_texts: tuple[str, ...] = ()):
        """`raw_texts` are the texts of an encoding that comes straight from the library."""
        self._source: TemplateEncoding = source  # the library's has the same fields
        self._texts = raw_texts
        self._offsets: list[Offset] | None = None

    def __len__(self) -> int:
        return len(self._source)

    @property
    def ids(self) -> list[int]:
        """Rows of the embedding table."""
        return self._source.ids

    @property
    def segments(self) -> list[int]:
        """Which segment each token belongs to (the second text of a pair is usually 1)."""
        return self._source.type_ids

    @property
    def tokens(self) -> list[str]:
        """The tokens as strings; an unknown one may show its own characters."""
        return self._source.tokens

    @property
    def word_ids(self) -> list[int | None]:
        """Index of the word within its text that each token is part of; None for added special tokens."""
        return self._source.word_ids

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 for tokens of the first text, 1 for the second, None for added special tokens."""
        return self._source.sequence_ids

    @property
    def offsets(self) -> list[Offset]:
        """Characters (start, end) of each token in its own text; (0, 0) for added special tokens.

        A token that is only spaces has an empty range. Two tokens may share a character when the vocabulary splits
        its bytes or its decomposition.
        """
        if self._offsets is None:
            offsets = self._source.offsets
            self._offsets = clean_offsets(offsets, self.sequence_ids, self._texts) if self._texts else offsets
        return self._offsets

    def __repr__(self) -> str:
        return f"Encoding({len(self)} tokens: {' '.join(self.tokens[:8])}{' …' if len(self) > 8 else ''})"


def clean_offsets(offsets: list[Offset], sequences: list[int | None], texts: tuple[str, ...]) -> list[Offset]:
    """Offsets without spaces at their ends that never go back, and that tile each word.

    Characters that the normaliser dropped or melted into their neighbour (accents, joiners, control characters) belong
    to the token before them in the same word.
    """
    cleaned: list[Offset] = []
    reached = [0] * len(texts)
    for (start, end), sequence in zip(offsets, sequences, strict=True):
        if sequence is None:
            cleaned.append((0, 0))
            continue
        text = texts[sequence]
        start, end = min(max(start, reached[sequence]), len(text)), min(end, len(text))
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        reached[sequence] = start
        cleaned.append((start, max(start, end)))
    following = [len(text) for text in texts]
    for index in range(len(cleaned) - 1, -1, -1):
        (start, end), sequence = cleaned[index], sequences[index]
        if sequence is None:
            continue
        text, limit = texts[sequence], following[sequence]
        following[sequence] = start
        if start < end < limit and not text[end].isspace():
            while end < limit and not text[end].isspace():
                end += 1
            cleaned[index] = (start, end)
    return cleaned


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
