"""Rows of files, one at a time: plain lines, or tables (.csv, .tsv, .jsonl, .parquet). `-` is standard input.

Files are UTF-8 (a byte-order mark is removed), and only \\n or \\r\\n ends a line: U+2028 and its relatives are text.
An empty line is an empty text; no row is dropped. `read_texts` and its siblings yield nothing more from the first bad
row on: the rest of the file is only checked, and the first errors are raised together, each as file:line: reason.
Readers of labelled data build on `numbered_lines` and `numbered_rows`, which go on after a bad row where `RowErrors`
allows some.

`TableFormat` writes tables. It checks rows before anything is computed from them, so that a row which cannot be written
is reported at once and not after hours.
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
LONGEST_LINE = 64 * 2**20  # a longer line is not text, and must not fill the memory
ESCAPED = re.compile("[\udc80-\udcff]")  # what decoding makes of a byte that is not UTF-8

Row = dict[str, Any]
Rows = Iterator[tuple[int, Row]]  # each with its line
Lines = Iterator[tuple[int, str]]
Records = Iterator[tuple[int, list[str]]]


def is_table(path: str | Path) -> bool:
    """Does the name say that the file has columns?"""
    return Path(path).suffix.lower() in TABLE_SUFFIXES


def read_texts(path: str | Path, column: str | None = None) -> Iterator[str]:
    """The texts of a file: the column (by default `text`) of a table, the lines of anything else."""
    if is_table(path) or column is not None:
        name = TEXT_COLUMN if column is None else column
        return (row[name] for row in read_rows(path, name))
    return read_lines(path)


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file, without their ends."""
    errors = RowErrors(display_name(path))
    for _, line in numbered_lines(path, errors):
        if not errors.messages:
            yield line
    errors.raise_if_any()


def read_rows(path: str | Path, column: str = TEXT_COLUMN) -> Iterator[Row]:
    """The rows of a table; in each of them `column` is a string."""
    if not is_table(path):
        suffixes = ", ".join(TABLE_SUFFIXES)
        raise DataError(f'{display_name(path)}: only {suffixes} files have columns, so there is no "{column}"')
    return _checked_rows(path, column)


def _checked_rows(path: str | Path, column: str) -> Iterator[Row]:
    errors = RowErrors(display_name(path))
    for line, row in numbered_rows(path, errors, column):
        if not isinstance(row[column], str):
            errors.add(line, f'"{column}" is {json_type(row[column])}, expected a string')
        elif not errors.messages:
            yield row
    errors.raise_if_any()


def numbered_lines(path: str | Path, errors: RowErrors) -> Lines:
    """Lines without their ends, each with its number; one that is not UTF-8 is an error."""
    for number, line in raw_lines(path):
        bad = None if line.isascii() else ESCAPED.search(line)
        if bad is None:
            yield number, line
        else:
            errors.add(number, f"not UTF-8 text (byte {len(line[: bad.start()].encode()) + 1} of the line)")


def numbered_rows(
    path: str | Path, errors: RowErrors, column: str | None = None, header: Sequence[str] | None = None
) -> Rows:
    """Rows of a table, each with the number of its first line, or in a .parquet file its own.

    `column` must be there. `header` names the columns of a .csv or .tsv file whose first line is already a row.
    """
    suffix = Path(path).suffix.lower()
    if header is not None and suffix not in (".csv", ".tsv"):
        raise DataError(f"{path}: its columns have names already; a header is for .csv and .tsv files without one")
    if suffix == PARQUET:
        return parquet_rows(Path(path), errors, column)
    if suffix == ".jsonl":
        return _json_rows(numbered_lines(path, errors), column, errors)
    if suffix == ".csv":
        records = _csv_records(raw_lines(path, ends=True), errors, None if header is None else len(header))
        return _table_rows(records, column, header, errors)
    records = ((number, line.split("\t") if line else []) for number, line in numbered_lines(path, errors))
    return _table_rows(records, column, header, errors)


def display_name(path: str | Path) -> str:
    """The name of a file in messages."""
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


def raw_lines(path: str | Path, ends: bool = False) -> Lines:
    """As `numbered_lines`, but yields lines that are not UTF-8 too, for readers whose rows have several lines.

    `is_utf8` tells them apart. With `ends` lines keep theirs. A file that is not text is an error.
    """
    with reading(Path(display_name(path))), _opened(path) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            location = f"{display_name(path)}:{number}"
            if len(line) > LONGEST_LINE:
                size = f"{LONGEST_LINE // 2**20} MB"
                raise DataError(f"{location}: longer than {size} without a line end; is this a text file?")
            if b"\0" in line:
                wide = line.startswith((b"\xff\xfe", b"\xfe\xff"))
                advice = "it looks like UTF-16: convert it to UTF-8" if wide else "this is not a text file"
                raise DataError(f"{location}: a NUL byte; {advice}")
            if not ends:
                line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    """Was this text of `raw_lines` UTF-8?"""
    return text.isascii() or not ESCAPED.search(text)


def _json_rows(lines: Lines, column: str | None, errors: RowErrors) -> Rows:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = parse_json(line, "")
        except FolderError as error:
            errors.add(number, str(error).removeprefix(": "))
            continue
        if not isinstance(row, dict):
            errors.add(number, f"expected an object, found {json_type(row)}")
        elif column is not None and column not in row:
            errors.add(number, missing_column(column, list(row)))
        else:
            yield number, row


def _table_rows(records: Records, column: str | None, header: Sequence[str] | None, errors: RowErrors) -> Rows:
    first, names = next(records, (1, [])) if header is None else (1, list(header))
    _refuse_tabs(first, names, errors)
    for name, count in Counter(names).items():
        if count > 1:
            errors.stop(first, f'duplicate column "{name}"')
    if column is not None and column not in names:
        errors.stop(first, missing_column(column, names))
    for number, fields in records:
        if fields == [] and len(names) == 1:
            fields = [""]
        if len(fields) == len(names):
            yield number, dict(zip(names, fields, strict=True))
        elif fields:  # with two columns or more, a blank line holds no row
            _refuse_tabs(number, fields, errors)
            errors.add(number, f"{len(fields)} fields, the header has {len(names)}")


def _refuse_tabs(number: int, fields: Sequence[str], errors: RowErrors) -> None:
    if len(fields) == 1 and "\t" in fields[0]:
        errors.stop(number, "its columns are separated by tabs, not commas: name the file .tsv")


def _uses_semicolons(line: str, count: int | None) -> bool:
    if count is None:
        return ";" in line and "," not in line
    fields = {mark: len(next(csv.reader([line], delimiter=mark), [])) for mark in ",;"}
    return fields[";"] == count != fields[","]


def _csv_records(lines: Lines, errors: RowErrors, count: int | None) -> Records:
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
    semicolons = first is not None and _uses_semicolons(first[1], count)
    reader = csv.reader(feed(), strict=True, delimiter=";" if semicolons else ",")
    while True:
        number = reached + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):  # the rest of the file went into this field
                errors.stop(number, "a quote is opened and never closed")
            errors.add(number, str(error))
            continue
        if all(map(is_utf8, fields)):
            yield number, fields
        else:
            errors.add(number, "not UTF-8 text")


class Writer(Protocol):
    """Writes rows to a stream that someone else opens and closes."""

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows."""

    def finish(self) -> None:
        """Complete the file; must be called after a failure too."""


class TableFormat:
    """The format that a path names, and the columns that it will have: those of the first row."""

    def __init__(self, path: str | Path):
        self.path, self.suffix = path, Path(path).suffix.lower()
        if self.suffix not in TABLE_SUFFIXES:
            raise InputError(f"{path}: predictions are written to a file that ends in {', '.join(TABLE_SUFFIXES)}")
        self.columns = ParquetColumns(str(path)) if self.suffix == PARQUET else None
        self.names: list[str] | None = None

    def row_error(self, row: Row) -> str | None:
        """Why this row cannot be written to the file after the ones before it."""
        if self.suffix == ".jsonl":
            return None
        if self.names is None:
            self.names = list(row)
        if list(row) != self.names:
            return f"other columns than in the rows before, which {self.suffix} cannot hold; write .jsonl"
        if self.suffix == ".tsv" and any(mark in cell for cell in map(_cell, row.values()) for mark in "\t\n\r"):
            return "a text with a tab or a line break cannot be written to a .tsv file; write .csv or .jsonl"
        return None

    def infer_types(self, rows: Sequence[Row]) -> None:
        """Infer the types of columns, where the format has types; values without a common type are an error."""
        if self.columns is not None:
            self.columns.infer_types(rows)

    def writer(self, stream: BinaryIO) -> Writer:
        """What writes the inferred columns to a new stream."""
        return TextWriter(stream, self.path) if self.columns is None else ParquetWriter(stream, self.columns)


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
            error = self.form.row_error(row)
            if error:
                raise DataError(f"{self.form.path}: {error}")
            if first:
                self._write_cells(list(row))
            self._write_cells([_cell(value) for value in row.values()])

    def finish(self) -> None:
        self.stream.detach()

    def _write_cells(self, cells: list[str]) -> None:
        if self.form.suffix == ".csv":
            self.table.writerow(cells)
        else:
            self.stream.write("\t".join(cells) + "\n")


def _cell(value: Any) -> str:
    """A value in a table of text: nothing for null, JSON for truth values, lists and objects."""
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
