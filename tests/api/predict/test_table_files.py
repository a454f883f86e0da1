"""What a model says stands beside the user's columns, in columns of its own: never in the place of one."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kinfolk
from kinfolk.api.loaded import Encoder, load
from kinfolk.api.predict_file import predict_file, text_reader, write_table
from kinfolk.errors import DataError, InputError
from kinfolk.models.family import with_new_head
from kinfolk.tasks.task import label_tables
from support.tiny import write_folder

Folders = Callable[[str], Encoder]


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """A random model with the head that an architecture's name ends in."""
    return lambda suffix: load(write_folder(tmp_path_factory.mktemp("models") / suffix, suffix=suffix), device="cpu")


@pytest.fixture(scope="module")
def classifiers(tiny_bert: Path) -> list[Encoder]:
    """Three classifiers with labels of their own."""
    base = kinfolk.load(tiny_bert, device="cpu")
    model, _ = with_new_head(base.model, "classify", 2)
    public = {"problem_type": "single_label_classification"}
    named = [label_tables([f"{name} bad", f"{name} good"]) for name in ("first", "second", "third")]
    return [replace(base, model=model.eval(), hf_config=public | labels) for labels in named]


def rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_file_can_be_evaluated_by_one_model_after_the_other(
    kind: str, classifiers: list[Encoder], tmp_path: Path
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    path = write_jsonl(tmp_path / "0.jsonl", [{"text": "water"}, {"text": "a stone"}])
    expected = rows_of(path)
    for classifier, prefix in zip(classifiers, ("", "predicted_", "predicted_2_"), strict=True):
        before, path = path, tmp_path / f"{prefix}out.{kind}"
        predict_file(classifier, before, path)
        for row in expected:
            said = classifier.classify(row["text"])
            row |= {f"{prefix}label": said.label, f"{prefix}probability": round(said.probability or 0.0, 6)}
        assert rows_of(path) == expected
        assert [list(row) for row in rows_of(path)] == [list(row) for row in expected]


def test_all_rows_have_the_same_new_columns_though_only_a_later_one_has_a_label(
    classifiers: list[Encoder], tmp_path: Path
) -> None:
    rows = [{"text": "water"}, {"text": "a stone", "label": "mine"}]
    predict_file(classifiers[0], write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")
    first, second = rows_of(tmp_path / "out.jsonl")
    assert list(first) == ["text", "predicted_label", "predicted_probability"]
    assert list(second) == ["text", "label", "predicted_label", "predicted_probability"]
    assert second["label"] == "mine"


def test_answers_may_begin_with_chunks_that_have_none(untrained: Folders, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"question": "When?", "context": ""}] * 513 + [{"question": "When?", "context": "It rained in May."}]
    path = write_jsonl(tmp_path / "in.jsonl", rows)
    assert predict_file(untrained("ForQuestionAnswering"), path, tmp_path / "out.parquet").rows == 514
    actual = rows_of(tmp_path / "out.parquet")
    assert list(actual[0]) == ["question", "context", "answer", "start", "end", "probability"]
    assert [(row["start"], row["end"]) for row in actual[:-1]] == [(None, None)] * 513
    assert actual[-1]["answer"] == rows[-1]["context"][actual[-1]["start"] : actual[-1]["end"]]


def test_a_failure_after_the_first_rows_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    unheard: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unheard.append)

    def predict(batch: Sequence[tuple[Any, str]]) -> Iterator[dict[str, Any]]:
        if batch[0][0] != "a":
            raise InputError("not this one")
        yield {"length": 1}

    (tmp_path / "in.txt").write_text("a\nb\n")
    source = tmp_path / "in.txt"
    with pytest.raises(InputError, match="not this one"):
        write_table(source, text_reader(source), tmp_path / "out.parquet", predict, 1, lambda done: None)
    gc.collect()
    assert unheard == []
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_choices_are_written_chunk_by_chunk(untrained: Folders, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    asked = {"context": "It rains.", "options": ["Run.", "Swim."]}
    path = write_jsonl(tmp_path / "in.jsonl", [asked | {"note": None}] * 513 + [asked | {"note": 5}] * 2)
    encoder, output, done = untrained("ForMultipleChoice"), tmp_path / "out.parquet", []
    assert (predict_file(encoder, path, output, report=done.append).rows, done) == (515, [512, 3])
    assert [row["note"] for row in rows_of(output)] == [None] * 513 + [5] * 2
    (said,) = encoder.choose([(asked["context"], asked["options"])])
    assert {(row["choice"], row["option"]) for row in rows_of(output)} == {(said.index, said.option)}


def test_a_bad_choice_is_reported_before_anything_is_computed(untrained: Folders, tmp_path: Path) -> None:
    rows = [{"context": "It rains.", "options": ["Run.", "Swim."]}, {"context": "It rains.", "options": ["Run."]}]
    path, done = write_jsonl(tmp_path / "in.jsonl", rows), []
    encoder = untrained("ForMultipleChoice")
    with pytest.raises(DataError, match=r"in\.jsonl:2: .*options"):
        predict_file(encoder, path, tmp_path / "out.jsonl", report=done.append)
    assert done == []
    assert not (tmp_path / "out.jsonl").exists()
