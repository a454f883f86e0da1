"""Arguments of the wrong kind are reported in one line, by every verb and before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import kinfolk
from kinfolk.api.finetune import finetune
from kinfolk.api.loaded import Encoder
from kinfolk.api.predict_file import predict_file
from kinfolk.api.search import build_index
from kinfolk.data.examples import Example
from kinfolk.errors import InputError
from kinfolk.models.family import with_new_head
from kinfolk.tasks.task import label_tables


@pytest.fixture(scope="module")
def headed(tiny_bert: Path) -> Callable[[str], Encoder]:
    """The tiny model with an untrained head for two labels."""
    base = kinfolk.load(tiny_bert, device="cpu")

    def made(head: str) -> Encoder:
        model, _ = with_new_head(base.model, head, 1 if head == "choose" else 2)
        return replace(base, model=model.eval(), hf_config=label_tables(["bad", "good"]))

    return made


@pytest.mark.parametrize("verb", ["embed", "classify", "answer", "choose", "tag"])
@pytest.mark.parametrize(
    ("inputs", "kind"),
    [(None, "a NoneType"), (5, "an int"), ({"text": "x"}, "a dict"), (b"x", "bytes"), (np.array("x"), "a ndarray")],
    ids=lambda value: str(value)[:12],
)
def test_what_is_no_collection_is_refused_by_every_verb(
    verb: str, inputs: Any, kind: str, headed: Callable[[str], Encoder]
) -> None:
    encoder = headed({"embed": "classify", "answer": "span"}.get(verb, verb))
    with pytest.raises(InputError, match=f"collection.*, found {kind}"):
        getattr(encoder, verb)(inputs)


def test_a_table_or_a_set_is_not_taken_for_its_names(headed: Callable[[str], Encoder], tmp_path: Path) -> None:
    table, encoder = pandas.DataFrame({"text": ["a", "b", "c"], "label": [0, 1, 0]}), headed("classify")
    for take in (encoder.embed, encoder.classify, lambda inputs: build_index(encoder, inputs, tmp_path / "index")):
        with pytest.raises(InputError, match="found a table"):
            take(table)
        with pytest.raises(InputError, match="found a set"):
            take({"a", "b"})
    assert encoder.embed(table["text"]).shape == (3, 32)
    assert encoder.embed({"a": 1, "b": 2}.keys()).shape == (2, 32)


def test_a_text_that_is_none_is_reported_with_its_row(headed: Callable[[str], Encoder], tmp_path: Path) -> None:
    encoder = headed("classify")
    for verb in (encoder.classify, encoder.embed):
        with pytest.raises(InputError, match=r"^text 2 .*NoneType"):
            verb(["a", "b", None])  # type: ignore[list-item]
        with pytest.raises(InputError, match=r"^text 1 .*tuple"):
            verb(["a", ("b", "c", "d")])  # type: ignore[list-item]
        with pytest.raises(InputError, match=r"^text 0 .*tuple"):
            verb(("a", 5))  # type: ignore[arg-type]


@pytest.mark.parametrize("top", ["3", 2.5, 0, True, None])
def test_top_is_a_whole_number(top: Any, headed: Callable[[str], Encoder], encoder: Encoder) -> None:
    reason = f"^top={top} "
    with pytest.raises(InputError, match=reason):
        headed("span").answer("When?", "It rained in May.", top=top)
    with pytest.raises(InputError, match=reason):
        encoder.fill("A [MASK].", top=top)
    assert len(headed("span").answer("When?", "It rained in May.", top=np.int64(2))) == 2


EXAMPLES = [Example(f"text {index}", None, "ab"[index % 2], f"row {index}") for index in range(12)]


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"train": 5}, "found an int"),
        ({"train": None}, "found a NoneType"),
        ({"train": {"a": "b"}}, "found a dict"),
        ({"dev": 5}, "dev "),
        ({"max_bad_rows": "3"}, "max_bad_rows=3"),
        ({"max_bad_rows": -1}, "max_bad_rows=-1"),
        ({"frozen": "linear", "seeds": "2"}, "seeds=2"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_finetune_refuses_arguments_of_other_kinds(named: dict[str, Any], reason: str, tmp_path: Path) -> None:
    usual = {"model": tmp_path / "no model is opened", "train": EXAMPLES, "output": tmp_path / "run"}
    with pytest.raises(InputError) as caught:
        finetune(**(usual | named))
    assert reason in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_examples_may_come_from_a_generator(tiny_bert: Path, tmp_path: Path) -> None:
    trained = finetune(tiny_bert, iter(EXAMPLES), tmp_path / "run", dev=iter(EXAMPLES[:4]), device="cpu", steps=1)  # type: ignore[arg-type]
    assert (trained.data.examples, trained.data.dev_examples) == (12, 4)


def test_predictions_want_a_whole_number_of_bad_rows_too(headed: Callable[[str], Encoder], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(InputError, match=r"max_bad_rows=2\.5"):
        predict_file(headed("classify"), tmp_path / "in.txt", tmp_path / "out.csv", max_bad_rows=2.5)  # type: ignore[arg-type]
