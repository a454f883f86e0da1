"""Multiple choice: every option is read beside the context, and the one with the highest score is chosen.

A pair that is longer than the model is read in windows; its score is their mean, weighted by the tokens that belong to
each. Where both texts are long the shorter one is cut, as windows.py says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinfolk.data.examples import Choice
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.objectives.supervised import ChoiceBatch, Choose, Options
from kinfolk.tasks.scoring import scored_batches
from kinfolk.tasks.task import WHOLE, EvalResult, Mistake, TaskOptions, Windows, label_tables
from kinfolk.tasks.windows import CutCount, Piece, pieces
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.training.logistic import softmax

SHOWN_MISTAKES = 10


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

    items: list[Sample]
    choices: Sequence[Choice]


@dataclass(frozen=True)
class ChoiceTask:
    """One of several options, however many an example has."""

    windows: Windows = WHOLE

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

    def unseen(self, examples: Sequence[Choice]) -> list[str]:
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
        scores: list[np.ndarray] = [np.empty(0)] * len(dataset.items)
        for batch, prepared, found in scored_batches(model, self.objective(model), dataset.items):
            assert isinstance(prepared, ChoiceBatch)
            for number, row in zip(batch, prepared.choices.split(found), strict=True):
                scores[number] = row.numpy()
        return [_chosen(choice, row) for choice, row in zip(dataset.choices, scores, strict=True)]

    def judge(self, model: Model, dataset: ChoiceDataset) -> EvalResult:
        """The share of right choices."""
        found = self.chosen(model, dataset)
        wrong = [
            Mistake(choice.location, choice.context, choice.options[choice.answer], taken.option, taken.probability)
            for taken, choice in zip(found, dataset.choices, strict=True)
            if choice.answer is not None and taken.number != choice.answer
        ]
        mistakes = sorted(wrong, key=lambda mistake: -(mistake.probability or 0.0))[:SHOWN_MISTAKES]
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
    def from_hf(cls, public: Mapping[str, Any]) -> ChoiceTask:
        """The task of a saved model."""
        return cls(Windows.from_hf(public))


def _item(tokenizer: Tokenizer, number: int, choice: Choice, size: int, stride: int | None, cut: CutCount) -> Sample:
    pairs = [(choice.context, option) for option in choice.options]
    found = pieces(
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


def _joined(found: Sequence[Piece], name: str) -> list[int]:
    return [number for part in found for number in getattr(part.encoding, name)]


def _chosen(choice: Choice, scores: np.ndarray) -> Chosen:
    shares = softmax(scores[None].astype(np.float64))[0]
    best = int(shares.argmax())
    return Chosen(choice.options[best], best, float(shares[best]), tuple(shares.tolist()))
