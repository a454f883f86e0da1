"""What a text becomes: ids with their segments, and for each token its characters in the user's own string.

An `Encoding` wraps either the tokenizers library's object (the fast way) or one that was cut or joined here (windows,
long words): the tokens of each text, or a slice of them, between the special tokens of a template.

Offsets are cleaned when asked for: tokenizers disagree on whether a token owns the space before it, and normalizers
lose sight of accents. Here a slice of the user's string never starts or ends with a space, starts never go back, and
the tokens of a word tile it.

A run of more than `LONGEST_RUN` characters without a space is no word. It is cut into runs of that length, each encoded
by itself, so that time and memory stay linear: up to a few tokens at every cut differ from what the library would give,
and the cut parts count as words of their own. No character is lost and offsets are those of the uncut text.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

Text = str | tuple[str, str]  # one text, or a pair
Offset = tuple[int, int]
Range = tuple[int, int]

LONGEST_RUN = 100_000
RUN = re.compile(r"\S+")
UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Thai, Lao, kana, Chinese characters
LAST_MARK = 0x1FFFF  # no script has combining marks above it


def split_long_words(text: str, longest: int = LONGEST_RUN) -> list[tuple[int, str]]:
    """(start, characters) of the parts of a text; a natural one is a single part."""
    if len(text) <= longest:
        return [(0, text)]
    cuts = (cut for run in RUN.finditer(text) for cut in range(run.start() + longest, run.end(), longest))
    return [(start, text[start:end]) for start, end in itertools.pairwise([0, *cuts, len(text)])]


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


class Slot(NamedTuple):
    """One slot of a template: a special token, or a whole text (0 or 1); named as the library does."""

    type_ids: int
    sequence_ids: int | None = None
    ids: int = 0
    tokens: str = ""
    offsets: Offset = (0, 0)
    word_ids: int | None = None


Template = tuple[tuple[Slot, ...], tuple[Slot, ...]]  # what surrounds one text, and two


class TemplateEncoding:
    """Tokens start..end of each text in a template; has the fields of the library's encoding, made when asked for."""

    def __init__(self, slots: Sequence[Slot], contents: list[Content], ranges: list[Range]):
        self.slots, self.contents, self.ranges = slots, contents, ranges

    def __len__(self) -> int:
        return len(self.slots) - len(self.ranges) + sum(end - start for start, end in self.ranges)

    def __getattr__(self, field: str) -> list[Any]:
        if field not in Slot._fields:
            raise AttributeError(field)
        values: list[Any] = []
        for slot in self.slots:
            start, end = (0, 1) if slot.sequence_ids is None else self.ranges[slot.sequence_ids]
            if slot.sequence_ids is None or not hasattr(Content, field):  # the same for all tokens of the slot
                values += [getattr(slot, field)] * (end - start)
            else:
                values += getattr(self.contents[slot.sequence_ids], field)[start:end]
        return values


class Encoding:
    """The tokens of a text or pair. Lists are made when asked for: ids and segments are cheap, offsets cost a pass."""

    def __init__(self, source: Any, raw_texts: tuple[str, ...] = ()):
        """`raw_texts` are the texts of an encoding that comes straight from the library."""
        self._source, self._raw_texts = source, raw_texts

    def __len__(self) -> int:
        return len(self._source)

    @property
    def ids(self) -> list[int]:
        """Rows of the embedding table."""
        return self._source.ids  # type: ignore[no-any-return]

    @property
    def segments(self) -> list[int]:
        """Which segment each token belongs to (the second text of a pair is usually 1)."""
        return self._source.type_ids  # type: ignore[no-any-return]

    @property
    def tokens(self) -> list[str]:
        """The tokens as strings; an unknown one may show its own characters."""
        return self._source.tokens  # type: ignore[no-any-return]

    @property
    def word_ids(self) -> list[int | None]:
        """Index of the word within its text that each token is part of; None for added special tokens."""
        return self._source.word_ids  # type: ignore[no-any-return]

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 for tokens of the first text, 1 for the second, None for added special tokens."""
        return self._source.sequence_ids  # type: ignore[no-any-return]

    @cached_property
    def offsets(self) -> list[Offset]:
        """Characters (start, end) of each token in its own text; (0, 0) for added special tokens.

        A token that is only spaces has an empty range. Two tokens may share a character when the vocabulary splits
        its bytes or its decomposition.
        """
        offsets: list[Offset] = self._source.offsets
        return clean_offsets(offsets, self.sequence_ids, self._raw_texts) if self._raw_texts else offsets

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
        if start < end:
            while end < limit and not text[end].isspace():
                end += 1
            cleaned[index] = (start, end)
    return cleaned


PLAIN: Template = (Slot(0, 0),), (Slot(0, 0), Slot(1, 1))


def read_template(processor: dict[str, Any] | None) -> Template:
    """The template that a (validated) post-processor of tokenizer.json describes."""
    if processor is None or processor["type"] == "ByteLevel":
        return PLAIN
    if processor["type"] == "Sequence":
        templates = [read_template(inner) for inner in processor["processors"]]
        return next((template for template in templates if template is not PLAIN), PLAIN)
    if processor["type"] == "TemplateProcessing":
        single, pair = (tuple(_slots(processor[kind], processor["special_tokens"])) for kind in ("single", "pair"))
        return single, pair
    first, last = (Slot(0, None, processor[role][1], processor[role][0]) for role in ("cls", "sep"))
    single = (first, Slot(0, 0), last)
    if processor["type"] == "RobertaProcessing":
        return single, (*single, last, Slot(0, 1), last)
    return single, (*single, Slot(1, 1), last._replace(type_ids=1))


def _slots(steps: list[dict[str, Any]], special_tokens: dict[str, Any]) -> Iterator[Slot]:
    for step in steps:
        ((kind, value),) = step.items()
        if kind == "Sequence":
            yield Slot(value["type_id"], "AB".index(value["id"]))
        else:
            special = special_tokens[value["id"]]
            pairs = zip(special["ids"], special["tokens"], strict=True)
            yield from (Slot(value["type_id"], None, id, token) for id, token in pairs)


def word_offsets(text: str) -> list[Offset]:
    """Where the words of a text are, by one rule that needs no language.

    A run of letters, digits and their accents is a word, apostrophes and hyphens inside it included, and points and
    commas between digits too; any other mark is a word of its own, and so is each character of a script that writes no
    blanks.

    >>> text = "Zoë didn't pay 1,000.5 kr."
    >>> [text[start:end] for start, end in word_offsets(text)]
    ['Zoë', "didn't", 'pay', '1,000.5', 'kr', '.']
    """
    return [match.span() for match in _word_pattern().finditer(text)]


def word_starts(words: Sequence[str]) -> list[int]:
    """Where each word begins in the words joined by single blanks."""
    return list(itertools.accumulate((len(word) + 1 for word in words), initial=0))[: len(words)]


@cache  # made when first asked for: looking through the characters takes as long as a thousand texts
def _word_pattern() -> re.Pattern[str]:
    """`\\w` knows no combining marks, so they are listed, with the two joiners that stand inside words."""
    known = [chr(code) for code in range(LAST_MARK + 1) if unicodedata.category(chr(code)).startswith("M")]
    marks, letter = f"[{''.join(known)}\u200c\u200d]", rf"[^\W{UNSPACED}]"
    letters = rf"{letter}+(?:{marks}+{letter}*)*"
    inside = r"(?:['’\-\u2010\u2011]|(?<=\d)[.,](?=\d))"
    other = rf"[^\w\s]{marks}*(?:(?<=\u200d)[^\w\s]{marks}*)*"  # a joiner ties pictures together
    return re.compile(rf"[{UNSPACED}]{marks}*|{letters}(?:{inside}{letters})*|{other}")
