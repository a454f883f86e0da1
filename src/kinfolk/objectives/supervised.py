"""The losses of fine-tuning, each with one head whose name is the name of the loss.

Classify     -w_y log softmax(s)_y               one class of many, classes may be weighted
MultiLabel   binary cross-entropy per label      any number of labels
Regress      (s - y)^2
Tag          -w_y log softmax(s)_y               at the first subword of each word
CrfTag       -log p(tags of the sentence)        p from a linear-chain random field (nn/crf.py)
Span         -(log p_start + log p_end) / 2      where the answer lies; (0, 0) when there is none
MultipleChoice  -log softmax(s)_y                   over the options of each example, however many there are
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.nn.packed import Layout, pack_for
from kinfolk.objectives.objective import Batch, Objective, Sample, pack_samples

IGNORED = -100  # a token without a tag: a special token, or a further subword


@dataclass(frozen=True)
class Supervised(Objective):
    """A head, and how many segment types its model has; subclasses give the sum of the losses."""

    segments: int
    head: str = "classify"

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> Batch:
        """Pack samples; targets are counted before they go to the device."""
        targets = self.targets(samples)
        tokens = pack_samples(samples, self.segments, device)
        return Batch(tokens, targets.to(device), {self.head: self.count(targets)})

    def targets(self, samples: Sequence[Sample]) -> Tensor:
        return torch.tensor([sample.target for sample in samples])

    def count(self, targets: Tensor) -> float:
        """What the sum of the losses is divided by."""
        return float(len(targets))

    def losses(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        return {self.head: self.loss(model, batch)}

    def loss(self, model: Any, batch: Batch) -> Tensor:
        """The sum of the losses, a scalar."""
        raise NotImplementedError

    def scores(self, model: Any, batch: Batch) -> Tensor:
        return model.scores(self.head, batch.tokens)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Classify(Supervised):
    """One class of many: targets (texts,). With weights the mean is over weights, not texts, as in scikit-learn."""

    class_weights: tuple[float, ...] | None = None

    def count(self, targets: Tensor) -> float:
        counted, weights = targets[targets != IGNORED], self.class_weights
        return float(len(counted) if weights is None else sum(weights[label] for label in counted.tolist()))

    def loss(self, model: Any, batch: Batch) -> Tensor:
        scores = self.scores(model, batch)
        weight = _like(scores, self.class_weights)
        return F.cross_entropy(scores, batch.targets, weight, ignore_index=IGNORED, reduction="sum")


@dataclass(frozen=True)
class MultiLabel(Supervised):
    """Any number of labels: a sample's target lists label ids. The mean is over texts and labels. `class_weights` say
    how much more a positive counts than a negative, for each label."""

    labels: int = 0
    class_weights: tuple[float, ...] | None = None

    def targets(self, samples: Sequence[Sample]) -> Tensor:
        table = torch.zeros(len(samples), self.labels)
        for row, sample in enumerate(samples):
            table[row, sample.target] = 1.0
        return table

    def count(self, targets: Tensor) -> float:
        return float(targets.numel())

    def loss(self, model: Any, batch: Batch) -> Tensor:
        scores = self.scores(model, batch)
        weight, targets = _like(scores, self.class_weights), batch.targets.to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum", pos_weight=weight)


@dataclass(frozen=True)
class Regress(Supervised):
    def targets(self, samples: Sequence[Sample]) -> Tensor:
        return torch.tensor([float(sample.target) for sample in samples], dtype=torch.float64)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        scores = self.scores(model, batch).squeeze(1)
        return F.mse_loss(scores, batch.targets.to(scores.dtype), reduction="sum")


@dataclass(frozen=True)
class Tag(Classify):
    """A class for the first subword of each word: a sample's target has one tag id, or IGNORED, per token."""

    head: str = "tag"

    def targets(self, samples: Sequence[Sample]) -> Tensor:
        return torch.tensor([tag for sample in samples for tag in sample.target])


@dataclass(frozen=True)
class CrfTag(Tag):
    """Tags as paths: the chain links the first subwords of words; tokens without a tag are not part of it."""

    head: str = "tag_crf"

    def loss(self, model: Any, batch: Batch) -> Tensor:
        layout, tagged = batch.tokens.layout, batch.targets != IGNORED
        emissions, tags = self.scores(model, batch)[tagged], batch.targets[tagged]
        words = torch.bincount(layout.owners[tagged], minlength=layout.sequences).tolist()
        chains = Layout(tuple(count for count in words if count), layout.device)
        if not chains.sequences:
            return emissions.sum()
        crf = model.heads[self.head].crf
        total: Tensor = (crf.log_partition(emissions, chains) - crf.score(emissions, tags, chains)).sum()
        return total


@dataclass(frozen=True)
class Span(Supervised):
    """Where an answer starts and ends: a sample's target is (start, end) in its own tokens."""

    head: str = "span"

    def loss(self, model: Any, batch: Batch) -> Tensor:
        # Each sequence has its own softmax over its own tokens: padding has probability zero.
        scores = batch.tokens.layout.pad(self.scores(model, batch), fill=float("-inf"))
        return F.cross_entropy(scores, batch.targets, reduction="sum") / 2  # (sequences, longest, 2): (sequences, 2)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an example as one sample: for each sequence its length, its option and its share in the score. An
    option that is too long for the model is there several times, as windows; its score is their weighted mean."""

    lengths: tuple[int, ...]
    options: tuple[int, ...]
    shares: tuple[float, ...]  # those of one option sum to 1
    answer: int  # index of the right option

    @property
    def count(self) -> int:
        return self.options[-1] + 1


@dataclass(frozen=True)
class ChoiceBatch(Batch):
    """Sequences with the option (counted through the batch) that each belongs to; `choices` has a row per option."""

    options: Tensor
    shares: Tensor
    choices: Layout


@dataclass(frozen=True)
class MultipleChoice(Supervised):
    """One of several options, each scored by a head with one output; a sample's target is its `Options`."""

    head: str = "choose"

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> ChoiceBatch:
        targets: list[Options] = [sample.target for sample in samples]
        choices = Layout(tuple(target.count for target in targets), device)
        ids = [part for sample in samples for part in _split(sample.ids, sample.target.lengths)]
        segments = [part for sample in samples for part in _split(sample.segments, sample.target.lengths)]
        starts = zip(targets, choices.starts, strict=True)
        return ChoiceBatch(
            pack_for(self.segments, ids, segments, device),
            torch.tensor([target.answer for target in targets], device=device),
            {self.head: float(len(samples))},
            torch.tensor([start + option for target, start in starts for option in target.options], device=device),
            torch.tensor([share for target in targets for share in target.shares], device=device),
            choices,
        )

    def loss(self, model: Any, batch: Batch) -> Tensor:
        assert isinstance(batch, ChoiceBatch)
        scores = batch.choices.pad(self.scores(model, batch), fill=float("-inf"))  # (examples, largest option count)
        return F.cross_entropy(scores, batch.targets, reduction="sum")

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """(options of all examples,)."""
        assert isinstance(batch, ChoiceBatch)
        scores = super().scores(model, batch).squeeze(1)  # (sequences,)
        total = scores.new_zeros(batch.choices.tokens)
        return total.index_add(0, batch.options, scores * batch.shares.to(scores.dtype))


def _like(scores: Tensor, weights: tuple[float, ...] | None) -> Tensor | None:
    return None if weights is None else torch.tensor(weights, dtype=scores.dtype, device=scores.device)


def _split(row: list[int], lengths: Sequence[int]) -> list[list[int]]:
    return [row[end - length : end] for end, length in zip(accumulate(lengths), lengths, strict=True)]
