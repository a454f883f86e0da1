"""Rows of .parquet files, with pyarrow, an extra. A row is named by its number, from 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from kinfolk.errors import DataError, RowErrors, missing_column
from kinfolk.files import reading, require_file

ROWS_AT_ONCE = 4096


def parquet_rows(path: Path, errors: RowErrors, column: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with its number; a file that pyarrow cannot read is an error.

    `column` must be there.
    """
    number = 0
    with _open_parquet(path) as file:
        names = file.schema_arrow.names
        if len(set(names)) < len(names):
            errors.stop(1, "duplicate column names")
        if column is not None and column not in names:
            errors.stop(1, missing_column(column, names))
        for batch in file.iter_batches(ROWS_AT_ONCE):
            for row in batch.to_pylist():
                number += 1
                yield number, row


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    require_file(path)
    library = _pyarrow(str(path), "reading")
    parquet: Any = import_module("pyarrow.parquet")
    try:
        with reading(path), parquet.ParquetFile(path) as file:
            yield file
    except (library.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({str(error)[:200]})") from None


def _pyarrow(location: str, action: str) -> Any:
    try:
        return import_module("pyarrow")
    except ImportError:
        raise DataError(
            f"{location}: {action} .parquet needs pyarrow; pip install pyarrow, or convert the file"
        ) from None


class ParquetColumns:
    """The names and types of a file's columns: those of another .parquet file, or inferred from all rows beforehand."""

    def __init__(self, path: str):
        self.path = path
        self.library = _pyarrow(path, "writing")
        self.schema: Any = None

    def copy_schema(self, path: Path) -> None:
        """Take the columns of this file."""
        with _open_parquet(path) as file:
            self.schema = file.schema_arrow.remove_metadata()

    def infer_types(self, rows: Sequence[dict[str, Any]]) -> None:
        """Widen the types until they hold these rows too."""
        with self.reporting():
            inferred = self.library.Table.from_pylist(rows).schema
            known = [] if self.schema is None else [self.schema]
            self.schema = self.library.unify_schemas([*known, inferred], promote_options="permissive")

    def table(self, rows: Sequence[dict[str, Any]]) -> Any:
        """Rows as pyarrow has them."""
        with self.reporting():
            return self.library.Table.from_pylist(rows, schema=self.schema)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        try:
            yield
        except (self.library.ArrowException, ValueError, TypeError, OverflowError) as error:
            reason = f"the values of a column have no common type ({str(error)[:120]})"
            raise DataError(f"{self.path}: {reason}; write .jsonl") from None


class ParquetWriter:
    """Rows to a .parquet stream, a row group for each chunk."""

    def __init__(self, stream: BinaryIO, columns: ParquetColumns):
        self.stream, self.columns = stream, columns
        self.writer: Any = None

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        table = self.columns.table(rows)
        if self.writer is None:
            self._begin()
        with self.columns.reporting():
            self.writer.write_table(table)

    def finish(self) -> None:
        if self.writer is None:
            self._begin()
        self.writer.close()

    def _begin(self) -> None:
        parquet: Any = import_module("pyarrow.parquet")
        schema = self.columns.schema or self.columns.library.schema([])
        self.writer = parquet.ParquetWriter(self.stream, schema)
