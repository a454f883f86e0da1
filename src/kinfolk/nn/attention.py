"""Multi-head attention: Concat(head_1 … head_h) W_O with head_i = softmax(Q_i K_i' / sqrt(head_width)) V_i.

Vaswani et al. 2017, section 3.2.2. Q = x W_Q, K = y W_K, V = y W_V. With y = x it is self-attention, and the three
projections are one matrix: one product instead of three. In cross-attention x is a target and y its source, and keys
and values are one matrix. How the softmax is computed is chosen in fast/kernels.py.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from kinfolk.nn.fast.kernels import Bias, attend, attend_slots
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.scopes import AttentionPlan, Group
from kinfolk.nn.state import CrossCache, KeyValueCache
from kinfolk.nn.trace import Trace


class Attention(nn.Module):
    """Self-attention, (tokens, width) -> (tokens, width); `dropout` acts on the attention weights while training."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = Linear(width, 3 * width)
        self.output = Linear(width, width)

    def forward(
        self, hidden: Tensor, plan: AttentionPlan, bias: Bias | None = None, trace: Trace | None = None
    ) -> Tensor:
        qkv = self.project(hidden)
        if plan.rows is None:
            return _mix(self, (qkv,), plan, bias, trace)
        queries, keys, values = qkv.unbind(1)  # each (tokens, heads, head_width)
        return _mix(self, (queries.index_select(0, plan.rows), keys, values), plan, bias, trace)

    def prefill(
        self, hidden: Tensor, plan: AttentionPlan, cache: KeyValueCache, layer: int, bias: Bias | None = None
    ) -> Tensor:
        qkv = self.project(hidden)
        cache.write_prompts(layer, qkv[:, 1:], plan.keys)
        return _mix(self, (qkv,), plan, bias)

    def step(self, hidden: Tensor, cache: KeyValueCache, layer: int) -> Tensor:
        """The newest token of each row looks at itself and at what came before: (rows, width) -> (rows, width)."""
        qkv = self.project(hidden)
        keys, values = cache.write(layer, qkv[:, 1:])
        return self.output(attend_slots(qkv[:, 0], keys, values, cache.mask))  # type: ignore[no-any-return]

    def project(self, hidden: Tensor) -> Tensor:
        """Queries, keys and values: (tokens, 3, heads, head_width)."""
        projected = self.qkv(hidden)
        return projected.view(len(hidden), 3, self.heads, projected.shape[1] // (3 * self.heads))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """A target (m, width) looks at its source (n, width): (m, width)."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.dropout = dropout
        self.queries = Linear(width, width)
        self.keys_values = Linear(width, 2 * width)
        self.output = Linear(width, width)

    def forward(self, hidden: Tensor, source: Tensor, plan: AttentionPlan, trace: Trace | None = None) -> Tensor:
        return _mix(self, (self._project_queries(hidden), *self.project(source).unbind(1)), plan, trace=trace)

    def step(self, hidden: Tensor, source: CrossCache, layer: int) -> Tensor:
        """The newest token of each row looks at its source: (rows, width) -> (rows, width)."""
        keys, values = source.slots[layer].unbind(0)
        return self.output(attend_slots(self._project_queries(hidden), keys, values, source.mask))  # type: ignore[no-any-return]

    def project(self, source: Tensor) -> Tensor:
        """Keys and values of a source: (n, 2, heads, head_width)."""
        return self.keys_values(source).view(len(source), 2, self.heads, self.head_width)  # type: ignore[no-any-return]

    def _project_queries(self, hidden: Tensor) -> Tensor:
        return self.queries(hidden).view(len(hidden), self.heads, self.head_width)  # type: ignore[no-any-return]


def _mix(
    part: Any, projected: tuple[Tensor, ...], plan: AttentionPlan, bias: Bias | None = None, trace: Trace | None = None
) -> Tensor:
    if trace is not None:
        record_attention(projected, plan, bias, trace)
    mixed = attend(projected, plan, bias, part.dropout if part.training else 0.0)
    return part.output(mixed.flatten(1))  # type: ignore[no-any-return]


def record_attention(projected: tuple[Tensor, ...], plan: AttentionPlan, bias: Bias | None, trace: Trace) -> None:
    if not trace.wants_attention:
        return
    trace.begin_attention()
    for group in plan.groups:
        q, k, _ = group.take(projected)
        trace.add_attention(group, attention_scores(q, k, group, bias), plan)


def attention_scores(q: Tensor, k: Tensor, group: Group, bias: Bias | None = None) -> Tensor:
    """Q K' / sqrt(head_width) + bias, -inf where the group's mask forbids: the definition.

    (count, heads, m, head_width) and (count, heads, n, head_width) -> (count, heads, m, n).
    """
    scores: Tensor = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias(group, q)
    allowed = group.allowed(q.device)
    return scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))
