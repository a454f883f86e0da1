"""Examples that a program hands over are checked like those of a file, before anything is computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import kinfolk
from kinfolk.data.examples import Choice, Example, Question, Sentence
from kinfolk.errors import InputError
from kinfolk.text.tokenizer import Tokenizer


def example(label: Any, number: int = 0) -> Example:
    return Example(f"text {number}", None, label, f"row {number}")


@pytest.mark.parametrize(
    ("task", "rows", "reason"),
    [
        ("classify", [example("a"), example(None, 1)], "row 1: .*'None' is not a name"),
        (
            "classify",
            [("text", "a", "b", "c")],
            "example 0 .*tuple; .*classify .*Examples",
        ),
        ("classify", [("a text", "a label"), ("another", 3.5)], "example 1: .*'3.5'"),
        ("tag", [example("a")], "example 0 .*Example; .*tag .*Sentences"),
        ("regress", [example(1.0), example(float("nan"), 1)], "row 1: .*'nan'"),
        ("regress", [example(1.0), example(None, 1)], "row 1: .*'None' .*number"),
        ("regress", [example(1e300), example(-1e300, 1)], "too large"),
        ("regress", [example(2.0), example(2.0, 1)], "are 2; "),
        ("multilabel", [example("a")], "row 0: .*'a' .*tuple"),
        ("multilabel", [example(()), example((), 1)], "no example has a label"),
    ],
)
def test_what_cannot_be_learned_is_reported_with_its_row(
    task: str, rows: list[Any], reason: str, tiny_bert: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=reason):
        kinfolk.finetune(tiny_bert, rows, tmp_path / "run", dev=[], task=task, device="cpu")
    assert not (tmp_path / "run").exists()


def test_without_a_dev_set_the_last_weights_are_kept_however_often_one_evaluates(
    tiny_bert: Path, tmp_path: Path
) -> None:
    train = [example("ab"[index % 2], index) for index in range(12)]
    results = []
    for name, options in (("once", {}), ("often", {"evaluate_every": 1})):
        kinfolk.finetune(
            tiny_bert, train, tmp_path / name, dev=[], device="cpu", steps=4, learning_rate=1e-2, **options
        )
        results.append(kinfolk.load(tmp_path / name, device="cpu").classify("text 3").probability)  # type: ignore[union-attr]
    assert results[0] == results[1]


def test_a_short_run_has_something_to_average(tiny_bert: Path, tmp_path: Path) -> None:
    train = [example("ab"[index % 2], index) for index in range(12)]
    options: dict[str, Any] = {"dev": train, "device": "cpu", "steps": 3, "learning_rate": 1e-2, "batch_size": 4}
    kinfolk.finetune(tiny_bert, train, tmp_path / "run", weight_averaging=0.1, **options)
    assert np.isfinite(kinfolk.load(tmp_path / "run", device="cpu").embed("text 1")).all()


@pytest.mark.parametrize("pair", [(), ("and a second",)])
def test_tuples_stand_for_examples(pair: tuple[str, ...], tiny_bert: Path, tmp_path: Path) -> None:
    rows = [(f"text {index}", *pair, "ab"[index % 2]) for index in range(12)]
    kinfolk.finetune(tiny_bert, rows, tmp_path / "run", dev=rows, device="cpu", steps=2)
    result = kinfolk.load(tmp_path / "run", device="cpu")
    assert result.classify(("text 3", *pair) if pair else "text 3").label in "ab"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("labels", "task", "expected"),
    [
        ([1, 0, 1, 0], "classify", ("0", "1")),
        ([np.int64(3), np.int64(4)] * 2, "classify", ("3", "4")),
        ([True, False] * 2, "classify", ("false", "true")),
        ([["a", "b"], ["a"], [], ["b"]], "multilabel", ("a", "b")),
    ],
    ids=str,
)
def test_labels_may_be_what_a_program_has(
    labels: list[Any], task: str, expected: tuple[str, ...], tiny_bert: Path, tmp_path: Path
) -> None:
    rows = [(f"text {index}", label) for index, label in enumerate(labels)]
    kinfolk.finetune(tiny_bert, rows, tmp_path / "run", dev=[], steps=1, device="cpu", report=False)
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert tuple(saved["id2label"].values()) == expected
    assert saved["problem_type"] == {"classify": "single_label_classification"}.get(task, "multi_label_classification")


def test_a_table_is_told_how_to_be_given(tiny_bert: Path, tmp_path: Path) -> None:
    table = pandas.DataFrame({"text": ["a", "b"], "label": [0, 1]})
    with pytest.raises(InputError, match="train is a table"):
        kinfolk.finetune(tiny_bert, table, tmp_path / "run", device="cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "train"),
    [
        ("classify", [example("ab"[index % 2], index) for index in range(12)]),
        ("tag", [Sentence((f"word{index}", "end"), ("B-X", "O"), None, "") for index in range(12)]),
        ("answer", [Question("", "what?", f"a river {index}", (("river", 2),), "") for index in range(12)]),
        ("choose", [Choice(f"river {index}", ("bird", "stone"), 0, "") for index in range(12)]),
    ],
)
def test_texts_are_tokenized_once(
    task: str, train: list[Any], tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_many, seen = Tokenizer.encode_many, []

    def spy(self: Tokenizer, texts: Any, *options: Any) -> Any:
        seen.extend(texts)
        return encode_many(self, texts, *options)

    monkeypatch.setattr(Tokenizer, "encode_many", spy)
    trained = kinfolk.finetune(
        tiny_bert, train, tmp_path / "run", dev=[], task=task, steps=1, device="cpu", report=False
    )
    assert len(seen) == len(set(seen)) == len(train) * (2 if task == "choose" else 1)
    assert trained.data.tokens.longest > 2
