"""Layer norm: each token's vector x, centred, scaled to deviation one, then scaled and shifted as learned.

    y = g * (x - mean(x)) / sqrt(var(x) + epsilon) + b        (tokens, width) -> (tokens, width)

Ba et al. 2016, "Layer Normalization".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Norm(nn.LayerNorm):
    """torch's own, asked for directly: for one short text, the way there would cost more than the norm."""

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.layer_norm(hidden, self.normalized_shape, self.weight, self.bias, self.eps)
