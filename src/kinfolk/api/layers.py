"""Which layers' vectors to take, and how to put them together.

first            the embedding output (layer 0)          sum_last_4      sum of the last four layers
last             the top layer                           concat_last_4   the last four side by side
second_to_last   the layer below it                      sum_all         sum of layers 1 … L
[0, 6, 12]       any layers, side by side
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfolk.errors import InputError, check_choice

NAMES = ("first", "last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all")


@dataclass(frozen=True)
class LayerChoice:
    """Layers of a model by number, summed or side by side."""

    numbers: tuple[int, ...]
    summed: bool = False

    @property
    def depth(self) -> int:
        """How many blocks have to run."""
        return max(self.numbers)

    @property
    def width_factor(self) -> int:
        """How many times the model's width the result has."""
        return 1 if self.summed else len(self.numbers)

    def combine(self, layers: Sequence[Tensor]) -> Tensor:
        """`layers[i]` is layer i, (tokens, width) each -> (tokens, width x width_factor)."""
        wanted = [layers[number] for number in self.numbers]
        if len(wanted) == 1:
            return wanted[0]
        return torch.stack(wanted).sum(0) if self.summed else torch.cat(wanted, dim=-1)


def choose_layers(wanted: str | int | Sequence[int] | np.ndarray, layers: int) -> LayerChoice:
    """The choice that a user means, for a model with so many layers.

    >>> choose_layers("sum_last_4", layers=12)
    LayerChoice(numbers=(9, 10, 11, 12), summed=True)
    """
    if isinstance(wanted, str):
        return _named(check_choice("layers", wanted, NAMES), layers)
    numbers = _numbers(wanted)
    if not numbers or not all(0 <= number <= layers for number in numbers):
        raise InputError(f"layers={wanted!r}: this model has layers 0 (embedding output) to {layers}")
    return LayerChoice(tuple(numbers))


def _numbers(wanted: Any) -> list[int]:
    """Whole numbers of any kind, numpy's too, alone or in a row; none where something else was given."""
    plain = wanted.tolist() if isinstance(wanted, np.ndarray) else wanted
    given = list(plain) if isinstance(plain, list | tuple | range) else [plain]
    if any(isinstance(number, bool) for number in given):
        return []
    try:
        return [operator.index(number) for number in given]
    except TypeError:
        return []


def _named(name: str, layers: int) -> LayerChoice:
    if name.endswith("last_4"):
        if layers < 4:
            raise InputError(f'layers="{name}" needs four layers; this model has {layers}')
        return LayerChoice(tuple(range(layers - 3, layers + 1)), summed=name.startswith("sum"))
    if name == "sum_all":
        if layers < 1:
            raise InputError('layers="sum_all" needs a layer; this model has none')
        return LayerChoice(tuple(range(1, layers + 1)), summed=True)
    return LayerChoice(({"first": 0, "last": layers, "second_to_last": max(layers - 1, 0)}[name],))
