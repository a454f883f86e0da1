"""What a text becomes: ids with their segments, and for each token its place in the user's own string.

An `Encoding` wraps either the tokenizers library's object (the fast way) or one that was cut or joined here (windows,
over-long words). Offsets are tidied when asked for: kinds of tokenizers disagree on whether a
token owns the blank before it, and normalisers lose sight of accents. Here a slice of the user's string never starts
or ends with a blank, starts never go back, and the tokens of a word tile it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

Text = str | tuple[str, str]  # one text, or a pair
Offset = tuple[int, int]


class Content:
    """The tokens of one text without special tokens, from one or more pieces that the library encoded apart.

    Lists are made once, when first asked for: of a text of ten million tokens often only the ids are wanted.
    """

    def __init__(self, pieces: list[tuple[int, str, Any]]):
        self.pieces = pieces  # where it starts in the text, its characters, the library's encoding of it

    def __len__(self) -> int:
        return sum(len(found) for _, _, found in self.pieces)

    @cached_property
    def ids(self) -> list[int]:
        return [number for _, _, found in self.pieces for number in found.ids]

    @cached_property
    def tokens(self) -> list[str]:
        return [token for _, _, found in self.pieces for token in found.tokens]

    @cached_property
    def offsets(self) -> list[Offset]:
        offsets: list[Offset] = []
        for shift, text, found in self.pieces:
            tidied = tidy(found.offsets, found.sequence_ids, (text,))
            offsets += [(start + shift, end + shift) for start, end in tidied] if shift else tidied
        return offsets

    @cached_property
    def word_ids(self) -> list[int | None]:
        words: list[int | None] = []
        count = 0
        for _, _, found in self.pieces:
            own = found.word_ids
            words += [word if word is None else word + count for word in own] if count else own
            count += 1 + max((word for word in own if word is not None), default=-1)
        return words


class Encoding:
    """The tokens of a text or pair. Lists are made when asked for: ids and segments are cheap, offsets cost a pass."""

    __slots__ = ("_offsets", "_source", "_texts")

    def __init__(self, source: Any, untidy: tuple[str, ...] = ()):
        """`untidy` are the texts of an encoding that comes straight from the library."""
        self._source = source
        self._texts = untidy
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
        """The pieces for people to read; one that the vocabulary does not have may show its own letters."""
        tokens: list[str] = self._source.tokens
        return tokens

    @property
    def word_ids(self) -> list[int | None]:
        """Number of the word within its own text that each token is part of; None for added special tokens."""
        words: list[int | None] = self._source.word_ids
        return words

    @property
    def sequence_ids(self) -> list[int | None]:
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
            offsets: list[Offset] = source.offsets
            self._offsets = tidy(offsets, source.sequence_ids, self._texts) if self._texts else offsets
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
