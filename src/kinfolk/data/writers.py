"""Rows to a table, a chunk at a time: .csv, .tsv, .jsonl or .parquet, by the file's name.

A `Form` knows what such a file can hold. It looks at the rows before anything is computed from them, so that a row
which cannot be written is told at once and not after hours; then it makes the writer.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from kinfolk.data.parquet import ParquetColumns, ParquetWriter
from kinfolk.data.readers import PARQUET, TABLES
from kinfolk.errors import DataError, InputError

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
        if self.suffix not in TABLES:
            raise InputError(f"{path}: predictions are written to a file that ends in {', '.join(TABLES)}")
        self.columns = ParquetColumns(str(path)) if self.suffix == PARQUET else None
        self.names: list[str] | None = None

    def fault(self, row: Row) -> str | None:
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

    def look_at(self, rows: Sequence[Row]) -> None:
        """Learn the types of columns, where the file has types; values that share none are an error."""
        if self.columns is not None:
            self.columns.look_at(rows)

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
            fault = self.form.fault(row)
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
