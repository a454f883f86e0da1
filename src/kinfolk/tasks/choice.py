"""Multiple choice: every option is read beside the context, and the one with the highest score is chosen.

A pair that is longer than the model is read in windows; its score is their mean, weighted by the tokens that belong to
each. Where both texts are long the shorter one is cut, as windows.py says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinfolk.checkpoints.text_model import TextModel
from kinfolk.data.batching import chunks
from kinfolk.data.examples import Choice
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.objectives.supervised import ChoiceBatch, Choose, Options
from kinfolk.tasks.task import MAX_MISTAKES, EvalResult, Mistake, TaskOptions, label_tables
from kinfolk.tasks.windows import DEFAULT_WINDOWS, CutCount, TextWindow, Windows, batch_scores, split_texts
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.training.logistic import softmax

CHUNK_CHOICES = 512


@dataclass(frozen=True)
class Chosen:
    """The option that fits best, its number (from 0) and probability; and the probabilities of all options."""

    option: str
    number: int
    probability: float
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class ChoiceDataset:
    """Choices as the model reads them."""

    samples: list[Sample]
    choices: Sequence[Choice]


@dataclass(frozen=True)
class ChoiceTask:
    """One of several options, however many an example has."""

    windows: Windows = DEFAULT_WINDOWS

    kind = "choose"
    head = "choose"
    labels = ("score",)

    @classmethod
    def of(cls, options: TaskOptions) -> ChoiceTask:
        """The task that choices pose."""
        options.refuse("choose", "class_weights", "crf")
        return cls(options.windows)

    def objective(self, model: Model) -> Objective:
        """The loss on a model of the family."""
        return Choose(model.config.segments)

    def unseen_labels(self, examples: Sequence[Choice]) -> list[str]:
        """Every example brings its own options."""
        return []

    def dataset(self, tokenizer: Tokenizer, examples: Sequence[Choice], size: int) -> ChoiceDataset:
        """An item for each choice, with all its options; cuts are told by a CutWarning."""
        size, stride, cut = (
            self.windows.size(size, tokenizer.special_tokens_count(True)),
            self.windows.stride,
            CutCount(),
        )
        items = [_item(tokenizer, number, choice, size, stride, cut) for number, choice in enumerate(examples)]
        cut.report()
        return ChoiceDataset(items, examples)

    def chosen(self, model: Model, dataset: ChoiceDataset) -> list[Chosen]:
        """What the model takes of each choice."""
        scores: list[np.ndarray] = [np.empty(0)] * len(dataset.samples)
        for batch, prepared, found in batch_scores(model, self.objective(model), dataset.samples):
            assert isinstance(prepared, ChoiceBatch)
            for number, row in zip(batch, prepared.choices.split(found), strict=True):
                scores[number] = row.numpy()
        return [_chosen(choice, row) for choice, row in zip(dataset.choices, scores, strict=True)]

    def evaluate(self, model: Model, dataset: ChoiceDataset) -> EvalResult:
        """The share of right choices."""
        found = self.chosen(model, dataset)
        wrong = [
            Mistake(choice.location, choice.context, choice.options[choice.answer], taken.option, taken.probability)
            for taken, choice in zip(found, dataset.choices, strict=True)
            if choice.answer is not None and taken.number != choice.answer
        ]
        mistakes = sorted(wrong, key=lambda mistake: -(mistake.probability or 0.0))[:MAX_MISTAKES]
        return EvalResult({"accuracy": 1 - len(wrong) / len(found)}, mistakes=mistakes)

    def calibrate(self, model: Model, dataset: ChoiceDataset) -> ChoiceTask:
        """Nothing is tuned."""
        return self

    def columns(self, chosen: Chosen) -> dict[str, Any]:
        """What a table gets beside a context and its options."""
        return {"choice": chosen.number, "option": chosen.option, "probability": round(chosen.probability, 6)}

    def to_hf(self) -> dict[str, Any]:
        """What config.json says of the task."""
        return label_tables(self.labels) | self.windows.to_hf()

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, Any]) -> ChoiceTask:
        """The task of a saved model."""
        return cls(Windows.from_hf(hf_config))


def _item(tokenizer: Tokenizer, number: int, choice: Choice, size: int, stride: int | None, cut: CutCount) -> Sample:
    pairs = [(choice.context, option) for option in choice.options]
    found = split_texts(
        tokenizer,
        pairs,
        size,
        "window",
        cut,
        lambda option: f"{choice.location}: option {option}",
        stride,
        shorten=True,
    )
    totals = np.bincount([part.text for part in found], [part.weight for part in found])
    target = Options(
        tuple(len(part.encoding) for part in found),
        tuple(part.text for part in found),
        tuple(part.weight / float(totals[part.text]) for part in found),
        choice.answer or 0,
    )
    return Sample(_joined(found, "ids"), _joined(found, "segments"), target, number)


def _joined(found: Sequence[TextWindow], name: str) -> list[int]:
    return [number for part in found for number in getattr(part.encoding, name)]


def _chosen(choice: Choice, scores: np.ndarray) -> Chosen:
    shares = softmax(scores[None].astype(np.float64))[0]
    best = int(shares.argmax())
    return Chosen(choice.options[best], best, float(shares[best]), tuple(shares.tolist()))


def choice_task(text_model: TextModel) -> ChoiceTask:
    """The task that a loaded model was trained for."""
    if "choose" not in text_model.model.heads:
        raise MissingHeadError(
            "this checkpoint has no multiple-choice head; train one with `kinfolk finetune --task choose`"
        )
    return ChoiceTask.from_hf(text_model.hf_config)


def choose(text_model: TextModel, choices: Iterable[Choice]) -> Iterator[Chosen]:
    """The most probable option of each choice; their answers are not looked at. Streamed: memory stays flat."""
    task = choice_task(text_model)
    for chunk in chunks(choices, CHUNK_CHOICES):
        yield from task.chosen(text_model.model, task.dataset(text_model.tokenizer, chunk, text_model.context))


def make_choice(pair: Any, index: int) -> Choice:
    """A context with two or more options, as a user gave it; `index` counts from 1."""
    if isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[1], tuple | list):
        context, options = pair[0], tuple(pair[1])
        if len(options) > 1 and all(isinstance(text, str) for text in (context, *options)):
            return Choice(context, options, None, f"choice {index}")
    raise InputError(f"choice {index}: expected a context and two or more options, found {str(pair)[:60]!r}")
