"""What a text-level task is: label names, targets, objective, metrics, and what its model says of new texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from kinfolk.checkpoints.text_model import TextModel
from kinfolk.data.batching import chunks
from kinfolk.data.examples import Example
from kinfolk.errors import ConfigError, InputError, MissingHeadError, check_choice, check_number, shorten_list, warn
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.objectives.supervised import Classify, MultiLabel, Regress
from kinfolk.tasks.task import MAX_MISTAKES, EvalResult, Mistake, TaskOptions, label_names, label_tables
from kinfolk.tasks.windows import (
    DEFAULT_WINDOWS,
    CutCount,
    Location,
    TextSamples,
    Windows,
    check_text,
    score_samples,
    text_samples,
)
from kinfolk.text.tokenizer import Text, Tokenizer
from kinfolk.training.logistic import probabilities, softmax

CHUNK_TEXTS = 2048
KINDS = ("classify", "multilabel", "regress")
PROBLEM_TYPES = {  # ours: the public name in config.json
    "classify": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regress": "regression",
}


class FormWarning(UserWarning):
    """Pairs of texts for a model that learned from single ones, or the other way round."""


@dataclass(frozen=True)
class Prediction:
    """What the model says of one text: a label with its probability, labels, or a value."""

    label: str | None = None
    probability: float | None = None
    labels: tuple[str, ...] | None = None
    value: float | None = None
    probabilities: Mapping[str, float] | None = None


@dataclass(frozen=True)
class TextDataset:
    """Texts or pairs as the model reads them, with their targets."""

    data: TextSamples
    targets: list[Any]
    examples: Sequence[Example]

    @property
    def samples(self) -> list[Sample]:
        return self.data.samples


@dataclass(frozen=True)
class TextTask:
    """Classes, labels or numbers for whole texts and pairs."""

    kind: str
    labels: tuple[str, ...]
    windows: Windows = DEFAULT_WINDOWS
    weights: tuple[float, ...] | None = None
    thresholds: tuple[float, ...] | None = None  # of multilabel: the probability from which on a label is given
    middle: float = 0.0  # of regress: training sees numbers of mean 0 and deviation 1, whatever their own are
    spread: float = 1.0
    pairs: bool | None = None  # did training see pairs of texts? None where it saw both, or nobody knows

    head = "classify"

    @classmethod
    def of(cls, kind: str, examples: Sequence[Example], options: TaskOptions) -> TextTask:
        """The task that examples pose; labels in alphabetical (numbers: numerical) order."""
        check_choice("task", kind, KINDS)
        options.refuse(kind, "crf")
        forms = {example.pair is not None for example in examples}
        pairs = forms.pop() if len(forms) == 1 else None
        if kind == "regress":
            options.refuse(kind, "class_weights")
            numbers = np.array([example.label for example in examples], dtype=np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                middle, spread = float(numbers.mean()), float(numbers.std())
            if not math.isfinite(spread):
                raise InputError("the numbers are too large to be learned; give them in another unit")
            if not spread:
                raise InputError(f"all numbers in the training data are {numbers[0]:g}; nothing to learn")
            return cls(kind, ("value",), options.windows, middle=middle, spread=spread, pairs=pairs)
        counts = Counter(label for example in examples for label in _labels(example))
        names = tuple(sorted(counts, key=_label_order))
        if kind == "classify" and len(names) < 2:
            raise InputError(f"there is only one class in the training data ({shorten_list(names)}); nothing to learn")
        if not names:
            raise InputError("no example has a label; there is nothing to learn")
        weights = None
        if options.class_weights is not None:
            even = even_classes(counts)
            if kind == "multilabel":  # a label's yes weighs as much as its no
                even = {name: max(1, len(examples) - counts[name]) / counts[name] for name in names}
            weights = class_weight_list(options.class_weights, names, even)
        return cls(kind, names, options.windows, weights, pairs=pairs)

    def objective(self, model: Model) -> Objective:
        """The loss on a model of the family."""
        segments = model.config.segments
        if self.kind == "regress":
            return Regress(segments)
        if self.kind == "multilabel":
            return MultiLabel(segments, labels=len(self.labels), class_weights=self.weights)
        return Classify(segments, class_weights=self.weights)

    def targets(self, examples: Sequence[Example]) -> list[Any]:
        """Labels as numbers; those that training did not see have the number after the last, and are never found."""
        if self.kind == "regress":
            return [example.label for example in examples]
        numbers, unseen = {label: number for number, label in enumerate(self.labels)}, len(self.labels)
        found = [[numbers.get(label, unseen) for label in _labels(example)] for example in examples]
        return found if self.kind == "multilabel" else [number for (number,) in found]

    def unseen_labels(self, examples: Sequence[Example]) -> list[str]:
        """Labels of these examples that training did not see."""
        if self.kind == "regress":
            return []
        return sorted({label for example in examples for label in _labels(example)} - {*self.labels})

    def dataset(self, tokenizer: Tokenizer, examples: Sequence[Example], size: int) -> TextDataset:
        """Texts or pairs, long ones in windows that all have the label of their text; cuts are told by a CutWarning."""
        targets, cut = self.targets(examples), CutCount()
        learned = targets
        if self.kind == "regress":
            learned = [(number - self.middle) / self.spread for number in targets]
        elif self.kind == "multilabel":
            learned = [[number for number in numbers if number < len(self.labels)] for numbers in targets]
        size, stride = self.windows.size(size, tokenizer.special_tokens_count()), self.windows.stride
        where = [example.location for example in examples]
        self.warn_of_form(texts_of(examples), where, cut)
        data = text_samples(tokenizer, texts_of(examples), learned, size, stride, cut, where.__getitem__)
        cut.report()
        return TextDataset(data, targets, examples)

    def warn_of_form(self, texts: Sequence[Text], where: Sequence[str], cut: CutCount) -> None:
        """Warn of a single text for a model of pairs, or of a pair for one of single texts; once by `cut`."""
        if self.pairs is None or cut.warned_of_form:
            return
        other = [place for text, place in zip(texts, where, strict=True) if isinstance(text, tuple) != self.pairs]
        if other:
            cut.warned_of_form = True
            learned, given = ("pairs", "one text") if self.pairs else ("single texts", "a pair")
            warn(FormWarning(f"{other[0]}: {given}, but the model learned from {learned}"))

    def evaluate(self, model: Model, dataset: TextDataset) -> EvalResult:
        """Metrics, the confusion matrix of classes, and the most confident errors."""
        scores = score_samples(model, self.objective(model), dataset.data)
        found = self.metrics(scores, dataset.targets)
        if self.kind == "regress":
            return EvalResult(found, mistakes=self._worst_numbers(scores, dataset))
        if self.kind == "multilabel":
            return EvalResult(found, mistakes=self._worst_labels(scores, dataset))
        truth, guesses, sure = np.array(dataset.targets), scores.argmax(1), softmax(scores).max(1)
        confusion, known = np.zeros((len(self.labels), len(self.labels)), dtype=int), truth < len(self.labels)
        np.add.at(confusion, (truth[known], guesses[known]), 1)
        wrong = sorted(np.flatnonzero(guesses != truth).tolist(), key=lambda number: -sure[number])[:MAX_MISTAKES]
        listed = [
            _mistake(dataset.examples[number], self.labels[guesses[number]], float(sure[number])) for number in wrong
        ]
        return EvalResult(found, confusion.tolist(), listed)

    def _worst_numbers(self, scores: np.ndarray, dataset: TextDataset) -> list[Mistake]:
        """The numbers that are farthest from the truth."""
        guesses = scores[:, 0].astype(np.float64) * self.spread + self.middle
        apart = np.abs(guesses - np.array(dataset.targets, dtype=np.float64))
        worst = np.argsort(-apart, kind="stable")[:MAX_MISTAKES].tolist()
        return [_mistake(dataset.examples[number], f"{guesses[number]:.4g}", None) for number in worst]

    def _worst_labels(self, scores: np.ndarray, dataset: TextDataset) -> list[Mistake]:
        """The texts with a wrong or missing label of which the model was surest."""
        chances, truth = probabilities(scores), self.truth(dataset.targets)[:, : len(self.labels)]
        given = chances >= np.array(self.thresholds or (0.5,) * len(self.labels))
        sure = np.where(given != truth, np.where(given, chances, 1 - chances), 0.0).max(1)
        worst = np.argsort(-sure, kind="stable")[:MAX_MISTAKES].tolist()
        return [
            _mistake(dataset.examples[number], self._joined(given[number]), float(sure[number]))
            for number in worst
            if sure[number] > 0
        ]

    def _joined(self, given: np.ndarray) -> str:
        return " | ".join(label for label, has in zip(self.labels, given, strict=True) if has) or "none"

    def metrics(self, scores: np.ndarray, targets: Sequence[Any]) -> dict[str, float]:
        """All metrics; the first decides which checkpoint is best."""
        from kinfolk.training import metrics  # only training and evaluation need scikit-learn

        if self.kind == "regress":
            numbers = scores.astype(np.float64) * self.spread + self.middle
            return metrics.regression(numbers, np.array(targets, dtype=np.float64))
        if self.kind == "multilabel":
            truth, count = self.truth(targets), len(self.labels)
            tuned = metrics.best_thresholds(scores, truth[:, :count]) if self.thresholds is None else self.thresholds
            never = truth.shape[1] - count  # a column of labels that training did not see, or none
            padded = np.pad(scores, ((0, 0), (0, never)), constant_values=-np.inf)
            return metrics.multilabel(padded, truth, np.array([*tuned, *[1.0] * never]))
        return metrics.classification(scores, np.array(targets))

    def calibrate(self, model: Model, dataset: TextDataset) -> TextTask:
        """Thresholds of labels are tuned on the dev set and kept with the model; the scale of numbers goes into it."""
        if self.kind == "regress":
            self._scale_back(model)
            return replace(self, middle=0.0, spread=1.0)
        if self.kind != "multilabel" or not dataset.samples:
            return self
        from kinfolk.training.metrics import best_thresholds

        scores = score_samples(model, self.objective(model), dataset.data)
        chosen = best_thresholds(scores, self.truth(dataset.targets)[:, : len(self.labels)])
        return replace(self, thresholds=tuple(float(limit) for limit in chosen))

    def _scale_back(self, model: Model) -> None:
        """The last layer takes the scale in, so that the model speaks in the user's own units."""
        last: nn.Linear = model.heads["classify"].output  # type: ignore[assignment]
        with torch.no_grad():
            last.weight.mul_(self.spread)
            last.bias.mul_(self.spread).add_(self.middle)

    def truth(self, targets: Sequence[Any]) -> np.ndarray:
        """Lists of label numbers as a table of zeros and ones; a column more where some were not seen in training."""
        table = np.zeros((len(targets), len(self.labels) + 1), dtype=bool)
        for row, numbers in enumerate(targets):
            table[row, numbers] = True
        return table if table[:, -1].any() else table[:, :-1]

    def predictions(self, scores: np.ndarray) -> list[Prediction]:
        """Scores in the user's words."""
        if self.kind == "regress":
            return [Prediction(value=float(row[0])) for row in scores]
        if self.kind == "classify":
            return [self._classified(row) for row in softmax(scores)]
        limits = self.thresholds or (0.5,) * len(self.labels)
        return [self._labelled(row, limits) for row in probabilities(scores)]

    def _classified(self, chances: np.ndarray) -> Prediction:
        best = int(chances.argmax())
        return Prediction(self.labels[best], float(chances[best]), probabilities=self._named(chances))

    def _labelled(self, chances: np.ndarray, limits: Sequence[float]) -> Prediction:
        given = tuple(
            label for label, chance, limit in zip(self.labels, chances, limits, strict=True) if chance >= limit
        )
        return Prediction(labels=given, probabilities=self._named(chances))

    def _named(self, chances: np.ndarray) -> dict[str, float]:
        return {label: float(chance) for label, chance in zip(self.labels, chances, strict=True)}

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        """What a table gets beside a text."""
        if prediction.value is not None:
            return {"value": round(prediction.value, 6)}
        if prediction.labels is not None:
            chances = prediction.probabilities or {}
            shares = "|".join(f"{chances[label]:.6g}" for label in prediction.labels)
            return {"labels": "|".join(prediction.labels), "probabilities": shares}
        return {"label": prediction.label, "probability": round(prediction.probability or 0.0, 6)}

    def to_hf(self) -> dict[str, Any]:
        """What config.json says of the task, label names included."""
        hf_config: dict[str, Any] = {
            "problem_type": PROBLEM_TYPES[self.kind],
            **label_tables(self.labels),
        }
        if self.thresholds is not None:
            hf_config["thresholds"] = list(self.thresholds)
        if self.pairs is not None:
            hf_config["pairs"] = self.pairs
        return hf_config | self.windows.to_hf()

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, Any], labels: int) -> TextTask:
        """The task of a saved model with so many labels; LABEL_0, LABEL_1 … where its config names none."""
        kinds = {theirs: ours for ours, theirs in PROBLEM_TYPES.items()}
        kind = kinds.get(str(hf_config.get("problem_type")), "regress" if labels == 1 else "classify")
        found = label_names(hf_config, labels)
        limits = hf_config.get("thresholds")
        if limits is not None and not (
            isinstance(limits, list)
            and len(limits) == labels
            and all(isinstance(limit, int | float) and not isinstance(limit, bool) for limit in limits)
        ):
            raise ConfigError(f"config.json: thresholds is not a list of {labels} numbers")
        thresholds = None if limits is None else tuple(float(limit) for limit in limits)
        pairs = hf_config.get("pairs")
        if pairs not in (True, False, None):
            raise ConfigError("config.json: pairs is not true or false")
        return cls(kind, found, Windows.from_hf(hf_config), thresholds=thresholds, pairs=pairs)


def _mistake(example: Example, guess: str, sure: float | None) -> Mistake:
    label = example.label
    truth = (" | ".join(label) or "none") if isinstance(label, tuple) else str(label)
    return Mistake(example.location, " | ".join(example.content), truth, guess, sure)


def texts_of(examples: Sequence[Example]) -> list[Text]:
    """What the tokenizer reads of them."""
    return [example.text if example.pair is None else (example.text, example.pair) for example in examples]


def _labels(example: Example) -> tuple[str, ...]:
    return example.label if isinstance(example.label, tuple) else (str(example.label),)


def _label_order(label: str) -> tuple[int, float, str]:
    """Numbers by value ("2" before "10"), then words by letter."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def even_classes(counts: Mapping[str, int]) -> dict[str, float]:
    """Weights under which all classes count the same, as scikit-learn has them: n / (classes * count)."""
    total = sum(counts.values())
    return {name: total / (len(counts) * count) for name, count in counts.items()}


def class_weight_list(
    wanted: str | Mapping[str, float], names: Sequence[str], even: Mapping[str, float]
) -> tuple[float, ...]:
    """A weight per class: "balanced" makes them even, or they are given by name."""
    if wanted == "balanced":
        return tuple(even[name] for name in names)
    if isinstance(wanted, str):
        raise InputError(f'class_weights={wanted!r}: use "balanced" or a weight for each class by name')
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise InputError(f"class weights for classes that do not occur: {shorten_list(unknown)}")
    for name, weight in wanted.items():
        check_number(f"the class weight of {name}", weight, 0, 1e9, "above 0")
    return tuple(float(wanted.get(name, 1.0)) for name in names)


def text_task(text_model: TextModel) -> TextTask:
    """The task that a loaded model was trained for."""
    if "classify" not in text_model.model.heads:
        raise MissingHeadError("this checkpoint has no classifier; train one with `kinfolk finetune`")
    head: Any = text_model.model.heads["classify"]
    return TextTask.from_hf(text_model.hf_config, head.output.out_features)


def score_texts(
    text_model: TextModel, texts: Iterable[Text], location: Location = "text {}".format, cut: CutCount | None = None
) -> Iterator[np.ndarray]:
    """Scores of a chunk of texts at a time, (texts, labels): memory stays the same however many there are.

    What had to be truncated is told by a CutWarning at the end, or counted in `cut` for the caller to report.
    """
    task, tokenizer = text_task(text_model), text_model.tokenizer
    objective = task.objective(text_model.model)
    size = task.windows.size(text_model.context, tokenizer.special_tokens_count())
    target: Any = [] if task.kind == "multilabel" else 0  # of no meaning here
    done, count = 0, CutCount() if cut is None else cut
    for chunk in chunks(texts, CHUNK_TEXTS):
        locations = [location(done + index) for index in range(len(chunk))]
        checked = [check_text(text, where) for text, where in zip(chunk, locations, strict=True)]
        task.warn_of_form(checked, locations, count)
        targets = [target] * len(chunk)
        data = text_samples(tokenizer, checked, targets, size, task.windows.stride, count, locations.__getitem__)
        yield score_samples(text_model.model, objective, data)
        done += len(chunk)
    if cut is None:
        count.report()


def classify(
    text_model: TextModel, texts: Iterable[Text], location: Location = "text {}".format, cut: CutCount | None = None
) -> Iterator[Prediction]:
    """The prediction for each text; `location` and `cut` as in `score_texts`."""
    task = text_task(text_model)
    for scores in score_texts(text_model, texts, location, cut):
        yield from task.predictions(scores)
