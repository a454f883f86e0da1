"""Trace: what a model computed on the way, collected without changing a number.

Pass one to a model and read afterwards, for every sequence it was shown:

    hidden[layer][sequence]    (length, width); layer 0 is the embedding output
    weights[layer][sequence]   (heads, length, length); attention of block `layer`, rows sum to one
    scores[layer][sequence]    the same before the softmax; -inf where the scope forbids
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan, Group


@dataclass
class _Batch:
    layout: Layout
    vectors: list[Tensor] = field(default_factory=list)  # each (tokens, width)
    attention: list[dict[int, tuple[Tensor, Tensor]]] = field(default_factory=list)  # weights and scores, by sequence


class Trace:
    """Collects every layer's vectors (`hidden`), and attention weights and scores (`attention`), of one batch or more.

    With `gradients` it keeps their graphs, for losses on hidden layers and attention; otherwise they are detached.
    `encodings` is filled by the verbs that make the batches from texts.
    """

    def __init__(self, hidden: bool = True, attention: bool = True, gradients: bool = False):
        self.wants_hidden = hidden
        self.wants_attention = attention
        self.gradients = gradients
        self.encodings: list[Any] = []
        self._batches: list[_Batch] = []

    @property
    def hidden(self) -> list[list[Tensor]]:
        batches = [[batch.layout.split(layer) for layer in batch.vectors] for batch in self._batches]
        return [[part for parts in layers for part in parts] for layers in zip(*batches, strict=True)]

    @property
    def weights(self) -> list[list[Tensor]]:
        return [[weights for weights, _ in block] for block in self._attention()]

    @property
    def scores(self) -> list[list[Tensor]]:
        return [[scores for _, scores in block] for block in self._attention()]

    def _attention(self) -> list[list[tuple[Tensor, Tensor]]]:
        """By block: weights and scores of each sequence of all batches."""
        blocks = zip(*(batch.attention for batch in self._batches), strict=True)
        return [[part[index] for part in parts for index in sorted(part)] for parts in blocks]

    @property
    def packed(self) -> list[Tensor]:
        """By layer: the vectors (tokens, width) of the last batch, still packed."""
        return self._batches[-1].vectors

    def begin(self, layout: Layout, *hidden: Tensor) -> None:
        self._batches.append(_Batch(layout))
        for vectors in hidden:
            self.add_hidden(vectors)

    def add_hidden(self, hidden: Tensor) -> None:
        if self.wants_hidden:
            self._batches[-1].vectors.append(hidden if self.gradients else hidden.detach())

    def begin_attention(self) -> None:
        self._batches[-1].attention.append({})

    def add_attention(self, group: Group, scores: Tensor, plan: AttentionPlan) -> None:
        """Keep scores (count, heads, queries, keys) of one group of the current block, holes cut off."""
        if not self.gradients:
            scores = scores.detach()
        weights = scores.softmax(-1)
        if group.fully_masked is not None:
            weights = weights.masked_fill(group.fully_masked, 0.0)
            scores = scores.masked_fill(group.fully_masked, float("-inf"))
        block = self._batches[-1].attention[-1]
        for row, index in enumerate(group.sequences):
            real = (row, slice(None), slice(plan.queries.lengths[index]), slice(plan.keys.lengths[index]))
            block[index] = weights[real], scores[real]


class PairTrace:
    """A trace of source and target, and of `across`: weights[layer][pair] are (heads, target length, source length)."""

    def __init__(self, hidden: bool = True, gradients: bool = False):
        self.source, self.target = Trace(hidden, gradients=gradients), Trace(hidden, gradients=gradients)
        self.across = Trace(hidden=False, gradients=gradients)

    def __iter__(self) -> Iterator[Trace]:
        return iter((self.source, self.target, self.across))
