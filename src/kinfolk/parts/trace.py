"""Trace: what a model computed on the way, collected without changing a number.

Pass one to a model and read afterwards, per sequence of the batch:

    hidden[layer][sequence]    (length, width); layer 0 is the embedding output
    weights[layer][sequence]   (heads, length, length); attention of block `layer`, rows sum to one
    scores[layer][sequence]    the same before the softmax; -inf where the scope forbids
"""

from __future__ import annotations

from torch import Tensor

from kinfolk.parts.scopes import Group
from kinfolk.parts.tokens import Layout


class Trace:
    """Collects layers' vectors (`hidden`) and, if asked, attention weights and scores."""

    def __init__(self, hidden: bool = True, attention: bool = True):
        self.wants_hidden = hidden
        self.wants_attention = attention
        self.hidden: list[tuple[Tensor, ...]] = []
        self.weights: list[list[Tensor]] = []
        self.scores: list[list[Tensor]] = []

    def add_hidden(self, hidden: Tensor, layout: Layout) -> None:
        """Keep the vectors (tokens, width) of one more layer."""
        if self.wants_hidden:
            self.hidden.append(layout.split(hidden.detach()))

    def begin_attention(self, sequences: int) -> None:
        """Make room for the attention of one more block."""
        self.weights.append([None] * sequences)  # type: ignore[list-item]
        self.scores.append([None] * sequences)  # type: ignore[list-item]

    def add_attention(self, group: Group, scores: Tensor, queries: Layout, keys: Layout) -> None:
        """Keep scores (count, heads, queries, keys) of one group of the current block, holes cut off."""
        weights = scores.softmax(-1)
        if group.blind is not None:
            weights = weights.masked_fill(group.blind, 0.0)
        for row, number in enumerate(group.sequences):
            rows, columns = queries.lengths[number], keys.lengths[number]
            self.scores[-1][number] = scores[row, :, :rows, :columns].detach()
            self.weights[-1][number] = weights[row, :, :rows, :columns].detach()
