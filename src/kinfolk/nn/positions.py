"""How order enters: sinusoids added at the bottom, or a bias on the scores for each bucket of distances.

Sinusoids: Vaswani et al. 2017, section 3.5. Each pair of dimensions turns at its own rate, so a shift by k is a
rotation that does not depend on the position.

The bias: Raffel et al. 2019 (T5), section 2.1; MPNet uses it besides its absolute positions. Half of the buckets serve
keys to the right. In each half, the nearer distances have a bucket each, and farther ones share logarithmically wider
buckets up to `farthest`, which holds all beyond it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kinfolk.nn.fast.kernels import Bias
from kinfolk.nn.fast.linear import Embedding
from kinfolk.nn.scopes import AttentionPlan, Group

ARRANGEMENTS = ("interleaved", "halves")


def sinusoids(length: int, width: int, arrangement: str, device: torch.device | str = "cpu") -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / width)), PE(pos, 2i + 1) = cos(the same): (length, width).

    "interleaved" as the paper writes it, or in "halves", all sines before all cosines, as Marian has it. They are
    rounded to float32 whatever the model computes in, as those of the reference are.

    >>> [round(value, 2) for value in sinusoids(2, 4, "interleaved")[1].tolist()]
    [0.84, 0.54, 0.01, 1.0]
    """
    positions = torch.arange(length, dtype=torch.float64, device=device).unsqueeze(1)
    rates = torch.arange(0, width, 2, dtype=torch.float64, device=device) / width
    angles = positions / torch.pow(10_000.0, rates)
    pairs = [angles.sin(), angles.cos()]
    table = torch.stack(pairs, dim=2).flatten(1) if arrangement == "interleaved" else torch.cat(pairs, dim=1)
    return table.float()


class BucketedBias(nn.Module):
    """bias(i, j) = table[bucket(j - i)]: one (heads, queries, keys) term for all layers of a batch."""

    def __init__(self, buckets: int, heads: int, farthest: int = 128):
        super().__init__()
        self.table = Embedding(buckets, heads)
        self.farthest = farthest

    def forward(self, plan: AttentionPlan) -> Bias:
        """Compute the term once for the longest sequences; each group takes its corner."""
        queries, keys = (
            torch.arange(max(side.lengths, default=0), device=side.device) for side in (plan.queries, plan.keys)
        )
        buckets = self.bucket(keys.unsqueeze(0) - queries.unsqueeze(1))
        term: Tensor = self.table(buckets).permute(2, 0, 1).contiguous()  # (heads, longest queries, longest keys)

        def bias(group: Group, queries: Tensor) -> Tensor:
            return term[:, : group.queries.length, : group.keys.length].unsqueeze(0)

        return bias

    def bucket(self, distance: Tensor) -> Tensor:
        """Buckets of signed distances (key - query)."""
        half = self.table.num_embeddings // 2
        exact = half // 2
        away = distance.abs()
        growth = torch.log(away.clamp(min=1).float() / exact) / math.log(self.farthest / exact)
        shared = (exact + (growth * (half - exact)).long()).clamp(max=half - 1)
        return torch.where(away < exact, away, shared) + half * (distance > 0)
