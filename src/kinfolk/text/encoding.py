"""What a text becomes: ids with their segments, and for each token its place in the user's own string.

An `Encoding` wraps either the tokenizers library's object (the fast way) or `Parts`, plain lists that were cut or
joined here (windows, over-long words). Offsets are tidied when asked for: kinds of tokenizers disagree on whether a
token owns the blank before it, and normalisers lose sight of accents. Here a slice of the user's string never starts
or ends with a blank, starts never go back, and the tokens of a word tile it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Text = str | tuple[str, str]  # one text, or a pair
Offset = tuple[int, int]


@dataclass(slots=True)
class Parts:
    """A run of tokens as plain lists; attribute names are those of the library's encoding, so either can be wrapped."""

    ids: list[int] = field(default_factory=list)
    type_ids: list[int] = field(default_factory=list)
    offsets: list[Offset] = field(default_factory=list)
    word_ids: list[int | None] = field(default_factory=list)
    sequence_ids: list[int | None] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, source: Any, text: str) -> Parts:
        """The lists of a library encoding of one text, offsets tidied."""
        sequences = source.sequence_ids
        offsets = tidy(source.offsets, sequences, (text,))
        return cls(source.ids, source.type_ids, offsets, source.word_ids, sequences, source.tokens)

    def part(self, start: int, end: int, segment: int, sequence: int) -> Parts:
        """Tokens start..end, as text number `sequence` of a pair, in the given segment."""
        ids = self.ids[start:end]
        words, offsets, tokens = self.word_ids[start:end], self.offsets[start:end], self.tokens[start:end]
        return Parts(ids, [segment] * len(ids), offsets, words, [sequence] * len(ids), tokens)

    def extend(self, other: Parts, shift: int = 0) -> None:
        """Append tokens; `shift` characters precede the text they came from, and their words count on from ours."""
        words = 1 + max((word for word in self.word_ids if word is not None), default=-1) if shift else 0
        self.ids += other.ids
        self.type_ids += other.type_ids
        self.offsets += [(start + shift, end + shift) for start, end in other.offsets] if shift else other.offsets
        self.word_ids += [word if word is None else word + words for word in other.word_ids]
        self.sequence_ids += other.sequence_ids
        self.tokens += other.tokens


class Encoding:
    """The tokens of a text or pair. Lists are made when asked for: ids and segments are cheap, offsets cost a pass."""

    __slots__ = ("_offsets", "_source", "_texts")

    def __init__(self, source: Any, texts: tuple[str, ...]):
        self._source = source
        self._texts = texts
        self._offsets: list[Offset] | None = None

    def __len__(self) -> int:
        return len(self._source)

    @property
    def ids(self) -> list[int]:
        """Row numbers in the embedding table."""
        ids: list[int] = self._source.ids
        return ids

    @property
    def segments(self) -> list[int]:
        """Which segment each token belongs to (the second text of a pair is usually 1)."""
        segments: list[int] = self._source.type_ids
        return segments

    @property
    def tokens(self) -> list[str]:
        """The pieces as the vocabulary spells them."""
        tokens: list[str] = self._source.tokens
        return tokens

    @property
    def words(self) -> list[int | None]:
        """Number of the word within its own text that each token is part of; None for added special tokens."""
        words: list[int | None] = self._source.word_ids
        return words

    @property
    def sequences(self) -> list[int | None]:
        """0 for tokens of the first text, 1 for the second, None for added special tokens."""
        sequences: list[int | None] = self._source.sequence_ids
        return sequences

    @property
    def offsets(self) -> list[Offset]:
        """Characters (start, end) of each token in its own text; (0, 0) for added special tokens.

        A token that is only blanks has an empty range. Two tokens may share a character when the vocabulary splits
        its bytes or its decomposition.
        """
        if self._offsets is None:
            source = self._source
            ready = isinstance(source, Parts)
            self._offsets = source.offsets if ready else tidy(source.offsets, source.sequence_ids, self._texts)
        return self._offsets

    def __repr__(self) -> str:
        return f"Encoding({len(self)} tokens: {' '.join(self.tokens[:8])}{' …' if len(self) > 8 else ''})"


def tidy(offsets: list[Offset], sequences: list[int | None], texts: tuple[str, ...]) -> list[Offset]:
    """Offsets without blanks at their ends that never go back, and that tile each word.

    Characters that the normaliser dropped or melted into their neighbour (accents, joiners, control characters) belong
    to the token before them in the same word.
    """
    tidied: list[Offset] = []
    reached = [0] * len(texts)
    for (start, end), sequence in zip(offsets, sequences, strict=True):
        if sequence is None:
            tidied.append((0, 0))
            continue
        text = texts[sequence]
        start, end = min(max(start, reached[sequence]), len(text)), min(end, len(text))
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        reached[sequence] = start
        tidied.append((start, max(start, end)))
    following = [len(text) for text in texts]
    for place in range(len(tidied) - 1, -1, -1):
        (start, end), sequence = tidied[place], sequences[place]
        if sequence is None:
            continue
        text, limit = texts[sequence], following[sequence]
        following[sequence] = start
        if start < end < limit and not text[end].isspace():
            while end < limit and not text[end].isspace():
                end += 1
            tidied[place] = (start, end)
    return tidied
