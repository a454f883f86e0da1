"""Words of a text, their tags, and the entities that the tags mean.

A text is split into words by one rule: a run of letters, digits and their accents is a word, apostrophes and hyphens
inside it included (`didn't`, `well-known`), and points and commas between digits too (`1,000.5`); any other mark is a
word of its own, and so is each character of a script that writes no blanks.

Each word has one tag, and entities are runs of words: no word lies in two of them, or half in one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from kinfolk.data.summary import UNSPACED
from kinfolk.data.tagging import entities, repair_iob2
from kinfolk.errors import InputError
from kinfolk.text.encoding import Offset

LAST_MARK = 0x1FFFF  # no script has combining marks above it
Words = str | Sequence[str]  # a text, or words that the user split


@dataclass(frozen=True, slots=True)
class TaggedWord:
    """A word with its tag; `start` and `end` are its characters in the user's text (of given words: joined by blanks).

    The probability is the model's for this tag at this word; with a random field, over all paths.
    """

    text: str
    tag: str
    probability: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entity:
    """Words `first` up to, not including, `last`, and their characters; as probable as its least probable word."""

    type: str
    text: str
    start: int
    end: int
    probability: float
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Tagged:
    """A text's words, and the entities that their tags mean (none where tags mark no spans)."""

    words: tuple[TaggedWord, ...]
    entities: tuple[Entity, ...]

    @classmethod
    def of(cls, text: str, places: Sequence[Offset], tags: Sequence[str], probabilities: Sequence[float]) -> Tagged:
        """Tags for the words at these places of a text."""
        rows = zip(places, repair_iob2(tags), probabilities, strict=True)
        words = tuple(TaggedWord(text[start:end], tag, sure, start, end) for (start, end), tag, sure in rows)
        found = []
        for first, last, kind in entities(tags):
            start, end = places[first][0], places[last - 1][1]
            found.append(Entity(kind, text[start:end], start, end, min(probabilities[first:last]), first, last))
        return cls(words, tuple(found))


def places_of(given: Words, name: str = "text 0") -> tuple[str, list[Offset]]:
    """A text and the places of its words; given words are joined by single blanks. `name` is for a message."""
    if isinstance(given, str):
        return given, split_words(given)
    if not isinstance(given, list | tuple) or not all(isinstance(word, str) for word in given):
        kind = type(given).__name__
        raise InputError(f"{name} is neither a string nor a list of words, but a {kind}: {str(given)[:40]!r}")
    return " ".join(given), [(start, start + len(word)) for start, word in zip(word_starts(given), given, strict=True)]


def word_starts(words: Sequence[str]) -> list[int]:
    """Where each word begins in the words joined by single blanks.

    >>> word_starts(["to", "be", "or"])
    [0, 3, 6]
    """
    return list(accumulate((len(word) + 1 for word in words), initial=0))[: len(words)]


def split_words(text: str) -> list[Offset]:
    """Where the words of a text are, by the rule above.

    >>> text = "Zoë didn't pay 1,000.5 kr."
    >>> [text[start:end] for start, end in split_words(text)]
    ['Zoë', "didn't", 'pay', '1,000.5', 'kr', '.']
    """
    return [match.span() for match in _word_pattern().finditer(text)]


@cache  # made when first asked for: looking through the characters takes as long as a thousand texts
def _word_pattern() -> re.Pattern[str]:
    """The rule; `\\w` knows no combining marks, so they are listed, with the two joiners that stand inside words."""
    known = [chr(code) for code in range(LAST_MARK + 1) if unicodedata.category(chr(code)).startswith("M")]
    marks, letter = f"[{''.join(known)}\u200c\u200d]", rf"[^\W{UNSPACED}]"
    letters = rf"{letter}+(?:{marks}+{letter}*)*"
    inside = r"(?:['’\-\u2010\u2011]|(?<=\d)[.,](?=\d))"
    other = rf"[^\w\s]{marks}*(?:(?<=\u200d)[^\w\s]{marks}*)*"  # a joiner ties pictures together
    return re.compile(rf"[{UNSPACED}]{marks}*|{letters}(?:{inside}{letters})*|{other}")
