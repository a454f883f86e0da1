"""Every task that a family's heads offer is trained, saved, loaded and asked: two steps of a tiny model each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from relatives import ENCODERS, tiny_model

import kinfolk
from kinfolk.api.loaded import Encoder
from kinfolk.data.examples import Choice, Example, Question, Sentence
from kinfolk.models.family import Family
from kinfolk.tasks.task import saved_task
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer

TEXTS = ("red salt", "blue sand and more", "salt", "grey sand", "green salt here", "sand")
CONTEXT = "the salt is red and the sand is blue"
PRETRAINING = {"masked_lm", "next_sentence", "sentence_order", "next_token"}  # heads that `finetune` does not train


class Asked(NamedTuple):
    """A task's head, its examples, what a trained model's answers must be, and what else `finetune` is told."""

    head: str
    examples: list[Any]
    check: Callable[[Any], None]
    options: dict[str, Any]


def labelled(*labels: Any) -> list[Example]:
    """Salty texts have the first label, sandy ones the second."""
    return [Example(text, None, labels["sand" in text], f"row {text}") for text in TEXTS]


def check_classes(model: Any) -> None:
    said = model.classify("red salt")
    assert said.label in ("salty", "sandy")
    assert sum(said.probabilities.values()) == pytest.approx(1)


def check_labels(model: Any) -> None:
    said = model.classify("red salt")
    assert list(said.probabilities) == ["dry", "salty", "sandy"]
    assert set(said.labels) <= said.probabilities.keys()


def check_number(model: Any) -> None:
    assert 4000 < model.classify("red salt").value < 6000


def check_tags(model: Any) -> None:
    assert [word.tag in ("O", "B-FOOD") for word in model.tag("red salt").words] == [True, True]


def check_answer(model: Any) -> None:
    (best, *_) = model.answer("what is red ?", CONTEXT)
    assert best.text == CONTEXT[best.start : best.end]


def check_choice(model: Any) -> None:
    said = model.choose("red", ["salt", "blue sand", "grey"])
    assert said.option == ("salt", "blue sand", "grey")[said.index]
    assert sum(said.probabilities) == pytest.approx(1)


TAGGED = [
    Sentence(tuple(text.split()), tuple("B-FOOD" if word == "salt" else "O" for word in text.split()), None, text)
    for text in TEXTS
]
QUESTIONS = [
    Question(f"{number}", f"what is {colour} ?", CONTEXT, ((thing, CONTEXT.index(thing)),), f"row {number}")
    for number, (colour, thing) in enumerate([("red", "the salt"), ("blue", "the sand")] * 3)
]
CHOICES = [Choice("red", ("salt", "blue sand", "grey"), number % 3, f"row {number}") for number in range(6)]
TASKS = {
    "classify": Asked("classify", labelled("salty", "sandy"), check_classes, {}),
    "multilabel": Asked("classify", labelled(("salty", "dry"), ("sandy",)), check_labels, {}),
    "regress": Asked("classify", labelled(5200.0, 4800.0), check_number, {}),
    "tag": Asked("tag", TAGGED, check_tags, {}),
    "tag with a CRF": Asked("tag_crf", TAGGED, check_tags, {"crf": True}),
    "answer": Asked("span", QUESTIONS, check_answer, {}),
    "choose": Asked("choose", CHOICES, check_choice, {}),
}
OFFERED = [(family, task) for family in ENCODERS for task, asked in TASKS.items() if asked.head in family.heads]


@cache
def words() -> Tokenizer:
    return train_tokenizer("words", [*TEXTS, CONTEXT, "what ?"], 40, at_most=True)


def test_every_head_belongs_to_a_task_or_to_pretraining() -> None:
    trained = {asked.head for asked in TASKS.values()}
    assert {name for family in ENCODERS for name in family.heads} == trained | PRETRAINING


@pytest.mark.parametrize(("family", "task"), OFFERED, ids=lambda value: getattr(value, "name", value))
def test_a_task_is_trained_saved_loaded_and_asked(family: Family, task: str, tmp_path: Path) -> None:
    asked, start = TASKS[task], Encoder(tiny_model(family, []), words())
    before = {name: weight.clone() for name, weight in start.model.body.state_dict().items()}
    told = {"task": task.split()[0], "steps": 2, "batch_size": 3, "evaluations": 1, "learning_rate": 1e-3}
    run = kinfolk.finetune(
        start, asked.examples, tmp_path / "run", asked.examples, **told | asked.options, device="cpu", report=False
    )
    model = kinfolk.load_encoder(tmp_path / "run", device="cpu")
    assert list(model.model.heads) == [asked.head]
    after = model.model.body.state_dict()
    assert all(weight.equal(start.model.body.state_dict()[name]) for name, weight in before.items())
    assert not all(weight.equal(after[name]) for name, weight in before.items())
    saved = saved_task(model)
    with torch.inference_mode():
        found = saved.evaluate(model.model, saved.dataset(model.tokenizer, asked.examples, model.context))
    assert found.metrics == pytest.approx(run.metrics)
    asked.check(model)
