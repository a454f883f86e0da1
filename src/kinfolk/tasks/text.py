"""Classes, labels or numbers for whole texts and pairs: targets, objective, metrics, predictions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.examples import Example
from kinfolk.errors import ConfigError, InputError, check_choice, shorten_list, warn
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Batch, Objective, Sample
from kinfolk.objectives.supervised import IGNORED, Classify, MultiLabel, Regress
from kinfolk.tasks.task import MAX_MISTAKES, Dataset, EvalResult, Mistake, Task, TaskOptions, refuse, saved_labels
from kinfolk.text.tokenizer import Text, Tokenizer
from kinfolk.text.windows import DEFAULT_WINDOWS, CutCount, Location, TokenCounts, Windows, check_text
from kinfolk.training import metrics

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
class TextDataset(Dataset):
    """Texts or pairs with their targets, and the weight of each sample in the scores of its text."""

    weights: list[int]
    targets: list[Any]


@dataclass(frozen=True)
class TextTask(Task):
    """Classes, labels or numbers for whole texts and pairs."""

    kind: str
    labels: tuple[str, ...]
    windows: Windows = DEFAULT_WINDOWS
    weights: tuple[float, ...] | None = None
    thresholds: tuple[float, ...] | None = None  # of multilabel: the probability from which on a label is given
    # Of regress: training sees numbers of mean 0 and deviation 1; the value of a score is score * spread + middle.
    middle: float = 0.0
    spread: float = 1.0
    pairs: bool | None = None  # did training see pairs of texts? None where it saw both, or nobody knows

    head = "classify"

    @classmethod
    def of(cls, kind: str, examples: Sequence[Example], options: TaskOptions) -> Self:
        """Labels in alphabetical (numbers: numerical) order."""
        check_choice("task", kind, PROBLEM_TYPES)
        refuse(options, kind, "crf")
        forms = {example.pair is not None for example in examples}
        pairs = forms.pop() if len(forms) == 1 else None
        if kind == "regress":
            refuse(options, kind, "class_weights")
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
        balanced = {name: counts.total() / (len(counts) * counts[name]) for name in names}
        if kind == "multilabel":  # a label's yes weighs as much as its no
            balanced = {name: max(1, len(examples) - counts[name]) / counts[name] for name in names}
        return cls(kind, names, options.windows, options.weights(balanced), pairs=pairs)

    @classmethod
    def saved(cls, text_model: TextModel) -> Self:
        config, labels = text_model.hf_config, saved_labels(text_model, "classify", "classifier")
        kinds = {theirs: ours for ours, theirs in PROBLEM_TYPES.items()}
        kind = kinds.get(str(config.get("problem_type")), "regress" if len(labels) == 1 else "classify")
        limits, pairs, middle = config.get("thresholds"), config.get("pairs"), config.get("middle", 0.0)
        if limits is not None:
            if not isinstance(limits, list) or [type(each) in (int, float) for each in limits] != [True] * len(labels):
                raise ConfigError(f"config.json: thresholds is not a list of {len(labels)} numbers")
            limits = tuple(map(float, limits))
        if pairs not in (True, False, None):
            raise ConfigError("config.json: pairs is not true or false")
        if type(middle) not in (int, float) or abs(middle) > 1e300:
            raise ConfigError("config.json: middle is not a number")
        return cls(kind, labels, Windows.from_hf(config), thresholds=limits, middle=float(middle), pairs=pairs)

    def objective(self, model: Model) -> Objective:
        segments = model.config.segments
        if self.kind == "regress":
            return Regress(segments)
        if self.kind == "multilabel":
            return MultiLabel(segments, labels=len(self.labels), class_weights=self.weights)
        return Classify(segments, class_weights=self.weights)

    def targets(self, examples: Sequence[Example]) -> list[Any]:
        """Labels as indices; those that training did not see have the one after the last, and are never predicted."""
        if self.kind == "regress":
            return [0.0 if example.label is None else example.label for example in examples]
        indices, unseen = {label: index for index, label in enumerate(self.labels)}, len(self.labels)
        targets = [[indices.get(label, unseen) for label in _labels(example)] for example in examples]
        return targets if self.kind == "multilabel" else [index for (index,) in targets]

    def unseen_labels(self, examples: Sequence[Example]) -> list[str]:
        labels = {label for example in examples for label in _labels(example)}
        return [] if self.kind == "regress" else sorted(labels - {*self.labels})

    def dataset(
        self,
        tokenizer: Tokenizer,
        examples: Sequence[Example],
        context: int,
        counts: TokenCounts | None = None,
        cut: CutCount | None = None,
    ) -> TextDataset:
        """Texts or pairs, long ones in windows that all have the label of their text, which may be None.

        Cuts are told by a CutWarning or counted in `cut`, and so is, once, that texts are single ones and the model
        learned from pairs, or the other way round.
        """
        targets, cutting, count = self.targets(examples), cut or CutCount(), len(self.labels)
        if self.kind == "regress":
            wanted = [(number - self.middle) / self.spread for number in targets]
        elif self.kind == "multilabel":
            wanted = [[index for index in indices if index < count] for indices in targets]
        else:
            wanted = [index if index < count else IGNORED for index in targets]
        others = (each for each in examples if (each.pair is not None) != self.pairs)
        other = None if self.pairs is None or cutting.warned_of_form else next(others, None)
        if other is not None:
            cutting.warned_of_form = True
            learned, text = ("pairs", "one text") if self.pairs else ("single texts", "a pair")
            warn(FormWarning(f"{other.location}: {text}, but the model learned from {learned}"))
        texts = [each.text if each.pair is None else (each.text, each.pair) for each in examples]
        windows = self.windows.split(tokenizer, texts, context, lambda index: examples[index].location, cutting, counts)
        if cut is None:
            cutting.report()
        samples = [Sample(each.encoding.ids, each.encoding.segments, wanted[each.text], each.text) for each in windows]
        return TextDataset(samples, examples, [each.weight for each in windows], targets)

    def split(self, dataset: TextDataset, indices: list[int], batch: Batch, scores: Tensor) -> Iterable[Tensor]:
        return scores

    def text_scores(self, model: Model, dataset: TextDataset) -> np.ndarray:
        """(texts, labels): the mean over each text's windows, in the order of the texts."""
        rows = np.stack(self.sample_scores(model, dataset))
        owners = np.array([sample.example for sample in dataset.samples])
        weights = np.array(dataset.weights, dtype=np.float32)[:, None]
        totals = np.zeros((len(dataset.targets), rows.shape[1]), dtype=np.float32)
        shares = np.zeros((len(dataset.targets), 1), dtype=np.float32)
        np.add.at(totals, owners, rows * weights)
        np.add.at(shares, owners, weights)
        return totals / shares

    def evaluate(self, model: Model, dataset: TextDataset) -> EvalResult:
        scores, count = self.text_scores(model, dataset), len(self.labels)
        confusion = None
        if self.kind == "classify":
            truth, table = np.array(dataset.targets), np.zeros((count, count), dtype=int)
            known = truth < count
            np.add.at(table, (truth[known], scores.argmax(1)[known]), 1)
            confusion = table.tolist()
        return EvalResult(self.metrics(scores, dataset.targets), confusion, self._mistakes(scores, dataset))

    def _mistakes(self, scores: np.ndarray, dataset: TextDataset) -> list[Mistake]:
        """The most confident errors (a wrong or missing label is one); of numbers those farthest from the truth."""
        output: np.ndarray
        if self.kind == "regress":
            output = self._values(scores)
            extent = np.abs(output - np.array(dataset.targets, dtype=np.float64))
        elif self.kind == "multilabel":
            truth = self._truth(dataset.targets)[:, : len(self.labels)]
            probabilities = metrics.probabilities(scores)
            output = probabilities >= np.array(self._thresholds)
            extent = np.where(output != truth, np.where(output, probabilities, 1 - probabilities), 0.0).max(1)
        else:
            output = scores.argmax(1)
            extent = np.where(output != np.array(dataset.targets), metrics.softmax(scores).max(1), 0.0)
        mistakes = []
        for index in np.argsort(-extent, kind="stable")[:MAX_MISTAKES].tolist():
            example, sure = dataset.examples[index], None if self.kind == "regress" else float(extent[index])
            if sure is None or sure > 0:
                label = _joined(example.label) if isinstance(example.label, tuple) else str(example.label)
                text, guess = " | ".join(example.content), self._guess(output[index])
                mistakes.append(Mistake(example.location, text, label, guess, sure))
        return mistakes

    def _guess(self, output: Any) -> str:
        if self.kind == "regress":
            return f"{output:.4g}"
        if self.kind == "classify":
            return self.labels[int(output)]
        return _joined(self._names(output))

    def _names(self, mask: Iterable[bool]) -> tuple[str, ...]:
        return tuple(compress(self.labels, mask))

    def metrics(self, scores: np.ndarray, targets: Sequence[Any]) -> dict[str, float]:
        """All metrics; the first decides which checkpoint is best."""
        if self.kind == "regress":
            return metrics.regression(self._values(scores)[:, None], np.array(targets, dtype=np.float64))
        if self.kind == "classify":
            return metrics.classification(scores, np.array(targets))
        truth, count = self._truth(targets), len(self.labels)
        tuned = metrics.best_thresholds(scores, truth[:, :count]) if self.thresholds is None else self.thresholds
        never = truth.shape[1] - count  # a column of labels that training did not see, or none
        padded = np.pad(scores, ((0, 0), (0, never)), constant_values=-np.inf)
        return metrics.multilabel(padded, truth, np.array([*tuned, *[1.0] * never]))

    def calibrate(self, model: Model, dataset: TextDataset) -> TextTask:
        """Thresholds of labels are tuned on the dev set and kept with the model; the scale of numbers goes into it."""
        if self.kind == "regress":  # the last layer takes the scale in, so that the model speaks in the user's units
            last: Any = model.heads["classify"].output
            with torch.no_grad():
                last.weight.mul_(self.spread)
                if last.bias is None:  # GPT's: the middle has no place in it, and stays with the task
                    return replace(self, spread=1.0)
                last.bias.mul_(self.spread).add_(self.middle)
            return replace(self, middle=0.0, spread=1.0)
        if self.kind != "multilabel" or not dataset.samples:
            return self
        truth = self._truth(dataset.targets)[:, : len(self.labels)]
        tuned = metrics.best_thresholds(self.text_scores(model, dataset), truth)
        return replace(self, thresholds=tuple(float(limit) for limit in tuned))

    @property
    def _thresholds(self) -> tuple[float, ...]:
        return self.thresholds or (0.5,) * len(self.labels)

    def _values(self, scores: np.ndarray) -> np.ndarray:
        values: np.ndarray = scores.astype(np.float64) * self.spread + self.middle
        return values[:, 0]

    def _truth(self, targets: Sequence[Any]) -> np.ndarray:
        """Lists of label indices as a table of zeros and ones; a column more where some were not seen in training."""
        table = np.zeros((len(targets), len(self.labels) + 1), dtype=bool)
        for row, indices in enumerate(targets):
            table[row, indices] = True
        return table if table[:, -1].any() else table[:, :-1]

    def predictions(self, scores: np.ndarray) -> list[Prediction]:
        """Scores in the user's words."""
        if self.kind == "regress":
            return [Prediction(value=value) for value in self._values(scores).tolist()]
        rows = metrics.softmax(scores) if self.kind == "classify" else metrics.probabilities(scores)
        named = [dict(zip(self.labels, map(float, row), strict=True)) for row in rows]
        if self.kind == "classify":
            best = [self.labels[index] for index in rows.argmax(1)]
            return [Prediction(label, own[label], probabilities=own) for label, own in zip(best, named, strict=True)]
        passed = (rows >= np.array(self._thresholds, dtype=rows.dtype)).tolist()
        pairs = zip(map(self._names, passed), named, strict=True)
        return [Prediction(labels=labels, probabilities=own) for labels, own in pairs]

    def columns(self, prediction: Prediction) -> dict[str, Any]:
        if prediction.value is not None:
            return {"value": round(prediction.value, 6)}
        if prediction.labels is not None:
            probabilities = prediction.probabilities or {}
            shares = "|".join(f"{probabilities[label]:.6g}" for label in prediction.labels)
            return {"labels": "|".join(prediction.labels), "probabilities": shares}
        return {"label": prediction.label, "probability": round(prediction.probability or 0.0, 6)}

    def to_hf(self) -> dict[str, Any]:
        limits = None if self.thresholds is None else list(self.thresholds)
        own = {"thresholds": limits, "middle": self.middle or None, "pairs": self.pairs}
        known = {name: value for name, value in own.items() if value is not None}
        return {"problem_type": PROBLEM_TYPES[self.kind]} | super().to_hf() | known


def _joined(labels: Iterable[str]) -> str:
    return " | ".join(labels) or "none"


def _labels(example: Example) -> tuple[str, ...]:
    return example.label if isinstance(example.label, tuple) else (str(example.label),)


def _label_order(label: str) -> tuple[int, float, str]:
    """Numbers by value ("2" before "10"), then words by letter."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _unlabelled(texts: Iterable[Text], location: Location) -> Iterator[Example]:
    for index, text in enumerate(texts):
        checked = check_text(text, location(index))
        first, pair = (checked, None) if isinstance(checked, str) else checked
        yield Example(first, pair, None, location(index))


def score_texts(
    text_model: TextModel, texts: Iterable[Text], location: Location = "text {}".format, cut: CutCount | None = None
) -> Iterator[np.ndarray]:
    """Scores of a chunk of texts at a time, (texts, labels).

    What had to be truncated is told by a CutWarning at the end, or counted in `cut` for the caller to report.
    """
    task, counting = TextTask.saved(text_model), CutCount() if cut is None else cut
    for dataset in task.datasets(text_model, _unlabelled(texts, location), cut=counting):
        yield task.text_scores(text_model.model, dataset)
    if cut is None:
        counting.report()


def classify(
    text_model: TextModel, texts: Iterable[Text], location: Location = "text {}".format, cut: CutCount | None = None
) -> Iterator[Prediction]:
    """The prediction for each text; `location` and `cut` as in `score_texts`."""
    task = TextTask.saved(text_model)
    for scores in score_texts(text_model, texts, location, cut):
        yield from task.predictions(scores)


TASK = TextTask
