"""Trace: what a model computed on the way, collected without changing a number.

Pass one to a model and read afterwards, for every sequence it was shown:

    hidden[layer][sequence]    (length, width); layer 0 is the embedding output
    weights[layer][sequence]   (heads, length, length); attention of block `layer`, rows sum to one
    scores[layer][sequence]    the same before the softmax; -inf where the scope forbids
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan, Group


@dataclass
class _Batch:
    layout: Layout
    vectors: list[Tensor] = field(default_factory=list)  # each (tokens, width)
    scores: list[dict[int, Tensor]] = field(default_factory=list)  # of each block, by sequence
    weights: list[dict[int, Tensor]] = field(default_factory=list)


class Trace:
    """Collects every layer's vectors (`hidden`), and attention weights and scores (`attention`).

    With `gradients` it keeps their graphs, for losses on hidden layers and attention (TinyBERT's); otherwise they are
    detached. One trace may follow several batches; its lists then go on from one batch to the next. `encodings` is
    filled by the verbs that make the batches from texts.
    """

    def __init__(self, hidden: bool = True, attention: bool = True, gradients: bool = False):
        self.wants_hidden = hidden
        self.wants_attention = attention
        self.gradients = gradients
        self.encodings: list[Any] = []
        self._batches: list[_Batch] = []

    @property
    def hidden(self) -> list[list[Tensor]]:
        """By layer, then by sequence: (length, width)."""
        batches = [[batch.layout.split(layer) for layer in batch.vectors] for batch in self._batches]
        return [[part for parts in layers for part in parts] for layers in zip(*batches, strict=True)]

    @property
    def weights(self) -> list[list[Tensor]]:
        """By block, then by sequence: (heads, queries, keys)."""
        return _in_order([batch.weights for batch in self._batches])

    @property
    def scores(self) -> list[list[Tensor]]:
        """By block, then by sequence: (heads, queries, keys)."""
        return _in_order([batch.scores for batch in self._batches])

    @property
    def packed(self) -> list[Tensor]:
        """By layer: the vectors (tokens, width) of the last batch, still packed."""
        return self._batches[-1].vectors

    def begin(self, layout: Layout) -> None:
        """A model starts on a new batch."""
        self._batches.append(_Batch(layout))

    def add_hidden(self, hidden: Tensor) -> None:
        """Keep the vectors (tokens, width) of one more layer."""
        if self.wants_hidden:
            self._batches[-1].vectors.append(hidden if self.gradients else hidden.detach())

    def begin_attention(self) -> None:
        """A block starts to attend."""
        self._batches[-1].scores.append({})
        self._batches[-1].weights.append({})

    def add_attention(self, group: Group, scores: Tensor, plan: AttentionPlan) -> None:
        """Keep scores (count, heads, queries, keys) of one group of the current block, holes cut off."""
        if not self.gradients:
            scores = scores.detach()
        weights = scores.softmax(-1)
        if group.fully_masked is not None:
            weights = weights.masked_fill(group.fully_masked, 0.0)
            scores = scores.masked_fill(group.fully_masked, float("-inf"))
        batch = self._batches[-1]
        for row, index in enumerate(group.sequences):
            queries, keys = plan.queries.lengths[index], plan.keys.lengths[index]
            batch.scores[-1][index] = scores[row, :, :queries, :keys]
            batch.weights[-1][index] = weights[row, :, :queries, :keys]


class PairTrace:
    """The same for a model that turns a source into a target: a trace of each side, and one of what lies between.

    source.hidden, source.weights      the encoder's layers
    target.hidden, target.weights      the decoder's layers, and how its tokens look at each other
    across.weights[layer][pair]        (heads, target length, source length): which source token a target token looks at
    """

    def __init__(self, hidden: bool = True, attention: bool = True, gradients: bool = False):
        self.source = Trace(hidden, attention, gradients)
        self.target = Trace(hidden, attention, gradients)
        self.across = Trace(False, attention, gradients)


def _in_order(batches: list[list[dict[int, Tensor]]]) -> list[list[Tensor]]:
    return [
        [by_sequence[index] for by_sequence in blocks for index in sorted(by_sequence)]
        for blocks in zip(*batches, strict=True)
    ]
