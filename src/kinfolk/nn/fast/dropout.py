"""Dropout: in training each number is zero with probability p, the others grow by 1 / (1 - p).

    y = x * m / (1 - p),   m = 1 with probability 1 - p, else 0

The mask is read off random integers, four of its places from each: sixteen bits decide one place, so p is met within
2 ** -16. torch draws a number for every place, which costs several times as much, and the seed rules both alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

LANES = 4  # places of sixteen bits in one integer of sixty-four
LOWEST, STEPS = -(2**15), 2**16


def dropout(values: Tensor, p: float) -> Tensor:
    """Values of any shape, some of them zero."""
    if values.device.type != "cpu":
        return torch.dropout(values, p, train=True)
    return values * dropout_mask(values.shape, p).to(values.dtype).mul_(1 / (1 - p))


def dropout_mask(shape: Sequence[int], p: float) -> Tensor:
    """Which places stay, True with probability 1 - p; on the CPU."""
    count = math.prod(shape)
    bits = torch.empty(-(-count // LANES), dtype=torch.int64).random_(-(2**63), None)
    kept = bits.view(torch.int16)[:count] >= LOWEST + round(p * STEPS)
    return kept.view(*shape)


class Dropout(nn.Module):
    """`dropout` while training, nothing otherwise."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.p) if self.training and self.p > 0 else values
