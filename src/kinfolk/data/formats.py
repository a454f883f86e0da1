"""Rows of files, one at a time: plain lines, or tables (.csv, .tsv, .jsonl, .parquet). `-` is standard input.

Files are UTF-8 (a byte-order mark is removed), and only \\n or \\r\\n ends a line: U+2028 and its relatives are text.
An empty line is an empty text; no row is dropped. `read_texts` and its siblings yield nothing more from the first bad
row on: the rest of the file is only checked, and the first errors are raised together, each as file:line: reason.
Readers of labelled data build on `numbered_lines` and `numbered_rows`, which go on after a bad row where `RowErrors`
allows some. A row of a .parquet file (with pyarrow, an extra) is named by its number.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from kinfolk.errors import DataError, FolderError, RowErrors, json_type, missing_column
from kinfolk.files import parse_json, reading, require_file

STDIN = "-"
PARQUET = ".parquet"
PARQUET_ROWS = 4096  # at once
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", PARQUET)
TEXT_COLUMN = "text"  # of a table, unless the user names another
LONGEST_LINE = 64 * 2**20  # a longer line is not text, and must not fill the memory
ESCAPED = re.compile("[\udc80-\udcff]")  # what decoding makes of a byte that is not UTF-8

Row = dict[str, Any]
NumberedRows = Iterator[tuple[int, Row]]  # each with its line
Lines = Iterator[tuple[int, str]]
Records = Iterator[tuple[int, list[str]]]


class BadValueError(ValueError):
    """A value of a row that cannot be used; the reader adds the line."""


@contextlib.contextmanager
def note_bad(errors: RowErrors, line: int | str) -> Iterator[None]:
    """A bad value within, or what is not JSON, is an error of this row."""
    try:
        yield
    except (BadValueError, FolderError) as error:
        errors.add(line, str(error).removeprefix(": "))  # `RowErrors` says where the JSON is


def text_cell(row: Row, name: str) -> str:
    """A cell that must be there and hold a text."""
    if name not in row:
        raise BadValueError(missing_column(name, list(row)))
    text = row[name]
    if not isinstance(text, str):
        raise BadValueError(f'"{name}" is {json_type(text)}, expected a string')
    return text


def is_table(path: str | Path) -> bool:
    return Path(path).suffix.lower() in TABLE_SUFFIXES


def read_texts(path: str | Path, column: str | None = None) -> Iterator[str]:
    """The texts of a file: the column (by default `text`) of a table, the lines of anything else."""
    if is_table(path) or column is not None:
        name = TEXT_COLUMN if column is None else column
        return (row[name] for row in read_rows(path, name))
    return read_lines(path)


def read_lines(path: str | Path) -> Iterator[str]:
    errors = RowErrors(display_name(path))
    for _, line in numbered_lines(path, errors):
        if not errors.messages:
            yield line
    errors.raise_if_any()


def read_rows(path: str | Path, column: str = TEXT_COLUMN) -> Iterator[Row]:
    """The rows of a table; in each of them `column` is a string."""
    errors = RowErrors(display_name(path))
    if not is_table(path):
        suffixes = ", ".join(TABLE_SUFFIXES)
        raise DataError(f'{errors.location}: only {suffixes} files have columns, so there is no "{column}"')
    return _checked_rows(path, column, errors)


def _checked_rows(path: str | Path, column: str, errors: RowErrors) -> Iterator[Row]:
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
) -> NumberedRows:
    """Rows of a table, each with the number of its first line, or in a .parquet file its own. `column` must be there.
    `header` names the columns of a .csv or .tsv file whose first line is already a row."""
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
    return "standard input" if str(path) == STDIN else str(path)


def raw_lines(path: str | Path, ends: bool = False) -> Lines:
    """As `numbered_lines`, but yields lines that are not UTF-8 too (see `is_utf8`). With `ends` lines keep theirs."""
    if str(path) == STDIN and sys.stdin is None:
        raise DataError("standard input is closed")
    with reading(Path(display_name(path))), contextlib.ExitStack() as stack:
        stream = sys.stdin.buffer if str(path) == STDIN else stack.enter_context(Path(path).open("rb"))
        for number, line in enumerate(iter(partial(stream.readline, LONGEST_LINE + 1), b""), 1):
            if len(line) > LONGEST_LINE or b"\0" in line:
                reason = "a NUL byte" if b"\0" in line else f"longer than {LONGEST_LINE // 2**20} MB without a line end"
                wide = line.startswith((b"\xff\xfe", b"\xfe\xff"))
                advice = "it looks like UTF-16: convert it to UTF-8" if wide else "this is not a text file"
                raise DataError(f"{display_name(path)}:{number}: {reason}; {advice}")
            if not ends:
                line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    """Was this text of `raw_lines` UTF-8?"""
    return text.isascii() or not ESCAPED.search(text)


def _json_rows(lines: Lines, column: str | None, errors: RowErrors) -> NumberedRows:
    for number, line in lines:
        if not line.strip():
            continue
        with note_bad(errors, number):
            row = parse_json(line, "")
            if not isinstance(row, dict):
                raise BadValueError(f"expected an object, found {json_type(row)}")
            if column is not None and column not in row:
                raise BadValueError(missing_column(column, list(row)))
            yield number, row


def _table_rows(records: Records, column: str | None, header: Sequence[str] | None, errors: RowErrors) -> NumberedRows:
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
            errors.add(number, f"{len(fields)} fields, expected {len(names)}")


def _refuse_tabs(number: int, fields: Sequence[str], errors: RowErrors) -> None:
    if len(fields) == 1 and "\t" in fields[0]:
        errors.stop(number, "its columns are separated by tabs, not commas: name the file .tsv")


def _csv_records(lines: Lines, errors: RowErrors, count: int | None) -> Records:
    """Records with the number of their first line; a quoted field may run over several. Spreadsheets of many countries
    write semicolons. The header line shows it, or without one a first row that has `count` fields in that way only."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # the module's own 128 KB is less than a long text
    texts = (line for _, line in lines)
    first = next(texts, "")
    semicolons = ";" in first and "," not in first
    if count is not None:
        fields = {mark: len(next(csv.reader([first], delimiter=mark), [])) for mark in ",;"}
        semicolons = fields[";"] == count != fields[","]
    reader = csv.reader(chain([first] * bool(first), texts), strict=True, delimiter=";" if semicolons else ",")
    while True:
        number = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):  # the rest of the file went into this field
                errors.stop(number, "a quote is opened and never closed")
            errors.add(number, str(error))
            continue
        if all(map(is_utf8, record)):
            yield number, record
        else:
            errors.add(number, "not UTF-8 text")


def parquet_rows(path: Path, errors: RowErrors, column: str | None = None) -> NumberedRows:
    """Each row with its number, from 1; `column` must be there."""
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if len(set(names)) < len(names):
            errors.stop(1, "duplicate column names")
        if column is not None and column not in names:
            errors.stop(1, missing_column(column, names))
        yield from enumerate((row for batch in file.iter_batches(PARQUET_ROWS) for row in batch.to_pylist()), 1)


@contextlib.contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    require_file(path)
    library, parquet = import_pyarrow(str(path)), importlib.import_module("pyarrow.parquet")
    try:
        with reading(path), parquet.ParquetFile(path) as file:
            yield file
    except (library.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({str(error)[:200]})") from None


def import_pyarrow(location: str) -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        raise DataError(f"{location}: .parquet needs pyarrow; pip install pyarrow, or convert the file") from None
