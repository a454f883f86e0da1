"""A .npy file that grows row by row: its header is written first and patched when the number of rows is known."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from kinfolk.errors import FolderError
from kinfolk.files import require_file


class NpyWriter:
    """Rows of one shape, appended to a fresh stream; `finish` makes the file whole."""

    def __init__(self, stream: BinaryIO, row_shape: tuple[int, ...], dtype: str = "<f4"):
        self.stream, self.row_shape, self.dtype = stream, row_shape, dtype
        self.count = 0
        self._write_header()
        self._start = stream.tell()

    def append(self, rows: np.ndarray) -> None:
        """Add rows: (n, *row_shape)."""
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


def zero_rows(path: Path, rows: list[int]) -> None:
    """Write zeros over some rows of a file."""
    if rows:
        array = np.lib.format.open_memmap(path, mode="r+")
        array[rows] = 0
        array.flush()


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
