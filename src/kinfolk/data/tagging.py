"""Tagged sentences: CoNLL files (a word per line with its columns) and slot folders (seq.in, seq.out, label).

Span tags come out in IOB2 whatever scheme the file has (tags.py). A sentence with a fault is one bad row, named by the
line of the fault, and is left out whole: a sentence without one of its words would be another sentence.

Tags that mark spans: which scheme they follow, whether they keep its rules, and the entities they mean.

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
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from kinfolk.data.examples import ReadResult, Sentence, finished
from kinfolk.data.formats import is_utf8, raw_lines
from kinfolk.errors import DataError, InputError, RowErrors, check_choice

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


def has_spans(labels: Iterable[str]) -> bool:
    """Do a model's tags mean entities?"""
    return detect_scheme((label,) for label in labels) != PLAIN


def scheme_errors(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
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
    for place, reason in scheme_errors(tags, scheme):
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


def repair_iob2(tags: Sequence[str]) -> list[str]:
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


SLOT_FILE = "seq.in"
DOCUMENT = "-DOCSTART-"
BLANKS = re.compile("[ \t]+")
Row = tuple[int, list[str]]  # the number of a line and its columns


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence with the tags of its file, and the line of each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    label: str | None
    lines: tuple[int, ...]


def read_conll(
    path: str | Path, words: int = 0, tags: int | None = -1, max_bad_rows: int | None = 0
) -> ReadResult[Sentence]:
    """The sentences of a file; `words` and `tags` number its columns (-1 is the last), `tags=None` leaves tags out."""
    path = Path(path)
    problems = RowErrors(str(path), max_bad_rows)
    blocks = _blocks(path)
    sizes = Counter(len(fields) for block in blocks for _, fields in block)
    columns = max(sizes, key=sizes.__getitem__, default=1)
    if blocks:
        _check_columns(path, columns, words, tags)
    picked = [words] if tags is None else [words, tags]
    found: list[Tagged] = []
    for block in blocks:
        fault = next(((line, why) for line, fields in block if (why := _fault(fields, columns, picked))), None)
        if fault:
            problems.add(*fault)
            continue
        lines = tuple(line for line, _ in block)
        own_tags = () if tags is None else tuple(fields[tags] for _, fields in block)
        found.append(Tagged(tuple(fields[words] for _, fields in block), own_tags, None, lines))
    sentences, scheme = _sentences(found, problems, tags is not None)
    told = (
        "" if tags is None else f"words in column {words % columns}, tags in column {tags % columns}{_learned(scheme)}"
    )
    return finished(sentences, problems, tags is not None, told)


def read_slots(folder: str | Path, max_bad_rows: int | None = 0) -> ReadResult[Sentence]:
    """The sentences of a folder whose files seq.in, seq.out and label belong together line by line."""
    folder = Path(folder)
    names = (SLOT_FILE, "seq.out", "label")
    files = [_whole_lines(folder / name) for name in names]
    if len(set(map(len, files))) > 1:
        counts = ", ".join(f"{name} {len(lines)}" for name, lines in zip(names, files, strict=True))
        raise DataError(f"{folder}: the files have different numbers of lines ({counts}), so none can be matched")
    problems = RowErrors(str(folder / names[0]), max_bad_rows)
    found: list[Tagged] = []
    for number, (text, tagging, label) in enumerate(zip(*files, strict=True), start=1):
        words, tags = split_words(text), split_words(tagging)
        if not all(map(is_utf8, (text, tagging, label))):
            problems.add(number, "not UTF-8 text here, or in the same line of seq.out or label")
        elif len(words) != len(tags) or not words:
            problems.add(number, f"{len(words)} words here, {len(tags)} tags in seq.out")
        elif not label.strip():
            problems.add(number, "no label in the same line of the file label")
        else:
            found.append(Tagged(words, tags, label.strip(), (number,) * len(words)))
    sentences, scheme = _sentences(found, problems, tagged=True)
    return finished(sentences, problems, description=f"words of seq.in, tags of seq.out{_learned(scheme)}")


def _learned(scheme: str) -> str:
    return f"; spans in {scheme}, learned and predicted as IOB2" if scheme not in (PLAIN, "IOB2") else ""


def split_words(line: str) -> tuple[str, ...]:
    """At blanks and tabs only: a no-break space is part of a word."""
    return tuple(word for word in BLANKS.split(line) if word)


def _whole_lines(path: Path) -> list[str]:
    lines = [line for _, line in raw_lines(path)]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _blocks(path: Path) -> list[list[Row]]:
    """The lines of each sentence, in columns."""
    blocks: list[list[Row]] = [[]]
    for number, line in raw_lines(path):
        fields = split_columns(line)
        if fields:
            blocks[-1].append((number, fields))
        elif blocks[-1]:
            blocks.append([])
    return blocks if blocks[-1] else blocks[:-1]


def split_columns(line: str) -> list[str]:
    """The columns of a word's line; none where a sentence or document ends."""
    line = line.rstrip(" \t")
    if not line or line.startswith(DOCUMENT):
        return []
    return [field.strip(" ") for field in line.split("\t")] if "\t" in line else BLANKS.split(line)


def _check_columns(path: Path, columns: int, words: int, tags: int | None) -> None:
    for name, column in (("words", words), ("tags", tags)):
        if column is not None and not -columns <= column < columns:
            raise DataError(f"{path}: there are {columns} columns, so {name}={column} is none of them")
    if tags is not None and words % columns == tags % columns:
        raise DataError(f"{path}: words={words} and tags={tags} are the same of {columns} columns; tags=None for none")


def _fault(fields: list[str], columns: int, picked: Sequence[int]) -> str | None:
    if len(fields) != columns:
        return f"{len(fields)} columns, most lines have {columns}"
    if not all(map(is_utf8, fields)):
        return "not UTF-8 text"
    return None if all(fields[column] for column in picked) else "a word or tag is empty"


def _sentences(found: list[Tagged], problems: RowErrors, tagged: bool) -> tuple[list[Sentence], str]:
    """Tags judged by the file's own scheme and turned into IOB2; and that scheme."""
    scheme = detect_scheme(sentence.tags for sentence in found)
    sentences: list[Sentence] = []
    for sentence in found:
        fault = next(scheme_errors(sentence.tags, scheme), None) if tagged else None
        if fault:
            problems.add(sentence.lines[fault[0]], fault[1])
            continue
        tags = to_iob2(sentence.tags, scheme) if tagged else None
        where = f"{problems.location}:{sentence.lines[0]}"
        sentences.append(Sentence(sentence.words, tags, sentence.label, where))
    return sentences, scheme
