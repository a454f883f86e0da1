"""Linear layers and tables that start with random weights, except on the meta device.

A model is first built on the meta device, where shapes can be checked against a file before any memory is taken.
There random numbers mean nothing, and asking torch for them loads 800 modules (1.5 s): so these leave it out.

A layer that rests keeps a packed copy of its weight (packing.py).
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from kinfolk.nn.fast.precision import linear
from kinfolk.nn.packing import Packing, product, recorded


class _Resting(nn.Module):
    """What knows when its weight is only read."""

    weight: Tensor

    def train(self, mode: bool = True) -> Self:
        if mode:
            self.packing.forget()
        return super().train(mode)

    def packed(self, hidden: Tensor, weight: Tensor) -> Tensor | None:
        """The weight as `packing.product` wants it for these rows; None while it learns, and where nothing is gained.

        Where gradients are wanted, a step may follow that changes the weight unseen.
        """
        if torch.is_grad_enabled():
            self.packing.forget()
            return None
        if self.training or hidden.dtype is not torch.float32 or hidden.shape[0] == 0 or recorded():
            return None
        return self.packing.of(weight)

    def product(self, hidden: Tensor, bias: Tensor | None) -> Tensor:
        """x W' + b, the fastest way that there is."""
        weight = self.weight
        packed = self.packed(hidden, weight)
        return linear(hidden, weight, bias) if packed is None else product(hidden, packed, bias)

    @property
    def packing(self) -> Packing:
        """Made at the first use, so that modules need no constructor of ours; an attribute that is no weight."""
        found: Packing | None = self.__dict__.get("_packed")
        if found is None:
            found = self.__dict__["_packed"] = Packing()
        return found


class Linear(_Resting, nn.Linear):
    """x W' + b."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.product(hidden, self.bias)


class Embedding(_Resting, nn.Embedding):
    """Row i of a table for id i; as `product`, vectors compared with every row: the scores of a vocabulary."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()
