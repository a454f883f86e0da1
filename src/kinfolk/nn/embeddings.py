"""What enters at the bottom, and how order does: a learned table, sinusoids, or a bias on the scores.

    norm(token + position + segment)         (tokens,) -> (tokens, width); the norm is optional

Devlin et al. 2018, figure 2. Sinusoids: Vaswani et al. 2017, section 3.5. Each pair of dimensions turns at its own
rate, so a shift by k is a rotation that does not depend on the position.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.nn.fast.kernels import Bias
from kinfolk.nn.fast.linear import Dropout, Embedding, Norm
from kinfolk.nn.packed import Tokens
from kinfolk.nn.scopes import AttentionPlan, Group

ARRANGEMENTS = ("interleaved", "halves")


class SummedEmbeddings(nn.Module):
    """Learned tables for tokens, positions and, where the model has them, segments; then dropout."""

    def __init__(self, config: Any, width: int, norm: bool = True):
        super().__init__()
        self.width = width
        self.first_position = config.first_position
        self.tokens = Embedding(config.vocabulary_size, width)
        self.positions = Embedding(config.positions, width)
        self.segments = Embedding(config.segments, width) if config.segments else None
        self.norm = Norm(width, config.norm_epsilon) if norm else None
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tokens) -> Tensor:
        return self.at(tokens.ids, tokens.layout.positions, tokens.segments)

    def at(self, ids: Tensor, positions: Tensor, segments: Tensor | None = None) -> Tensor:
        """Tokens at these positions of their texts: three times (tokens,) -> (tokens, width)."""
        total = self.tokens(ids) + self.positions(positions + self.first_position)
        if self.segments is not None:
            # Without segments every token belongs to the first: one row, added to all.
            total = total + (self.segments.weight[0] if segments is None else self.segments(segments))
        return self.dropout(total if self.norm is None else self.norm(total))  # type: ignore[no-any-return]


def sinusoids(length: int, width: int, arrangement: str, device: torch.device | str = "cpu") -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / width)), PE(pos, 2i + 1) = cos(the same): (length, width), in float32.

    "interleaved" as the paper writes it, or in "halves", all sines before all cosines, as Marian has it.
    """
    positions = torch.arange(length, dtype=torch.float64, device=device).unsqueeze(1)
    rates = torch.arange(0, width, 2, dtype=torch.float64, device=device) / width
    angles = positions / torch.pow(10_000.0, rates)
    pairs = [angles.sin(), angles.cos()]
    table = torch.stack(pairs, dim=2).flatten(1) if arrangement == "interleaved" else torch.cat(pairs, dim=1)
    return table.float()


class BucketedBias(nn.Module):
    """bias(i, j) = table[bucket(j - i)]: one (heads, queries, keys) term for all layers of a batch.

    Half of the buckets serve keys to the right. In each half the nearer distances have a bucket each, and farther ones
    share logarithmically wider buckets up to `farthest`. Raffel et al. 2019 (T5), section 2.1.
    """

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
        half = self.table.num_embeddings // 2
        exact = half // 2
        away = distance.abs()
        growth = torch.log(away.clamp(min=1).float() / exact) / math.log(self.farthest / exact)
        shared = (exact + (growth * (half - exact)).long()).clamp(max=half - 1)
        return torch.where(away < exact, away, shared) + half * (distance > 0)
