"""What a text becomes: ids with their segments, and for each token its characters in the user's own string.

An `Encoding` wraps either the tokenizers library's object (the fast way) or one that was cut or joined here (windows,
long words). Offsets are cleaned when asked for: kinds of tokenizers disagree on whether a
token owns the space before it, and normalisers lose sight of accents. Here a slice of the user's string never starts
or ends with a space, starts never go back, and the tokens of a word tile it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

Text = str | tuple[str, str]  # one text, or a pair
Offset = tuple[int, int]


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


class Encoding:
    """The tokens of a text or pair. Lists are made when asked for: ids and segments are cheap, offsets cost a pass."""

    __slots__ = ("_offsets", "_source", "_texts")

    def __init__(self, source: Any, raw_texts: tuple[str, ...] = ()):
        """`raw_texts` are the texts of an encoding that comes straight from the library."""
        self._source = source
        self._texts = raw_texts
        self._offsets: list[Offset] | None = None

    def __len__(self) -> int:
        return len(self._source)

    @property
    def ids(self) -> list[int]:
        """Rows of the embedding table."""
        ids: list[int] = self._source.ids
        return ids

    @property
    def segments(self) -> list[int]:
        """Which segment each token belongs to (the second text of a pair is usually 1)."""
        segments: list[int] = self._source.type_ids
        return segments

    @property
    def tokens(self) -> list[str]:
        """The tokens as strings; an unknown one may show its own characters."""
        tokens: list[str] = self._source.tokens
        return tokens

    @property
    def word_ids(self) -> list[int | None]:
        """Index of the word within its text that each token is part of; None for added special tokens."""
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

        A token that is only spaces has an empty range. Two tokens may share a character when the vocabulary splits
        its bytes or its decomposition.
        """
        if self._offsets is None:
            source = self._source
            offsets: list[Offset] = source.offsets
            self._offsets = clean_offsets(offsets, source.sequence_ids, self._texts) if self._texts else offsets
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
