"""Linear layers and tables that start with random weights, except on the meta device.

A model is first built on the meta device, where shapes can be checked against a file before any memory is taken.
There random numbers mean nothing, and asking torch for them loads 800 modules (1.5 s): so these leave it out.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from kinfolk.parts.packing import Packing, packs, product


class Linear(nn.Linear):
    """x W' + b; a layer that is not training keeps a packed copy of its weight (packing.py)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__(inputs, outputs, bias)
        self._packing = Packing()

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()

    def train(self, mode: bool = True) -> Self:
        if mode:
            self._packing.forget()
        return super().train(mode)

    def rests(self) -> bool:
        """Is the weight only read? Where gradients are wanted, a step may follow that changes it unseen."""
        if torch.is_grad_enabled():
            self._packing.forget()
        return not (self.training or torch.is_grad_enabled())

    def forward(self, hidden: Tensor) -> Tensor:
        if self.rests() and packs(hidden, self.weight):
            return product(hidden, self._packing.of(self.weight), self.bias)
        return super().forward(hidden)


class Embedding(nn.Embedding):
    """Row i of a table for id i."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()
