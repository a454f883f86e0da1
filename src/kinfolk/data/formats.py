"""Texts of a file, one at a time: plain lines, or a column of a CSV, TSV or JSONL file. `-` is standard input.

Files are UTF-8 (a byte-order mark is removed), and only \n or \r\n ends a line: U+2028 and its relatives are text.
An empty line is an empty text; no row is dropped. From the first fault on nothing more is handed out: the rest of the
file is only looked through, and the first faults are told together, each as file:line: reason. Readers of labelled
data build on `numbered_lines` and `numbered_rows`, which go on after a bad row where `RowErrors` allows some.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from kinfolk.data.parquet import ParquetColumns, ParquetWriter, parquet_rows
from kinfolk.errors import DataError, FolderError, InputError, RowErrors, json_type, missing_column
from kinfolk.files import parse_json, reading

STDIN = "-"
PARQUET = ".parquet"
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", PARQUET)
TEXT_COLUMN = "text"  # of a table, unless the user names another
LONGEST_LINE = 64 * 2**20  # a line beyond it is not text, and must not fill the memory
ESCAPED = re.compile("[\udc80-\udcff]")  # what decoding makes of a byte that is not UTF-8


def is_table(path: str | Path) -> bool:
    """Does the name say that the file has columns?"""
    return Path(path).suffix.lower() in TABLE_SUFFIXES


def read_texts(path: str | Path, column: str | None = None) -> Iterator[str]:
    """The texts of a file: the column (by default `text`) of a table, the lines of anything else."""
    if is_table(path):
        wanted = TEXT_COLUMN if column is None else column
        return (row[wanted] for row in read_rows(path, wanted))
    if column is not None:
        raise DataError(
            f'{display_name(path)}: only {", ".join(TABLE_SUFFIXES)} files have columns, so there is no "{column}"'
        )
    return read_lines(path)


def _no_columns(path: str | Path, column: str) -> DataError:
    suffixes = ", ".join(TABLE_SUFFIXES)
    return DataError(f'{display_name(path)}: only {suffixes} files have columns, so there is no "{column}"')


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file, without their ends."""
    problems = RowErrors(display_name(path))
    for _, line in numbered_lines(path, problems):
        if not problems.messages:
            yield line
    problems.raise_if_any()


def read_rows(path: str | Path, column: str = TEXT_COLUMN) -> Iterator[dict[str, Any]]:
    """The rows of a table; in each of them `column` is a string."""
    if not is_table(path):
        raise DataError(
            f'{display_name(path)}: only {", ".join(TABLE_SUFFIXES)} files have columns, so there is no "{column}"'
        )
    problems = RowErrors(display_name(path))
    for number, row in numbered_rows(path, problems, column):
        if not isinstance(row[column], str):
            problems.add(number, f'"{column}" is {json_type(row[column])}, expected a string')
        elif not problems.messages:
            yield row
    problems.raise_if_any()


def numbered_lines(path: str | Path, problems: RowErrors) -> Iterator[tuple[int, str]]:
    """Lines without their ends, each with its number; one that is not UTF-8 is a problem."""
    for number, line in raw_lines(path):
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
        return parquet_rows(Path(path), problems, column)
    if kind == ".jsonl":
        return _json_rows(numbered_lines(path, problems), column, problems)
    if kind == ".csv":
        records = _csv_records(raw_lines(path, ends=True), problems, None if header is None else len(header))
        return _table_rows(records, column, header, problems)
    return _table_rows(_tsv_records(numbered_lines(path, problems)), column, header, problems)


def display_name(path: str | Path) -> str:
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


def raw_lines(path: str | Path, ends: bool = False) -> Iterator[tuple[int, str]]:
    """As `numbered_lines`, but a line that is not UTF-8 is handed out too, for readers whose rows have several lines.

    `readable` tells it apart. With `ends` lines keep theirs. A file that is not text is an error.
    """
    with reading(Path(display_name(path))), _opened(path) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            _refuse_binary(line, f"{display_name(path)}:{number}")
            if not ends:
                line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
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
            problems.add(number, f"expected an object, found {json_type(row)}")
        elif column is not None and column not in row:
            problems.add(number, missing_column(column, list(row)))
        else:
            yield number, row


def _table_rows(
    records: Iterator[tuple[int, list[str]]], column: str | None, header: Sequence[str] | None, problems: RowErrors
) -> Iterator[tuple[int, dict[str, Any]]]:
    first, names = next(records, (1, [])) if header is None else (1, list(header))
    _refuse_tabs(first, names, problems)
    for name, count in Counter(names).items():
        if count > 1:
            problems.stop(first, f'the column "{name}" stands there twice')
    if column is not None and column not in names:
        problems.stop(first, missing_column(column, names))
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
        if all(map(is_utf8, fields)):
            yield before + 1, fields
        else:
            problems.add(before + 1, "not UTF-8 text")


Row = dict[str, Any]


class Writer(Protocol):
    """Writes rows to a stream that someone else opens and closes."""

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows."""

    def finish(self) -> None:
        """Write what is still missing; after a failure too, for a writer that stays open complains when it goes."""


class TableFormat:
    """The kind of file that a path names, and the columns that it will have: those of the first row."""

    def __init__(self, path: str | Path):
        self.path, self.suffix = path, Path(path).suffix.lower()
        if self.suffix not in TABLE_SUFFIXES:
            raise InputError(f"{path}: predictions are written to a file that ends in {', '.join(TABLE_SUFFIXES)}")
        self.columns = ParquetColumns(str(path)) if self.suffix == PARQUET else None
        self.names: list[str] | None = None

    def row_error(self, row: Row) -> str | None:
        """Why this row cannot stand in the file beside the ones before it."""
        if self.suffix == ".jsonl":
            return None
        if self.names is None:
            self.names = list(row)
        if list(row) != self.names:
            return f"other columns than in the rows before, which {self.suffix} cannot hold; write .jsonl"
        if self.suffix == ".tsv" and any(mark in cell for cell in map(_cell, row.values()) for mark in "\t\n\r"):
            return "a text with a tab or a line break cannot stand in a .tsv file; write .csv or .jsonl"
        return None

    def infer_types(self, rows: Sequence[Row]) -> None:
        """Learn the types of columns, where the file has types; values that share none are an error."""
        if self.columns is not None:
            self.columns.infer_types(rows)

    def writer(self, stream: BinaryIO) -> Writer:
        """What writes to a fresh stream the columns that were looked at."""
        if self.columns is not None:
            return ParquetWriter(stream, self.columns)
        return TextWriter(stream, self.path)


class TextWriter:
    """Rows to a .csv, .tsv or .jsonl stream; the first row gives the header."""

    def __init__(self, stream: BinaryIO, path: str | Path):
        self.form = TableFormat(path)
        self.stream = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="", write_through=True)
        self.table = csv.writer(self.stream, lineterminator="\n")

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if self.form.suffix == ".jsonl":
                self.stream.write(json_line(row) + "\n")
                continue
            first = self.form.names is None
            fault = self.form.row_error(row)
            if fault:
                raise DataError(f"{self.form.path}: {fault}")
            if first:
                self._line(list(row))
            self._line([_cell(value) for value in row.values()])

    def finish(self) -> None:
        self.stream.detach()

    def _line(self, cells: list[str]) -> None:
        if self.form.suffix == ".csv":
            self.table.writerow(cells)
        else:
            self.stream.write("\t".join(cells) + "\n")


def _cell(value: Any) -> str:
    """A value in a table of text: nothing for null, JSON for what has parts."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_line(value) if isinstance(value, bool | list | dict) else str(value)


def json_line(value: Any) -> str:
    """A value as JSON: NaN is null, and what JSON does not know (a date) is its text."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # JSON has no NaN and no infinity
        return json.dumps(_finite(value), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
