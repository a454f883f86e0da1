"""Rows of a .parquet file, by pyarrow where it is installed. A row's number, from 1, takes the place of a line."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from kinfolk.data.readers import Problems
from kinfolk.errors import DataError
from kinfolk.files import reading, require_file

ROWS_AT_ONCE = 4096


def parquet_rows(path: Path, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with its number; a file that pyarrow refuses is an error, as no row of it can be judged."""
    require_file(path)
    try:
        library: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(f"{path}: reading .parquet needs pyarrow; run: pip install pyarrow, or convert it") from None
    number = 0
    try:
        with reading(path), parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                problems.stop(1, "a column stands there twice")
            for batch in file.iter_batches(ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (library.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path}: cannot be read as parquet after row {number} ({str(error)[:200]})") from None
