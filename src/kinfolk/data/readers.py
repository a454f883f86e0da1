"""Texts of a file, one at a time: plain lines, or a column of a CSV, TSV or JSONL file. `-` is standard input.

Files are UTF-8 (a byte-order mark is removed), and only \\n or \\r\\n ends a line: U+2028 and its relatives are text.
An empty line is an empty text; no row is dropped. From the first fault on nothing more is handed out: the rest of the
file is only looked through, and the first faults are told together, each as file:line: reason. Readers of labelled
data build on `numbered_lines` and `numbered_rows`, which go on after a bad row where `RowErrors` allows some.
"""

from __future__ import annotations

import contextlib
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from kinfolk.errors import DataError, FolderError, first_few, nearest, whole_number
from kinfolk.files import parse_json, reading

STDIN = "-"
PARQUET = ".parquet"
TABLES = (".csv", ".tsv", ".jsonl", PARQUET)
COLUMN = "text"  # of a table, unless the user names another
MOST_PROBLEMS = 20
LONGEST_LINE = 64 * 2**20  # a line beyond it is not text, and must not fill the memory
ESCAPED = re.compile("[\udc80-\udcff]")  # what decoding makes of a byte that is not UTF-8


class RowErrors:
    """The bad rows of a file: all are counted, the first are told. Up to `allowed` of them may be left out."""

    def __init__(self, where: str, allowed: int | None = None):
        if allowed is not None:
            whole_number("max_bad_rows", allowed, 0)
        self.where = where
        self.allowed = allowed
        self.count = 0
        self.found: list[str] = []

    def add(self, place: int | str, reason: str) -> None:
        """Note a bad row, by its line or another name; reading ends here when nothing more would be told."""
        self.count += 1
        if len(self.found) < MOST_PROBLEMS:
            self.found.append(f"{self.where}:{place}: {reason}")
        if self.count >= MOST_PROBLEMS:
            self.tell()

    def tell(self) -> None:
        """Raise what was noted, if that is more than allowed."""
        if self.count > (self.allowed or 0):
            more = f"; and {self.count - len(self.found):,} more" if self.count > len(self.found) else ""
            limit = "" if self.allowed is None else "; correct them, or allow more (--max-bad-rows)"
            raise DataError("; ".join(self.found) + more + limit)

    def stop(self, place: int | str, reason: str) -> NoReturn:
        """Raise at once: after this fault no row can be judged."""
        raise DataError("; ".join([*self.found[: MOST_PROBLEMS - 1], f"{self.where}:{place}: {reason}"]))


def is_table(path: str | Path) -> bool:
    """Does the name say that the file has columns?"""
    return Path(path).suffix.lower() in TABLES


def read_texts(path: str | Path, column: str | None = None) -> Iterator[str]:
    """The texts of a file: the column (by default `text`) of a table, the lines of anything else."""
    if is_table(path):
        wanted = COLUMN if column is None else column
        return (row[wanted] for row in read_rows(path, wanted))
    if column is not None:
        raise DataError(f'{name_of(path)}: only {", ".join(TABLES)} files have columns, so there is no "{column}"')
    return read_lines(path)


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file, without their ends."""
    problems = RowErrors(name_of(path))
    for _, line in numbered_lines(path, problems):
        if not problems.found:
            yield line
    problems.tell()


def read_rows(path: str | Path, column: str = COLUMN) -> Iterator[dict[str, Any]]:
    """The rows of a table; in each of them `column` is a string."""
    if not is_table(path):
        raise DataError(f'{name_of(path)}: only {", ".join(TABLES)} files have columns, so there is no "{column}"')
    problems = RowErrors(name_of(path))
    for number, row in numbered_rows(path, problems, column):
        if not isinstance(row[column], str):
            problems.add(number, f'"{column}" is {json_kind(row[column])}, expected a string')
        elif not problems.found:
            yield row
    problems.tell()


def numbered_lines(path: str | Path, problems: RowErrors) -> Iterator[tuple[int, str]]:
    """Lines without their ends, each with its number; one that is not UTF-8 is a problem."""
    for number, line in escaped_lines(path):
        fault = None if line.isascii() else ESCAPED.search(line)
        if fault is None:
            yield number, line
        else:
            problems.add(number, f"not UTF-8 text (byte {len(line[: fault.start()].encode()) + 1} of the line)")


def numbered_rows(
    path: str | Path, problems: RowErrors, column: str | None = None, header: Sequence[str] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a table, each with the number of its first line, or in a .parquet file its own.

    `column` must be there. `header` names the columns of a .csv or .tsv file whose first line is already a row.
    """
    kind = Path(path).suffix.lower()
    if kind == PARQUET:
        from kinfolk.data.parquet import parquet_rows  # it stands on this file

        return parquet_rows(Path(path), problems, column)
    if kind == ".jsonl":
        return _json_rows(numbered_lines(path, problems), column, problems)
    if kind == ".csv":
        records = _csv_records(escaped_lines(path, ends=True), problems, None if header is None else len(header))
        return _table_rows(records, column, header, problems)
    return _table_rows(_tsv_records(numbered_lines(path, problems)), column, header, problems)


def name_of(path: str | Path) -> str:
    """What messages call it."""
    return "standard input" if str(path) == STDIN else str(path)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    if str(path) == STDIN:
        if sys.stdin is None:
            raise DataError("standard input is closed")
        yield sys.stdin.buffer
    else:
        with Path(path).open("rb") as stream:
            yield stream


def escaped_lines(path: str | Path, ends: bool = False) -> Iterator[tuple[int, str]]:
    """As `numbered_lines`, but a line that is not UTF-8 is handed out too, for readers whose rows have several lines.

    `readable` tells it apart. With `ends` lines keep theirs. A file that is not text is an error.
    """
    with reading(Path(name_of(path))), _opened(path) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            _refuse_binary(line, f"{name_of(path)}:{number}")
            if not ends:
                line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")


def readable(text: str) -> bool:
    """Was this text of a file UTF-8?"""
    return text.isascii() or not ESCAPED.search(text)


def _refuse_binary(line: bytes, where: str) -> None:
    if len(line) > LONGEST_LINE:
        raise DataError(f"{where}: longer than {LONGEST_LINE // 2**20} MB without an end of line; is this a text file?")
    if b"\0" in line:
        wide = line.startswith((b"\xff\xfe", b"\xfe\xff"))
        advice = "it looks like UTF-16: convert it to UTF-8" if wide else "this is not a text file"
        raise DataError(f"{where}: a NUL byte; {advice}")


def _json_rows(
    lines: Iterator[tuple[int, str]], column: str | None, problems: RowErrors
) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = parse_json(line, "")
        except FolderError as error:
            problems.add(number, str(error).removeprefix(": "))
            continue
        if not isinstance(row, dict):
            problems.add(number, f"expected an object, found {json_kind(row)}")
        elif column is not None and column not in row:
            problems.add(number, no_column(column, list(row)))
        else:
            yield number, row


def json_kind(value: Any) -> str:
    """What a value of a JSON file is, for a message."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return "a number" if type(value) in (int, float) else names.get(type(value), f"a {type(value).__name__}")


def no_column(column: str, present: Sequence[str]) -> str:
    """A message: the column is missing, these are there."""
    return f'no column "{column}"; there are: {first_few(present, most=12) or "none"}{nearest(column, present)}'


def _table_rows(
    records: Iterator[tuple[int, list[str]]], column: str | None, header: Sequence[str] | None, problems: RowErrors
) -> Iterator[tuple[int, dict[str, Any]]]:
    first, names = next(records, (1, [])) if header is None else (1, list(header))
    _refuse_tabs(first, names, problems)
    for name, count in Counter(names).items():
        if count > 1:
            problems.stop(first, f'the column "{name}" stands there twice')
    if column is not None and column not in names:
        problems.stop(first, no_column(column, names))
    for number, fields in records:
        if fields == [] and len(names) == 1:
            fields = [""]
        if len(fields) == len(names):
            yield number, dict(zip(names, fields, strict=True))
        elif fields:  # with two columns or more, a blank line holds no row
            _refuse_tabs(number, fields, problems)
            problems.add(number, f"{len(fields)} fields, the header has {len(names)}")


def _refuse_tabs(number: int, fields: Sequence[str], problems: RowErrors) -> None:
    if len(fields) == 1 and "\t" in fields[0]:
        problems.stop(number, "its columns are separated by tabs, not commas: name the file .tsv")


def _tsv_records(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    for number, line in lines:
        yield number, line.split("\t") if line else []


def _semicolons(line: str, count: int | None) -> bool:
    if count is None:
        return ";" in line and "," not in line
    fields = {mark: len(next(csv.reader([line], delimiter=mark), [])) for mark in ",;"}
    return fields[";"] == count != fields[","]


def _csv_records(
    lines: Iterator[tuple[int, str]], problems: RowErrors, count: int | None
) -> Iterator[tuple[int, list[str]]]:
    """Records with the number of their first line; a quoted field may run over several.

    Spreadsheets of many countries write semicolons. The header line shows it, or without one a first row that has
    `count` fields in that way only.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # the module's own 128 KB is less than a long text
    reached = 0

    def feed() -> Iterator[str]:
        nonlocal reached
        for number, line in lines:
            reached = number
            yield line

    first = next(lines, None)
    lines = lines if first is None else chain([first], lines)
    semicolons = first is not None and _semicolons(first[1], count)
    reader = csv.reader(feed(), strict=True, delimiter=";" if semicolons else ",")
    while True:
        before = reached
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):  # the rest of the file went into this field
                problems.stop(before + 1, "a quote is opened and never closed")
            problems.add(before + 1, str(error))
            continue
        if all(map(readable, fields)):
            yield before + 1, fields
        else:
            problems.add(before + 1, "not UTF-8 text")
