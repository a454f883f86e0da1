"""What an objective is: items in, a loss out, as a sum and a count.

Sums add, means do not: the mean is taken once, over all batches that make up a step. So a step of one batch of 32 and
a step of 32 batches of one have the same gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

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
    """A batch as the loss takes it; `count` is what its sum will be divided by."""

    tokens: Tokens
    targets: Tensor
    count: float
    examples: tuple[int, ...]


class Scorer(Protocol):
    """What a loss needs of a model. (Models stand below: a model's file may name its objectives.)"""

    def judge(self, name: str, tokens: Tokens) -> Tensor:
        """What the head `name` says of a batch."""


class Objective(Protocol):
    """Turns items into batches and batches into losses."""

    @property
    def head(self) -> str:
        """Name of the head that it trains."""

    def prepare(self, items: Sequence[Sample], device: torch.device) -> Batch:
        """Pack items and their targets."""

    def loss(self, model: Any, prepared: Batch) -> Tensor:
        """The sum of the losses, a scalar, of a model that has what the objective needs."""

    def scores(self, model: Any, prepared: Batch) -> Tensor:
        """What the head says, for evaluation and prediction."""


@runtime_checkable
class Scheduled(Protocol):
    """An objective that changes over a run."""

    def at(self, step: int, total: int) -> Self:
        """The objective of step number `step`, from 0, of `total`."""


@runtime_checkable
class Stateful(Protocol):
    """An objective whose batches go on where the batch before them ended."""

    def carry(self, model: Any, prepared: Batch, state: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The sum of the losses, and the state to go on from, without its history; None is the first state."""


def pack_items(items: Sequence[Sample], kinds: int, device: torch.device) -> Tokens:
    """Items as one packed batch, for a model with so many kinds of segments."""
    return pack_for(kinds, [item.ids for item in items], [item.segments for item in items], device)
