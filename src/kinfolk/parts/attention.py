"""Multi-head self-attention: Concat(head_1 … head_h) W_O with head_i = attend(x W_Q, x W_K, x W_V).

Vaswani et al. 2017, section 3.2.2. The three projections are one matrix: one product instead of three.
"""

from __future__ import annotations

from torch import Tensor, nn

from kinfolk.parts.kernels import Bias, attend
from kinfolk.parts.scopes import Bound
from kinfolk.parts.tables import Linear
from kinfolk.parts.trace import Trace


class Attention(nn.Module):
    """(tokens, width) -> (tokens, width); `dropout` acts on the attention weights while training."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = Linear(width, 3 * width)
        self.output = Linear(width, width)

    def forward(self, hidden: Tensor, bound: Bound, bias: Bias | None = None, trace: Trace | None = None) -> Tensor:
        qkv = self.qkv(hidden).view(len(hidden), 3, self.heads, -1)
        queries, keys, values = qkv.unbind(1)  # each (tokens, heads, head_width)
        mixed = attend(queries, keys, values, bound, bias, self.dropout if self.training else 0.0, trace)
        return self.output(mixed.flatten(1))  # type: ignore[no-any-return]
