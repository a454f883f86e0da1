"""Tagged sentences: CoNLL files (a word per line with its columns) and slot folders (seq.in, seq.out, label).

Span tags come out in IOB2 whatever scheme the file has (tags.py). A sentence with a fault is one bad row, named by the
line of the fault, and is left out whole: a sentence without one of its words would be another sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kinfolk.data.examples import ReadResult, Sentence, finished
from kinfolk.data.readers import RowErrors, escaped_lines, readable
from kinfolk.data.tags import PLAIN, detect_scheme, faults, to_iob2
from kinfolk.errors import DataError

SLOTS = "seq.in"
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
    names = (SLOTS, "seq.out", "label")
    files = [_whole_lines(folder / name) for name in names]
    if len(set(map(len, files))) > 1:
        counts = ", ".join(f"{name} {len(lines)}" for name, lines in zip(names, files, strict=True))
        raise DataError(f"{folder}: the files have different numbers of lines ({counts}), so none can be matched")
    problems = RowErrors(str(folder / names[0]), max_bad_rows)
    found: list[Tagged] = []
    for number, (text, tagging, label) in enumerate(zip(*files, strict=True), start=1):
        words, tags = split_blanks(text), split_blanks(tagging)
        if not all(map(readable, (text, tagging, label))):
            problems.add(number, "not UTF-8 text here, or in the same line of seq.out or label")
        elif len(words) != len(tags) or not words:
            problems.add(number, f"{len(words)} words here, {len(tags)} tags in seq.out")
        elif not label.strip():
            problems.add(number, "no label in the same line of the file label")
        else:
            found.append(Tagged(words, tags, label.strip(), (number,) * len(words)))
    sentences, scheme = _sentences(found, problems, tagged=True)
    return finished(sentences, problems, told=f"words of seq.in, tags of seq.out{_learned(scheme)}")


def _learned(scheme: str) -> str:
    return f"; spans in {scheme}, learned and predicted as IOB2" if scheme not in (PLAIN, "IOB2") else ""


def split_blanks(line: str) -> tuple[str, ...]:
    """At blanks and tabs only: a no-break space is part of a word."""
    return tuple(word for word in BLANKS.split(line) if word)


def _whole_lines(path: Path) -> list[str]:
    lines = [line for _, line in escaped_lines(path)]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _blocks(path: Path) -> list[list[Row]]:
    """The lines of each sentence, in columns."""
    blocks: list[list[Row]] = [[]]
    for number, line in escaped_lines(path):
        fields = columns_of(line)
        if fields:
            blocks[-1].append((number, fields))
        elif blocks[-1]:
            blocks.append([])
    return blocks if blocks[-1] else blocks[:-1]


def columns_of(line: str) -> list[str]:
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
    if not all(map(readable, fields)):
        return "not UTF-8 text"
    return None if all(fields[column] for column in picked) else "a word or tag is empty"


def _sentences(found: list[Tagged], problems: RowErrors, tagged: bool) -> tuple[list[Sentence], str]:
    """Tags judged by the file's own scheme and turned into IOB2; and that scheme."""
    scheme = detect_scheme(sentence.tags for sentence in found)
    sentences: list[Sentence] = []
    for sentence in found:
        fault = next(faults(sentence.tags, scheme), None) if tagged else None
        if fault:
            problems.add(sentence.lines[fault[0]], fault[1])
            continue
        tags = to_iob2(sentence.tags, scheme) if tagged else None
        where = f"{problems.where}:{sentence.lines[0]}"
        sentences.append(Sentence(sentence.words, tags, sentence.label, where))
    return sentences, scheme
