"""What an objective is: samples in, losses out, each by its name, as a sum and a count.

Sums add, means do not: each mean is taken once, over all batches that make up a step (and all processes), and the means
are added with their weights. So a step of one batch of 32 and a step of 32 batches of one have the same gradient.

    loss = sum over names of  weight[name] * (sum of losses[name] / sum of counts[name])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor

from kinfolk.nn.packed import Tokens, pack_for


@dataclass(frozen=True, slots=True)
class Sample:
    """One sequence ready to be packed; `target` is what the objective wants, `example` the row it came from."""

    ids: list[int]
    segments: list[int]
    target: Any
    example: int

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Batch:
    """Packed samples; `counts` has, for each loss by its name, what its sum will be divided by (0: no target here)."""

    tokens: Tokens
    targets: Tensor
    counts: Mapping[str, float]


class Objective:
    """What is minimised: samples to batches, batches to losses. (Models stand below: a model is Any here.)"""

    head: str = ""  # with one head, its name, which is that of the loss too
    weights: Mapping[str, float] = MappingProxyType({})  # by name; a loss without a weight counts once
    stateful = False  # do batches continue the batches before them?
    sorts_by_length = False  # are samples of like length computed so much faster that they share batches?

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> Batch:
        """Pack samples and their targets."""
        raise NotImplementedError

    def losses(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        """The sum of each loss, a scalar; the names are those of `batch.counts`."""
        raise NotImplementedError

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """The scores of the head, from which a task evaluates and predicts."""
        raise NotImplementedError

    def at(self, step: float, total: int) -> Self:
        """The objective of step number `step`, from 0, of `total`."""
        return self

    def carry(self, model: Any, batch: Batch, state: Any) -> tuple[dict[str, Tensor], Any]:
        """As `losses`, and the detached state for the next batch; None is the first state."""
        return self.losses(model, batch), None


def pack_samples(samples: Sequence[Sample], segments: int, device: torch.device) -> Tokens:
    """Samples as one packed batch, for a model with this number of segment types."""
    return pack_for(segments, [sample.ids for sample in samples], [sample.segments for sample in samples], device)
