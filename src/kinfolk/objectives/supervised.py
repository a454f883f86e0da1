"""The losses of fine-tuning: whole texts (classes, labels, numbers) and tokens (tags, answers).

Classify     -w_y log softmax(s)_y               one class of many, classes may be weighted
MultiLabel   binary cross-entropy per label      any number of labels
Regress      (s - y)^2
Tag          -w_y log softmax(s)_y               at the first piece of each word (crf_tag.py: whole paths)
Span         -(log p_start + log p_end) / 2      where the answer lies; (0, 0) when there is none
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.objectives.objective import Batch, Sample, Scorer, pack_items

IGNORED = -100  # a token without a tag: a special token, or a further piece of a word


@dataclass(frozen=True)
class Task:
    """A head, and how many kinds of segments its model has."""

    segments: int
    head: str = "classify"

    def scores(self, model: Scorer, prepared: Batch) -> Tensor:
        """What the head says."""
        return model.judge(self.head, prepared.tokens)


@dataclass(frozen=True)
class TextTask(Task):
    """Scores for whole texts, (texts, labels); subclasses say what is lost."""

    def prepare(self, items: Sequence[Sample], device: torch.device) -> Batch:
        targets = self.targets(items).to(device)
        rows = tuple(item.example for item in items)
        return Batch(pack_items(items, self.segments, device), targets, self.count(targets), rows)

    def targets(self, items: Sequence[Sample]) -> Tensor:
        """(texts,): the number of each text's class."""
        return torch.tensor([item.target for item in items])

    def count(self, targets: Tensor) -> float:
        return float(len(targets))


@dataclass(frozen=True)
class Classify(TextTask):
    """One class of many. With weights the mean is taken over weights, not texts, as scikit-learn does."""

    weights: tuple[float, ...] | None = None

    def loss(self, model: Scorer, prepared: Batch) -> Tensor:
        weight = None if self.weights is None else torch.tensor(self.weights, device=prepared.targets.device)
        scores = self.scores(model, prepared)
        weight = weight if weight is None else weight.to(scores.dtype)
        return F.cross_entropy(scores, prepared.targets, weight, reduction="sum")

    def count(self, targets: Tensor) -> float:
        if self.weights is None:
            return float(len(targets))
        return float(sum(self.weights[number] for number in targets.tolist()))


@dataclass(frozen=True)
class MultiLabel(TextTask):
    """Any number of labels: targets are lists of label numbers. The mean is over texts and labels.

    `weights` say how many times as much as its no the yes of each label counts.
    """

    labels: int = 0
    weights: tuple[float, ...] | None = None

    def targets(self, items: Sequence[Sample]) -> Tensor:
        table = torch.zeros(len(items), self.labels)
        for row, item in enumerate(items):
            table[row, item.target] = 1.0
        return table

    def count(self, targets: Tensor) -> float:
        return float(targets.numel())

    def loss(self, model: Scorer, prepared: Batch) -> Tensor:
        scores = self.scores(model, prepared)
        targets, weight = prepared.targets.to(scores.dtype), None
        if self.weights is not None:
            weight = torch.tensor(self.weights, dtype=scores.dtype, device=scores.device)
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum", pos_weight=weight)


@dataclass(frozen=True)
class Regress(TextTask):
    """A number per text."""

    def targets(self, items: Sequence[Sample]) -> Tensor:
        return torch.tensor([float(item.target) for item in items], dtype=torch.float64)

    def loss(self, model: Scorer, prepared: Batch) -> Tensor:
        scores = self.scores(model, prepared).squeeze(1)
        return F.mse_loss(scores, prepared.targets.to(scores.dtype), reduction="sum")


@dataclass(frozen=True)
class WordTask(Task):
    """A tag for the first piece of each word: an item's target lists one tag number, or IGNORED, per token."""

    def prepare(self, items: Sequence[Sample], device: torch.device) -> Batch:
        targets = torch.tensor([number for item in items for number in item.target])
        rows = tuple(item.example for item in items)
        count = self.count(targets[targets != IGNORED])
        return Batch(pack_items(items, self.segments, device), targets.to(device), count, rows)

    def count(self, tags: Tensor) -> float:
        return float(len(tags))


@dataclass(frozen=True)
class Tag(WordTask):
    """Each word for itself. With weights the mean is taken over weights, not words."""

    head: str = "tag"
    weights: tuple[float, ...] | None = None

    def count(self, tags: Tensor) -> float:
        return super().count(tags) if self.weights is None else sum(self.weights[number] for number in tags.tolist())

    def loss(self, model: Scorer, prepared: Batch) -> Tensor:
        scores = self.scores(model, prepared)
        weight = None if self.weights is None else torch.tensor(self.weights, device=scores.device, dtype=scores.dtype)
        return F.cross_entropy(scores, prepared.targets, weight, ignore_index=IGNORED, reduction="sum")


@dataclass(frozen=True)
class Span(Task):
    """Where an answer starts and ends: an item's target is (start, end) in its own tokens."""

    head: str = "span"

    def prepare(self, items: Sequence[Sample], device: torch.device) -> Batch:
        targets = torch.tensor([item.target for item in items])
        rows = tuple(item.example for item in items)
        return Batch(pack_items(items, self.segments, device), targets.to(device), float(len(items)), rows)

    def loss(self, model: Scorer, prepared: Batch) -> Tensor:
        # Each sequence has its own softmax over its own tokens: holes of the rectangle have probability zero.
        scores = prepared.tokens.layout.pad(self.scores(model, prepared), fill=float("-inf"))
        return F.cross_entropy(scores, prepared.targets, reduction="sum") / 2  # (sequences, longest, 2): (sequences, 2)
