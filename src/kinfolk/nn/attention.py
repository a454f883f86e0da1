"""Multi-head attention: Concat(head_1 … head_h) W_O with head_i = attend(x W_Q, y W_K, y W_V).

Vaswani et al. 2017, section 3.2.2. With y = x it is self-attention, and the three projections are one matrix: one
product instead of three. Across, x is a target and y its source, and the keys and values are one matrix.
"""

from __future__ import annotations

from torch import Tensor, nn

from kinfolk.nn.fast.kernels import Bias, attend, attend_own, attend_slots
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.scopes import AttentionPlan
from kinfolk.nn.state import CrossCache, KeyValueCache
from kinfolk.nn.trace import Trace


class Attention(nn.Module):
    """(tokens, width) -> (tokens, width); `dropout` acts on the attention weights while training."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = Linear(width, 3 * width)
        self.output = Linear(width, width)

    def forward(
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        bias: Bias | None = None,
        trace: Trace | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """With `at`, only these rows look; they are the queries of `bound`."""
        qkv = self.qkv(hidden).view(len(hidden), 3, self.heads, -1)
        dropout = self.dropout if self.training else 0.0
        if at is None:
            mixed = attend_own(qkv, plan, bias, dropout, trace)
        else:
            queries, keys, values = qkv.unbind(1)  # each (tokens, heads, head_width)
            mixed = attend(queries.index_select(0, at), keys, values, plan, bias, dropout, trace)
        return self.output(mixed.flatten(1))  # type: ignore[no-any-return]

    def step(self, hidden: Tensor, cache: KeyValueCache, layer: int) -> Tensor:
        """The newest token of each row looks at itself and at what came before: (rows, width) -> (rows, width)."""
        qkv = self.qkv(hidden).view(len(hidden), 3, self.heads, -1)
        keys, values = cache.put(layer, qkv[:, 1:])
        return self.output(attend_slots(qkv[:, 0], keys, values, cache.mask))  # type: ignore[no-any-return]


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
        keys, values = self.project(source).unbind(1)
        dropout = self.dropout if self.training else 0.0
        mixed = attend(self._queries(hidden), keys, values, plan, dropout=dropout, trace=trace)
        return self.output(mixed.flatten(1))  # type: ignore[no-any-return]

    def project(self, source: Tensor) -> Tensor:
        """Keys and values of a source: (n, 2, heads, head_width)."""
        return self.keys_values(source).view(len(source), 2, self.heads, self.head_width)  # type: ignore[no-any-return]

    def step(self, hidden: Tensor, source: CrossCache, layer: int) -> Tensor:
        """The newest token of each row looks at its source: (rows, width) -> (rows, width)."""
        mixed = attend_slots(self._queries(hidden), *source.layer(layer), source.mask)
        return self.output(mixed)  # type: ignore[no-any-return]

    def _queries(self, hidden: Tensor) -> Tensor:
        return self.queries(hidden).view(len(hidden), self.heads, self.head_width)  # type: ignore[no-any-return]
