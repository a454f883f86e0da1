"""Tables written to a .csv, .tsv, .jsonl or .parquet file, and .npy files that grow row by row.

A format checks rows before anything is computed from them, so that a row which cannot be written is reported at once
and not after hours.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from kinfolk.data.formats import PARQUET, TABLE_SUFFIXES, Row, import_pyarrow, open_parquet
from kinfolk.errors import DataError, FolderError, InputError
from kinfolk.files import require_file

OnDone = Callable[[int], None]  # called with the number of texts or rows that were just done


def table_format(path: str | Path) -> TableFormat:
    if Path(path).suffix.lower() not in TABLE_SUFFIXES:
        raise InputError(f"{path}: predictions are written to a file that ends in {', '.join(TABLE_SUFFIXES)}")
    return (ParquetFormat if Path(path).suffix.lower() == PARQUET else TableFormat)(path)


class TableFormat:
    """A file of text, with the columns of its first row; for each file a new one."""

    def __init__(self, path: str | Path):
        self.path, self.suffix = path, Path(path).suffix.lower()
        self.names: list[str] | None = None  # of the rows that were checked
        self.has_header = self.suffix == ".jsonl"

    def row_error(self, row: Row) -> str | None:
        """Why this row cannot be written to the file after the ones before it."""
        if self.suffix == ".jsonl":
            return None
        if self.names is None:
            self.names = list(row)
        if list(row) != self.names:
            return f"other columns than in the rows before, which {self.suffix} cannot hold; write .jsonl"
        return self._cell_error(row)

    def _cell_error(self, row: Row) -> str | None:
        if self.suffix == ".tsv" and any(mark in cell for cell in map(_cell, row.values()) for mark in "\t\n\r"):
            return "a text with a tab or a line break cannot be written to a .tsv file; write .csv or .jsonl"
        return None

    def infer_types(self, rows: Sequence[Row]) -> None:
        """Widen the types of columns, where the format has some, until they hold these rows too."""

    def copy_types(self, path: Path) -> None:
        """Take the columns and types of a .parquet file."""

    def start(self, stream: BinaryIO) -> None:
        """Begin the file; `finish` must be called after that, after a failure too."""
        self.stream = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="", write_through=True)
        self.table = csv.writer(self.stream, lineterminator="\n")

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            error = self._cell_error(row)
            if error:
                raise DataError(f"{self.path}: {error}")
            if not self.has_header:
                self._write_cells(list(row))
                self.has_header = True
            if self.suffix == ".jsonl":
                self.stream.write(json_line(row) + "\n")
            else:
                self._write_cells([_cell(value) for value in row.values()])

    def _write_cells(self, cells: list[str]) -> None:
        if self.suffix == ".csv":
            self.table.writerow(cells)
        else:
            self.stream.write("\t".join(cells) + "\n")

    def finish(self) -> None:
        self.stream.detach()


class ParquetFormat(TableFormat):
    """With a row group for each `write`."""

    def __init__(self, path: str | Path):
        super().__init__(path)
        self.library: Any = import_pyarrow(str(path))
        self.schema: Any = None

    def copy_types(self, path: Path) -> None:
        with open_parquet(path) as file:
            self.schema = file.schema_arrow.remove_metadata()

    def infer_types(self, rows: Sequence[Row]) -> None:
        with self._reporting():
            inferred = self.library.Table.from_pylist(rows).schema
            known = [] if self.schema is None else [self.schema]
            self.schema = self.library.unify_schemas([*known, inferred], promote_options="permissive")

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (self.library.ArrowException, ValueError, TypeError, OverflowError) as error:
            reason = f"the values of a column have no common type ({str(error)[:120]})"
            raise DataError(f"{self.path}: {reason}; write .jsonl") from None

    def start(self, stream: BinaryIO) -> None:
        self.output = stream

    @cached_property
    def _writer(self) -> Any:
        """Made with the columns as they are at the first row."""
        return import_module("pyarrow.parquet").ParquetWriter(self.output, self.schema or self.library.schema([]))

    def write(self, rows: Sequence[Row]) -> None:
        with self._reporting():
            self._writer.write_table(self.library.Table.from_pylist(rows, schema=self.schema))

    def finish(self) -> None:
        self._writer.close()


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
        text = json.dumps(value, ensure_ascii=False, default=str)
        return json.dumps(json.loads(text, parse_constant=lambda name: None), ensure_ascii=False)


class NpyWriter:
    """Rows of one shape, appended to a fresh stream; `finish` makes the file whole."""

    def __init__(self, stream: BinaryIO, row_shape: tuple[int, ...], dtype: str = "<f4"):
        self.stream, self.row_shape, self.dtype = stream, row_shape, dtype
        self.count = 0
        self._write_header()
        self._start = stream.tell()

    def append(self, rows: np.ndarray) -> None:
        assert rows.shape[1:] == self.row_shape
        self.stream.write(np.ascontiguousarray(rows, dtype=self.dtype).data)
        self.count += len(rows)

    def finish(self) -> None:
        """Write the number of rows into the header."""
        self.stream.seek(0)
        self._write_header()
        assert self.stream.tell() == self._start  # numpy leaves room for the largest count
        self.stream.seek(0, 2)

    def _write_header(self) -> None:
        header = {"descr": self.dtype, "fortran_order": False, "shape": (self.count, *self.row_shape)}
        np.lib.format.write_array_header_1_0(self.stream, header)


def open_npy(path: Path, shape: tuple[int, ...], dtype: str = "<f4") -> np.ndarray:
    """The array of a file, mapped into memory and not read; it must have just this shape and dtype."""
    require_file(path)
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, TypeError, OverflowError, SyntaxError, EOFError) as error:
        raise FolderError(f"{path}: not a whole .npy file ({str(error)[:120]})") from None
    if array.shape != shape or array.dtype != np.dtype(dtype) or not array.flags.c_contiguous:
        raise FolderError(f"{path}: holds {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}")
    return array
