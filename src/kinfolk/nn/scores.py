"""Attention between two recurrent networks: a score for each source state, a softmax, a context vector.

    e_tj = score(h_t, s_j)       dot          h's                        both as wide
                                 bilinear     h'W s                      Luong et al. 2015, "general"
                                 additive   w2' tanh(W1 [h; s])        Bahdanau et al. 2014
    a_t  = softmax(e_t)          over the states of its source
    c_t  = sum over j of a_tj s_j
    g_t  = tanh(W [h_t; c_t])    what the prediction is made from: Luong et al. 2015, equation 5

Unlike multi-head attention (attention.py) it has one head and no root, and the states themselves are mixed. What a
score computes from a source alone (`keys`) is computed once per sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn

from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan, Group
from kinfolk.nn.state import RecurrentState, keep_lengths, source_padding
from kinfolk.nn.trace import Trace


class Score(nn.Module):
    """Queries (…, m, width) and keys (…, n, key width) -> (…, m, n). Itself the dot product."""

    def keys(self, source: Tensor) -> Tensor:
        """Source states (…, width) -> keys (…, key width)."""
        return source

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(-1, -2)


class Bilinear(Score):
    """h'W s."""

    def __init__(self, width: int, source_width: int):
        super().__init__()
        self.matrix = Linear(source_width, width, bias=False)

    def keys(self, source: Tensor) -> Tensor:
        return self.matrix(source)  # type: ignore[no-any-return]


class AdditiveAttention(Score):
    """w2' tanh(W1 [h; s]): W1 is kept as the part that reads h and the part that reads s."""

    def __init__(self, width: int, source_width: int, inner_width: int):
        super().__init__()
        self.target = Linear(width, inner_width, bias=False)
        self.source = Linear(source_width, inner_width, bias=False)
        self.output = Linear(inner_width, 1, bias=False)

    def keys(self, source: Tensor) -> Tensor:
        return self.source(source)  # type: ignore[no-any-return]

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        inner = torch.tanh(self.target(queries).unsqueeze(-2) + keys.unsqueeze(-3))  # (…, m, n, inner width)
        return self.output(inner).squeeze(-1)  # type: ignore[no-any-return]


SCORES = ("dot", "bilinear", "additive")


def build_score(kind: str, width: int, source_width: int, inner_width: int) -> Score:
    """One of `SCORES`; only the additive one has an inner width."""
    if kind == "additive":
        return AdditiveAttention(width, source_width, inner_width)
    return Bilinear(width, source_width) if kind == "bilinear" else Score()


def contexts(score: Score, target: Tensor, source: Tensor, plan: AttentionPlan, trace: Trace | None = None) -> Tensor:
    """Context vectors: packed targets (m, width) look at packed sources (n, source width): (m, source width).

    An empty source has nothing to look at: zeros.
    """
    trace = trace if trace is not None and trace.wants_attention else None
    if trace is not None:
        trace.begin_attention()
    keys, outputs = score.keys(source).unsqueeze(1), []
    for group in plan.groups:
        queries = group.queries.take(target.unsqueeze(1))  # (count, 1, m, width): one head
        scores = _masked(score(queries, group.keys.take(keys)), group)
        mixed = scores.softmax(-1) @ group.keys.take(source.unsqueeze(1))
        outputs.append(group.queries.unpad(mixed).squeeze(1))
        if trace is not None:
            trace.add_attention(group, scores, plan)
    joined = torch.cat(outputs) if outputs else source.new_zeros(0, source.shape[1])
    return joined if plan.order is None else joined.index_select(0, plan.order)


def _masked(scores: Tensor, group: Group) -> Tensor:
    return scores if group.mask is None else scores.masked_fill(~group.mask, float("-inf"))


@dataclass(frozen=True)
class SourceStates:
    """The sources of a batch while their targets are written: padded, each sentence once, whatever the beams."""

    keys: Tensor  # (sentences, longest, key width)
    states: Tensor  # (sentences, longest, source width)
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, score: Score, source: Tensor, layout: Layout) -> SourceStates:
        """From packed states (n, source width)."""
        keys, states = layout.pad(score.keys(source)), layout.pad(source)
        if states.shape[1] == 0:  # only empty sources: one state of zeros, which adds nothing
            keys, states = (padded.new_zeros(len(padded), 1, padded.shape[2]) for padded in (keys, states))
        return cls(keys, states, layout.lengths)

    @cached_property
    def padding(self) -> Tensor | None:
        """(sentences, 1, longest): True behind a source's end; nowhere in an empty one, whose states are zeros."""
        padding = source_padding(self.lengths, self.states.shape[1], self.states.device)
        return None if padding is None else padding.unsqueeze(1)

    def keep(self, sentences: Tensor) -> SourceStates:
        lengths, longest = keep_lengths(self.lengths, sentences)
        keys, states = (padded[:, :longest].index_select(0, sentences) for padded in (self.keys, self.states))
        return SourceStates(keys, states, lengths)


@dataclass(frozen=True)
class LookingState(RecurrentState):
    """A recurrent state that also holds the sources."""

    source: SourceStates

    def keep(self, sentences: Tensor) -> Self:
        return replace(super().keep(sentences), source=self.source.keep(sentences))


class LuongAttention(nn.Module):
    """The decoder's look at its source after each step: h_t -> g_t = tanh(W [h_t; c_t]), both (…, width)."""

    def __init__(self, score: Score, width: int, source_width: int):
        super().__init__()
        self.score = score
        self.combine = Linear(width + source_width, width)

    def forward(self, hidden: Tensor, source: Tensor, plan: AttentionPlan, trace: Trace | None = None) -> Tensor:
        """All targets at once: (m, width) and their sources (n, source width) -> (m, width)."""
        return self._combined(hidden, contexts(self.score, hidden, source, plan, trace))

    def start(self, state: RecurrentState, source: Tensor, layout: Layout) -> LookingState:
        """Nothing written yet."""
        return LookingState(state.beams, state.memory, SourceStates.of(self.score, source, layout))

    def step(self, hidden: Tensor, state: LookingState) -> Tensor:
        """The newest vector of each row: (rows, width) -> (rows, width)."""
        source = state.source
        queries = hidden.view(len(source.states), state.beams, -1)
        scores = self.score(queries, source.keys)  # (sentences, beams, longest)
        if source.padding is not None:
            scores = scores.masked_fill(source.padding, float("-inf"))
        return self._combined(hidden, (scores.softmax(-1) @ source.states).flatten(0, 1))

    def _combined(self, hidden: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.combine(torch.cat([hidden, context], -1)))
