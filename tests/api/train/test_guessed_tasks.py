"""The task that the form of a table poses, and where a run may not begin."""

from __future__ import annotations

from pathlib import Path

import pytest

import kinfolk
from kinfolk.errors import FolderError
from kinfolk.tasks.task import Columns, guess_task, read_for


@pytest.mark.parametrize(
    ("name", "content", "task"),
    [
        ("a.csv", "text,labels\nx,a|b\ny,a\n", "multilabel"),
        ("a.csv", "text,labels\nx,a\ny,b\n", "classify"),
        ("a.csv", "text,label\nx,a|b\ny,a\n", "classify"),
        ("a.csv", 'text,label\nx,"[""a"", ""b""]"\ny,[]\n', "multilabel"),
        ("a.csv", "text,notes\nx,a|b\n", "classify"),
        ("a.tsv", "text\tlabels\nx\t[]\n", "multilabel"),
        ("a.jsonl", '{"text": "x", "label": "a"}\n{"text": "x", "label": ["a"]}\n', "multilabel"),
        ("a.jsonl", '{"context": "x", "options": ["a", "b"], "label": 0}\n', "choose"),
    ],
)
def test_the_rows_tell_the_task(name: str, content: str, task: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert guess_task(tmp_path / name, Columns()) == task


def test_lists_of_a_parquet_file_are_labels(tmp_path: Path) -> None:
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(arrow.table({"text": ["x", "y"], "label": [["a", "b"], []]}), tmp_path / "a.parquet")
    assert guess_task(tmp_path / "a.parquet", Columns()) == "multilabel"
    result = read_for("multilabel", tmp_path / "a.parquet", Columns()).examples
    assert [example.label for example in result] == [("a", "b"), ()]


def test_bad_rows_do_not_stop_a_guess(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,labels\n" + "x\n" * 50 + "x,a|b\n")
    assert guess_task(tmp_path / "a.csv", Columns()) == "multilabel"


def test_semicolons_are_read_without_a_header_line_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("well, well, well;good\nbad;bad\n")
    (tmp_path / "b.csv").write_text("bad; really bad,bad\ngood,good\n")
    named = Columns(header=["text", "label"])
    texts = [
        [example.text for example in read_for("classify", tmp_path / name, named).examples]
        for name in ("a.csv", "b.csv")
    ]
    assert texts == [["well, well, well", "bad"], ["bad; really bad", "good"]]


def test_the_folder_of_a_model_is_no_place_for_a_run(tiny_bert: Path) -> None:
    before = sorted(tiny_bert.iterdir())
    with pytest.raises(FolderError, match="folder of a model"):
        kinfolk.finetune(tiny_bert, [("good", "a"), ("bad", "b")], tiny_bert, steps=1)
    assert sorted(tiny_bert.iterdir()) == before
