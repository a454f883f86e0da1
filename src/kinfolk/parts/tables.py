"""Linear layers and tables that start with random weights, except on the meta device.

A model is first built on the meta device, where shapes can be checked against a file before any memory is taken.
There random numbers mean nothing, and asking torch for them loads 800 modules (1.5 s): so these leave it out.
"""

from __future__ import annotations

from torch import nn


class Linear(nn.Linear):
    """x W' + b."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class Embedding(nn.Embedding):
    """Row i of a table for id i."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()
