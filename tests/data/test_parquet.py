"""Parquet files are tables too, where pyarrow is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_files import written

from kinfolk.data.examples import Example
from kinfolk.data.tables import read_examples
from kinfolk.errors import DataError


def test_without_pyarrow_a_parquet_file_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="pyarrow"):
        read_examples(written(tmp_path, "a.parquet", "PAR1"))


def test_parquet_rows_are_examples_too(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"sentence": ["a", "b", None], "label": [0, None, 1]}), path)
    table = read_examples(path, max_bad_rows=2)
    assert table.examples == [Example("a", None, "0", f"{path}:1")]
    assert [reason.split(": ")[0] for reason in table.reasons] == [f"{path}:2", f"{path}:3"]
    with pytest.raises(DataError, match="as parquet"):
        read_examples(written(tmp_path, "b.parquet", path.read_bytes()[:-20]))
