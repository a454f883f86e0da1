"""Texts of a file, one at a time: plain lines, or a column of a CSV, TSV or JSONL file. `-` is standard input.

Files are UTF-8 (a byte-order mark is removed), and only \\n or \\r\\n ends a line: U+2028 and its relatives are text.
An empty line is an empty text; no row is dropped. From the first fault on nothing more is handed out: the rest of the
file is only looked through, and the first faults are told together, each as file:line: reason.
"""

from __future__ import annotations

import contextlib
import csv
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from kinfolk.errors import DataError, FolderError, first_few, nearest
from kinfolk.files import parse_json, reading

STDIN = "-"
TABLES = (".csv", ".tsv", ".jsonl")
COLUMN = "text"  # of a table, unless the user names another
MOST_PROBLEMS = 20
LONGEST_LINE = 64 * 2**20  # a line beyond it is not text, and must not fill the memory


class Problems:
    """The first faults of a file."""

    def __init__(self, where: str):
        self.where = where
        self.found: list[str] = []

    def add(self, line: int, reason: str) -> None:
        """Note a fault; the last one that fits ends the reading."""
        self.found.append(f"{self.where}:{line}: {reason}")
        if len(self.found) == MOST_PROBLEMS:
            self.tell()

    def tell(self) -> None:
        """Raise what was noted, if anything was."""
        if self.found:
            raise DataError("; ".join(self.found))


def is_table(path: str | Path) -> bool:
    """Does the name say that the file has columns?"""
    return Path(path).suffix.lower() in TABLES


def read_texts(path: str | Path, column: str | None = None) -> Iterator[str]:
    """The texts of a file: the column (by default `text`) of a table, the lines of anything else."""
    if is_table(path):
        wanted = column or COLUMN
        return (row[wanted] for row in read_rows(path, wanted))
    if column is not None:
        raise DataError(f'{_name(path)}: only {", ".join(TABLES)} files have columns, so there is no "{column}"')
    return read_lines(path)


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file, without their ends."""
    problems = Problems(_name(path))
    for _, line in _lines(path, problems):
        if not problems.found:
            yield line
    problems.tell()


def read_rows(path: str | Path, column: str = COLUMN) -> Iterator[dict[str, Any]]:
    """The rows of a .csv, .tsv or .jsonl file; in each of them `column` is a string."""
    kind = Path(path).suffix.lower()
    if kind not in TABLES:
        raise DataError(f'{_name(path)}: only {", ".join(TABLES)} files have columns, so there is no "{column}"')
    problems = Problems(_name(path))
    lines = _lines(path, problems)
    rows = _json_rows(lines, column, problems) if kind == ".jsonl" else _table_rows(lines, kind, column, problems)
    for row in rows:
        if not problems.found:
            yield row
    problems.tell()


def _name(path: str | Path) -> str:
    return "standard input" if str(path) == STDIN else str(path)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    if str(path) == STDIN:
        yield sys.stdin.buffer
    else:
        with Path(path).open("rb") as stream:
            yield stream


def _lines(path: str | Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; a line that is not UTF-8 is a problem, a file that is not text an error."""
    with reading(Path(_name(path))), _opened(path) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            _refuse_binary(line, f"{_name(path)}:{number}")
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                problems.add(number, f"not UTF-8 text (byte {error.start + 1} of the line)")


def _refuse_binary(line: bytes, where: str) -> None:
    if len(line) > LONGEST_LINE:
        raise DataError(f"{where}: longer than {LONGEST_LINE // 2**20} MB without an end of line; is this a text file?")
    if b"\0" in line:
        wide = line.startswith((b"\xff\xfe", b"\xfe\xff"))
        advice = "it looks like UTF-16: convert it to UTF-8" if wide else "this is not a text file"
        raise DataError(f"{where}: a NUL byte; {advice}")


def _json_rows(lines: Iterator[tuple[int, str]], column: str, problems: Problems) -> Iterator[dict[str, Any]]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = parse_json(line, "")
        except FolderError as error:
            problems.add(number, str(error).removeprefix(": "))
            continue
        if not isinstance(row, dict):
            problems.add(number, f"expected an object, found {_kind(row)}")
        elif column not in row:
            problems.add(number, _no_column(column, list(row)))
        elif not isinstance(row[column], str):
            problems.add(number, f'"{column}" is {_kind(row[column])}, expected a string')
        else:
            yield row


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _no_column(column: str, present: list[str]) -> str:
    return f'no column "{column}"; there are: {first_few(present, most=12) or "none"}{nearest(column, present)}'


def _table_rows(
    lines: Iterator[tuple[int, str]], kind: str, column: str, problems: Problems
) -> Iterator[dict[str, Any]]:
    records = _csv_records(lines, problems) if kind == ".csv" else _tsv_records(lines)
    first, header = next(records, (1, []))
    twice = [name for name, count in Counter(header).items() if count > 1]
    if column not in header or twice:
        problems.add(first, f'the column "{twice[0]}" stands there twice' if twice else _no_column(column, header))
        problems.tell()  # without a header no row can be judged
    for number, fields in records:
        if fields == [] and len(header) == 1:
            fields = [""]
        if len(fields) == len(header):
            yield dict(zip(header, fields, strict=True))
        elif fields:  # with two columns or more, a blank line holds no row
            problems.add(number, f"{len(fields)} fields, the header has {len(header)}")


def _tsv_records(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        yield number, line.split("\t") if line else []


def _csv_records(lines: Iterator[tuple[int, str]], problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Records with the number of their first line; a quoted field may run over several."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # the module's own 128 KB is less than a long text
    reached = 0

    def feed() -> Iterator[str]:
        nonlocal reached
        for number, line in lines:
            reached = number
            yield f"{line}\n"

    reader = csv.reader(feed(), strict=True)
    while True:
        before = reached
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            unclosed = "a quote is opened and never closed" if "unexpected end" in str(error) else str(error)
            problems.add(before + 1, unclosed)
            continue
        yield before + 1, fields
