"""A learned mixture of layers: which depth serves a task best is found by the task.

    mix(h) = gamma * sum_l softmax(w)_l h_l

w has one number per layer, gamma scales the whole: tasks want vectors of different lengths. At the start all layers
weigh the same. Paper: Peters et al. 2018 (ELMo), equation 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """(layers, tokens, width) -> (tokens, width)."""

    def __init__(self, layers: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def shares(self) -> Tensor:
        """softmax(w): how much each layer counts, (layers,)."""
        return self.weights.softmax(0)

    def forward(self, layers: Tensor) -> Tensor:
        return self.gamma * torch.tensordot(self.shares, layers, 1)  # type: ignore[no-any-return]
