"""Which layers' vectors to take, and how to combine them.

first            the embedding output (layer 0)          sum_last_4      sum of the last four layers
last             the top layer                           concat_last_4   the last four concatenated
second_to_last   the layer below it                      sum_all         sum of layers 1 … L
[0, 6, 12]       any layers, concatenated
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kinfolk.errors import InputError, check_choice

NAMES = ("first", "last", "second_to_last", "sum_last_4", "concat_last_4", "sum_all")


@dataclass(frozen=True)
class LayerChoice:
    """Layers of a model, 0 the embedding output, summed or concatenated."""

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
        wanted = [layers[index] for index in self.numbers]
        if len(wanted) == 1:
            return wanted[0]
        return torch.stack(wanted).sum(0) if self.summed else torch.cat(wanted, dim=-1)


def choose_layers(wanted: str | int | Sequence[int] | np.ndarray, layers: int) -> LayerChoice:
    """The layers that a name or indices mean in a model with `layers` layers.

    >>> choose_layers("sum_last_4", layers=12)
    LayerChoice(numbers=(9, 10, 11, 12), summed=True)
    """
    if isinstance(wanted, str):
        return _named(check_choice("layers", wanted, NAMES), layers)
    try:
        indices = [operator.index(index) for index in np.atleast_1d(np.asarray(wanted, dtype=object)).tolist()]
    except TypeError:
        indices = []
    if not indices or not all(0 <= index <= layers for index in indices):
        raise InputError(f"layers={wanted!r}: this model has layers 0 (embedding output) to {layers}")
    return LayerChoice(tuple(indices))


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
