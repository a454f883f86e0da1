"""Tags that mark spans: which scheme they follow, whether they keep its rules, and the entities they mean.

IOB2   B starts every span                                  B-PER I-PER O B-LOC
IOB1   B only where a span follows another of its type      I-PER I-PER O I-LOC
IOBES  E ends a span, S is one of a single word             B-PER E-PER O S-LOC
BILOU  the same with L and U                                B-PER L-PER O U-LOC
plain  tags that mark no spans, such as parts of speech

In each scheme a tag is right or wrong after the one before it, so a file is judged by its pairs of neighbours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from kinfolk.errors import InputError, check_choice

SCHEMES = ("IOB2", "IOB1", "IOBES", "BILOU")
PLAIN = "plain"
OUTSIDE = "O"
UNTYPED = "_"  # the type of a bare B or I
MARKED = re.compile(r"([BIESLU])-(.+)|([BI])")
SAME = {"L": "E", "U": "S"}  # BILOU's letters in IOBES
Entity = tuple[int, int, str]


@lru_cache(maxsize=4096)
def split_tag(tag: str) -> tuple[str, str]:
    """(letter, type) of a tag: ("B", "PER"); ("O", "") outside, ("", tag) for a tag that marks no span."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    found = MARKED.fullmatch(tag)
    if found is None:
        return "", tag
    return (found[1], found[2]) if found[1] else (found[3], UNTYPED)


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme whose rules the tags break least; `plain` when most tags mark no span."""
    pairs: Counter[tuple[str, str]] = Counter()
    for tags in sentences:
        pairs.update(pairwise([OUTSIDE, *tags, OUTSIDE]))
    unmarked = sum(times for (_, tag), times in pairs.items() if not split_tag(tag)[0])
    inside = sum(times for (_, tag), times in pairs.items() if tag != OUTSIDE)
    if unmarked > inside / 2:
        return PLAIN
    broken = {name: sum(times for pair, times in pairs.items() if not _legal(*pair, name)) for name in SCHEMES}
    return min(SCHEMES, key=broken.__getitem__)


def marks_spans(labels: Iterable[str]) -> bool:
    """Do a model's tags mean entities?"""
    return detect_scheme((label,) for label in labels) != PLAIN


def faults(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """(place, reason) of each tag that breaks the scheme; a span that is not ended is told at the last tag."""
    if check_choice("scheme", scheme, (*SCHEMES, PLAIN)) == PLAIN:
        return
    for place, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if not _legal(before, tag, scheme):
            after = f"after {before}" if place else "at the start"
            reason = f"{tag} {after}" if place < len(tags) else f"{before} at the end"
            yield min(place, len(tags) - 1), f"the tag {reason} breaks the scheme {scheme}"


def to_iob2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The same spans in IOB2; plain tags stay as they are."""
    for place, reason in faults(tags, scheme):
        raise InputError(f"word {place + 1}: {reason}")
    if scheme in (PLAIN, "IOB2"):
        return tuple(tags)
    begins = {"IOB1": "B", "IOBES": "BS", "BILOU": "BU"}[scheme]
    found: list[str] = []
    for before, tag in pairwise([OUTSIDE, *tags]):
        letter, kind = split_tag(tag)
        first = letter in begins or (scheme == "IOB1" and split_tag(before)[1] != kind)
        tail = tag[1:]  # "-PER", or nothing after a bare letter
        found.append(tag if letter == OUTSIDE else f"{'B' if first else 'I'}{tail}")
    return tuple(found)


def entities(tags: Sequence[str]) -> list[Entity]:
    """(first word, word after the last, type) of each span, read as seqeval and conlleval read any tags.

    Tags need not keep a scheme: an I after O, or after another type, starts a span. L and U are read as E and S.
    """
    found: list[Entity] = []
    start, kind, closed = -1, "", True
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, own = split_tag(tag)
        letter = SAME.get(letter, letter)
        if not closed and (letter not in ("I", "E") or own != kind):
            found.append((start, place, kind))
            closed = True
        if letter in ("B", "I", "E", "S") and closed:
            start, kind, closed = place, own, False
        if letter in ("E", "S") and not closed:
            found.append((start, place + 1, kind))
            closed = True
    return found


def repaired(tags: Sequence[str]) -> list[str]:
    """The same spans with a B wherever one begins, which a model of IOB2 may forget."""
    found: list[str] = []
    for before, tag in pairwise([OUTSIDE, *tags]):
        letter, kind = split_tag(tag)
        begins = letter == "I" and split_tag(before)[1] != kind
        found.append(f"B{tag[1:]}" if begins else tag)
    return found


@lru_cache(maxsize=65536)  # a file has few pairs of neighbours, and many words
def _legal(before: str, tag: str, scheme: str) -> bool:
    """May `tag` follow `before`?"""
    (last, last_kind), (letter, kind) = split_tag(before), split_tag(tag)
    same = last in ("B", "I") and last_kind == kind
    if scheme == "IOB2":
        return letter in (OUTSIDE, "B") or (letter == "I" and same)
    if scheme == "IOB1":
        return letter in (OUTSIDE, "I") or (letter == "B" and same)
    end, single = ("E", "S") if scheme == "IOBES" else ("L", "U")
    if last in ("B", "I"):
        return letter in ("I", end) and same
    return letter in (OUTSIDE, "B", single)
