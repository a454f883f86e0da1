"""The loss of multiple choice: -log softmax(s)_y over the options of each example, however many there are.

An option is scored by a head with one output. The options of an example must meet in one batch, so an item holds all of
them, one after the other; its target says where each ends. An option that is too long for the model is there several
times, as windows, and its score is their weighted mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.nn.packed import Layout, pack_for
from kinfolk.objectives.objective import Batch, Sample, Scorer
from kinfolk.objectives.supervised import Task


@dataclass(frozen=True, slots=True)
class Options:
    """How an item is divided: for each sequence its length, the number of its option and its share in the score."""

    lengths: tuple[int, ...]
    options: tuple[int, ...]
    shares: tuple[float, ...]  # those of one option sum to 1
    answer: int  # the number of the right option

    @property
    def count(self) -> int:
        """How many options there are."""
        return self.options[-1] + 1


@dataclass(frozen=True)
class ChoiceBatch(Batch):
    """Sequences with the option (counted through the batch) that each belongs to; `choices` has a row per option."""

    options: Tensor
    shares: Tensor
    choices: Layout


@dataclass(frozen=True)
class Choose(Task):
    """One of several options."""

    head: str = "choose"

    def prepare(self, items: Sequence[Sample], device: torch.device) -> ChoiceBatch:
        found: list[Options] = [item.target for item in items]
        choices = Layout(tuple(target.count for target in found), device)
        ids = [part for item in items for part in _divided(item.ids, item.target.lengths)]
        segments = [part for item in items for part in _divided(item.segments, item.target.lengths)]
        before = zip(found, choices.starts, strict=True)
        return ChoiceBatch(
            pack_for(self.segments, ids, segments, device),
            torch.tensor([target.answer for target in found], device=device),
            float(len(items)),
            tuple(item.example for item in items),
            torch.tensor([start + option for target, start in before for option in target.options], device=device),
            torch.tensor([share for target in found for share in target.shares], device=device),
            choices,
        )

    def loss(self, model: Scorer, prepared: Batch) -> Tensor:
        assert isinstance(prepared, ChoiceBatch)
        scores = prepared.choices.pad(self.scores(model, prepared), fill=float("-inf"))  # (examples, most options)
        return F.cross_entropy(scores, prepared.targets, reduction="sum")

    def scores(self, model: Scorer, prepared: Batch) -> Tensor:
        """(options of all examples,)."""
        assert isinstance(prepared, ChoiceBatch)
        found = super().scores(model, prepared).squeeze(1)  # (sequences,)
        total = found.new_zeros(prepared.choices.tokens)
        return total.index_add(0, prepared.options, found * prepared.shares.to(found.dtype))


def _divided(row: list[int], lengths: Sequence[int]) -> list[list[int]]:
    return [row[end - length : end] for end, length in zip(accumulate(lengths), lengths, strict=True)]
