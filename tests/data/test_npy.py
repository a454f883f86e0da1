"""A .npy file that grew row by row is the one numpy writes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from kinfolk.data.writers import NpyWriter, open_npy
from kinfolk.errors import FolderError


def test_appended_rows_are_read_as_one_array() -> None:
    whole = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    stream = io.BytesIO()
    writer = NpyWriter(stream, (3,))
    for part in (whole[:4], whole[4:4], whole[4:].astype(np.float64)):
        writer.append(part)
    writer.finish()
    assert (np.load(io.BytesIO(stream.getvalue())) == whole).all()
    expected = io.BytesIO()
    np.save(expected, whole)
    assert stream.getvalue() == expected.getvalue()


def test_no_rows_are_an_array_too() -> None:
    stream = io.BytesIO()
    NpyWriter(stream, (3,)).finish()
    assert np.load(io.BytesIO(stream.getvalue())).shape == (0, 3)


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00", b"PK\x03\x04"], ids=str)
def test_a_file_that_is_no_array_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(FolderError):
        open_npy(tmp_path / "a.npy", (2, 3))


def test_another_shape_kind_or_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for other in (np.zeros((2, 4), np.float32), np.zeros((2, 3)), np.array([[None] * 3] * 2)):
        np.save(path, other)
        with pytest.raises(FolderError):
            open_npy(path, (2, 3))
    np.save(path, np.zeros((2, 3), np.float32))
    assert open_npy(path, (2, 3)).shape == (2, 3)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FolderError, match="not a whole"):
        open_npy(path, (2, 3))
