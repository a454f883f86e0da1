"""Tagged sentences: CoNLL files, slot folders, and the schemes in which tags mark spans.

A CoNLL file has one word per line with its columns; a slot folder has the files seq.in, seq.out and label. Span tags
are returned in IOB2 whatever scheme the file has. A sentence with an error is one bad row, and skipped as a whole.

IOB2   B starts every span                                  B-PER I-PER O B-LOC
IOB1   B only where a span follows another of its type      I-PER I-PER O I-LOC
IOBES  E ends a span, S is one of a single word             B-PER E-PER O S-LOC
BILOU  the same with L and U                                B-PER L-PER O U-LOC
plain  tags that mark no spans, such as parts of speech

In each scheme a tag is valid or not after the one before it, so a file is checked by its pairs of neighbours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import NamedTuple

from kinfolk.data.examples import ReadResult, Sentence, read_result
from kinfolk.data.formats import is_utf8, raw_lines
from kinfolk.errors import DataError, InputError, RowErrors, check_choice

SCHEMES = ("IOB2", "IOB1", "IOBES", "BILOU")
PLAIN = "plain"
OUTSIDE = "O"
UNTYPED = "_"  # the type of a bare B or I
MARKED = re.compile(r"([BIESLU])-(.+)|([BI])")
AS_IOB2 = {"E": "I", "S": "B", "L": "I", "U": "B"}

SLOT_FILE = "seq.in"
DOCUMENT = "-DOCSTART-"
BLANKS = re.compile("[ \t]+")
RawSentence = tuple[Sentence, Sequence[int]]  # with the tags of its file, and the line of each word


@lru_cache(maxsize=4096)
def split_tag(tag: str) -> tuple[str, str]:
    """(prefix, type) of a tag: ("B", "PER"); ("O", "") outside, ("", tag) for a tag that marks no span."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = MARKED.fullmatch(tag)
    if match is None:
        return "", tag
    return (match[1], match[2]) if match[1] else (match[3], UNTYPED)


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme that the tags violate least; `plain` when most tags mark no span."""
    pairs: Counter[tuple[str, str]] = Counter()
    for tags in sentences:
        pairs.update(pairwise([OUTSIDE, *tags, OUTSIDE]))
    unmarked = sum(count for (_, tag), count in pairs.items() if not split_tag(tag)[0])
    inside = sum(count for (_, tag), count in pairs.items() if tag != OUTSIDE)
    if unmarked > inside / 2:
        return PLAIN
    violations = {name: sum(count for pair, count in pairs.items() if not _is_valid(*pair, name)) for name in SCHEMES}
    return min(SCHEMES, key=violations.__getitem__)


def has_spans(labels: Iterable[str]) -> bool:
    return detect_scheme((label,) for label in labels) != PLAIN


def scheme_errors(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """(index, reason) of each tag that is invalid in; a span without an end is reported at the last tag."""
    if check_choice("scheme", scheme, (*SCHEMES, PLAIN)) == PLAIN:
        return
    for index, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if not _is_valid(before, tag, scheme):
            after = f"after {before}" if index else "at the start"
            reason = f"{tag} {after}" if index < len(tags) else f"{before} at the end"
            yield min(index, len(tags) - 1), f"the tag {reason} is invalid in {scheme}"


def to_iob2(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
    """The same spans in IOB2; plain tags stay as they are."""
    for index, reason in scheme_errors(tags, scheme):
        raise InputError(f"word {index + 1}: {reason}")
    if scheme in ("IOBES", "BILOU"):
        return tuple(AS_IOB2.get(split_tag(tag)[0], tag[0]) + tag[1:] for tag in tags)
    return tuple(repair_iob2(tags) if scheme == "IOB1" else tags)


def entities(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """(first word, word after the last, type) of each span, read as seqeval and conlleval read any tags. Tags need not
    follow a scheme: an I after O, or after another type, starts a span. L and U are read as E and S."""
    spans: list[tuple[int, int, str]] = []
    start, kind, closed = -1, "", True
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, own_type = split_tag(tag)
        if not closed and (prefix not in ("I", "E", "L") or own_type != kind):
            spans.append((start, index, kind))
            closed = True
        if prefix not in ("", OUTSIDE) and closed:
            start, kind, closed = index, own_type, False
        if prefix in ("E", "S", "L", "U") and not closed:
            spans.append((start, index + 1, kind))
            closed = True
    return spans


def repair_iob2(tags: Sequence[str]) -> list[str]:
    """The same spans with a B wherever one begins, which a model's predictions may lack."""
    repaired: list[str] = []
    for before, tag in pairwise([OUTSIDE, *tags]):
        prefix, kind = split_tag(tag)
        begins = prefix == "I" and split_tag(before)[1] != kind
        repaired.append(f"B{tag[1:]}" if begins else tag)
    return repaired


@lru_cache(maxsize=65536)  # a file has few pairs of neighbours, and many words
def _is_valid(before: str, tag: str, scheme: str) -> bool:
    (last, last_kind), (prefix, kind) = split_tag(before), split_tag(tag)
    same = last in ("B", "I") and last_kind == kind
    if scheme == "IOB2":
        return prefix in (OUTSIDE, "B") or (prefix == "I" and same)
    if scheme == "IOB1":
        return prefix in (OUTSIDE, "I") or (prefix == "B" and same)
    end, single = ("E", "S") if scheme == "IOBES" else ("L", "U")
    if last in ("B", "I"):
        return prefix in ("I", end) and same
    return prefix in (OUTSIDE, "B", single)


class ConllRow(NamedTuple):
    line: int
    text: str
    fields: list[str]  # none where a sentence or document ends


def conll_blocks(path: str | Path) -> Iterator[list[ConllRow]]:
    """The lines of each sentence of a file, and in order the lines between them."""
    rows = (ConllRow(line, text, split_columns(text)) for line, text in raw_lines(path))
    for _, block in groupby(rows, lambda row: bool(row.fields)):
        yield list(block)


def read_conll(path: str | Path, words: int = 0, tags: int = -1, max_bad_rows: int | None = 0) -> ReadResult[Sentence]:
    """The sentences of a file; `words` and `tags` are column indices (-1 is the last)."""
    path = Path(path)
    errors = RowErrors(str(path), max_bad_rows)
    blocks = [block for block in conll_blocks(path) if block[0].fields]
    sizes = Counter(len(row.fields) for block in blocks for row in block)
    columns = max(sizes, key=sizes.__getitem__, default=1)
    for name, column in (("words", words), ("tags", tags)):
        if blocks and not -columns <= column < columns:
            raise DataError(f"{path}: there are {columns} columns, so {name}={column} is none of them")
    if blocks and words % columns == tags % columns:
        raise DataError(f"{path}: words={words} and tags={tags} are the same of {columns} columns")
    sentences: list[RawSentence] = []
    for block in blocks:
        checked = ((row.line, _row_error(row.fields, columns, words, tags)) for row in block)
        error = next(((line, reason) for line, reason in checked if reason), None)
        if error:
            errors.add(*error)
        else:
            texts = [tuple(row.fields[column] for row in block) for column in (words, tags)]
            sentence = Sentence(texts[0], texts[1], None, f"{path}:{block[0].line}")
            sentences.append((sentence, [row.line for row in block]))
    return _in_iob2(sentences, errors, f"words in column {words % columns}, tags in column {tags % columns}")


def read_slots(folder: str | Path, max_bad_rows: int | None = 0) -> ReadResult[Sentence]:
    """The sentences of a folder whose files seq.in, seq.out and label belong together line by line."""
    folder = Path(folder)
    names = (SLOT_FILE, "seq.out", "label")
    files = [[line for _, line in raw_lines(folder / name)] for name in names]
    for lines in files:
        while lines and not lines[-1].strip():
            lines.pop()
    if len(set(map(len, files))) > 1:
        counts = ", ".join(f"{name} {len(lines)}" for name, lines in zip(names, files, strict=True))
        raise DataError(f"{folder}: the files have different numbers of lines ({counts}), so lines cannot be matched")
    path = folder / SLOT_FILE
    errors = RowErrors(str(path), max_bad_rows)
    sentences: list[RawSentence] = []
    for line, (text, tagging, label) in enumerate(zip(*files, strict=True), start=1):
        words, tags = split_blanks(text), split_blanks(tagging)
        if not all(map(is_utf8, (text, tagging, label))):
            errors.add(line, "not UTF-8 text here, or in the same line of seq.out or label")
        elif len(words) != len(tags) or not words:
            errors.add(line, f"{len(words)} words here, {len(tags)} tags in seq.out")
        elif not label.strip():
            errors.add(line, "no label in the same line of the file label")
        else:
            sentences.append((Sentence(words, tags, label.strip(), f"{path}:{line}"), [line] * len(words)))
    return _in_iob2(sentences, errors, "words of seq.in, tags of seq.out")


def _in_iob2(sentences: list[RawSentence], errors: RowErrors, description: str) -> ReadResult[Sentence]:
    """The sentences whose tags are valid in the file's scheme, converted to IOB2."""
    scheme = detect_scheme(sentence.tags or () for sentence, _ in sentences)
    examples: list[Sentence] = []
    for sentence, lines in sentences:
        for index, reason in islice(scheme_errors(sentence.tags or (), scheme), 1):
            errors.add(lines[index], reason)
            break
        else:
            examples.append(replace(sentence, tags=to_iob2(sentence.tags or (), scheme)))
    if scheme not in (PLAIN, "IOB2"):
        description += f"; spans in {scheme}, converted to IOB2"
    return read_result(examples, errors, description)


def split_blanks(line: str) -> tuple[str, ...]:
    """Split at spaces and tabs only: a no-break space is part of a word."""
    return tuple(filter(None, BLANKS.split(line)))


def split_columns(line: str) -> list[str]:
    """The columns of a word's line; none where a sentence or document ends."""
    line = line.rstrip(" \t")
    if not line or line.startswith(DOCUMENT):
        return []
    return [field.strip(" ") for field in line.split("\t")] if "\t" in line else BLANKS.split(line)


def _row_error(fields: list[str], columns: int, words: int, tags: int) -> str | None:
    if len(fields) != columns:
        return f"{len(fields)} columns, most lines have {columns}"
    empty = None if fields[words] and fields[tags] else "a word or tag is empty"
    return empty if all(map(is_utf8, fields)) else "not UTF-8 text"
