"""Blocks and stacks.

    post-norm (Vaswani et al. 2017)          pre-norm (GPT-2)

    x ──┬── f ── + ── norm ──>               x ──┬── norm ── f ── + ──>
        └────────┘                               └────────────────┘

f is attention first, then the feed-forward network max(0, x W1 + b1) W2 + b2 (or another activation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from kinfolk.errors import InputError
from kinfolk.nn.attention import Attention
from kinfolk.nn.fast.dropout import Dropout, dropout
from kinfolk.nn.fast.inference_cache import InferenceCache, Layers, Remembered, run
from kinfolk.nn.fast.kernels import ActivatedLinear, Bias, add, watch
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.norm import Norm
from kinfolk.nn.packing import recorded
from kinfolk.nn.scopes import AttentionPlan
from kinfolk.nn.trace import Trace


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2: (tokens, width) -> (tokens, inner_width) -> (tokens, width)."""

    def __init__(self, width: int, inner_width: int, activation: str, dropout: float = 0.0):
        super().__init__()
        self.widen = ActivatedLinear(width, inner_width, activation)
        self.narrow = Linear(inner_width, width)
        self.dropout = dropout

    def forward(self, hidden: Tensor) -> Tensor:
        inner = self.widen(hidden)
        if self.training and self.dropout > 0:
            inner = dropout(inner, self.dropout)
        return self.narrow(inner)  # type: ignore[no-any-return]


class BlockSettings(Protocol):
    """What a block reads of a model's config."""

    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def inner_width(self) -> int: ...
    @property
    def activation(self) -> str: ...
    @property
    def dropout(self) -> float: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def norm_epsilon(self) -> float: ...


class Layer(nn.Module):
    """What the blocks of encoders and decoders share: self-attention, a feed-forward network, and residual paths."""

    def __init__(self, config: BlockSettings, norm: str = "post", inner_dropout: float = 0.0):
        super().__init__()
        self.pre_norm = norm == "pre"
        self.attention = Attention(config.width, config.heads, config.attention_dropout)
        self.attention_norm = Norm(config.width, config.norm_epsilon)
        self.feed_forward = FeedForward(config.width, config.inner_width, config.activation, inner_dropout)
        self.feed_forward_norm = Norm(config.width, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def residual(
        self, hidden: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor], at: Tensor | None = None
    ) -> Tensor:
        """norm(x + part(x)), or x + part(norm(x)); `part` makes a fresh tensor (of the rows `at`)."""
        kept = hidden if at is None else hidden.index_select(0, at)
        change = part(norm(hidden) if self.pre_norm else hidden)
        total = add(kept, self.dropout(change) if self.training else change)
        return total if self.pre_norm else norm(total)


class Block(Layer):
    """One layer of an encoder: attention, then the feed-forward network."""

    def forward(
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        bias: Bias | None = None,
        trace: Trace | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        """With `at`, only these rows come out; they are the queries of `bound`."""
        hidden = self.residual(hidden, self.attention_norm, lambda x: self.attention(x, plan, bias, trace, at), at)
        return self.residual(hidden, self.feed_forward_norm, self.feed_forward)


class Stack(nn.Module):
    """Blocks on top of each other: layer i is `blocks[i]`."""

    def __init__(self, blocks: Sequence[nn.Module]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.layers = len(blocks)
        self._rest = InferenceCache()

    def block(self, layer: int) -> nn.Module:
        """The block that serves as layer number `layer`, counted from 0."""
        return self.blocks[layer]

    def forward(
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        bias: Bias | None = None,
        trace: Trace | None = None,
        depth: int | None = None,
    ) -> Tensor:
        """Run the first `depth` layers (all by default), showing each layer's vectors to the trace."""
        depth = self.layers if depth is None else depth
        if not 0 <= depth <= self.layers:
            raise InputError(f"depth={depth}: there are {self.layers} layers")
        if hidden.dtype is torch.float32 and hidden.shape[0] > 0 and (layers := self._resting()) is not None:
            if bias is None and layers.few is not None and layers.few.fits(hidden, plan):
                return self._few(layers, hidden, plan, trace, depth)
            if trace is None and layers.packed is not None:
                return run(layers.packed[:depth], hidden, plan, bias)
        for layer in range(depth):
            hidden = self.block(layer)(hidden, plan, bias, trace)
            if trace is not None:
                trace.add_hidden(hidden)
        return hidden

    def _few(self, layers: Layers, hidden: Tensor, plan: AttentionPlan, trace: Trace | None, depth: int) -> Tensor:
        """Few tokens: in one call, or layer by layer where somebody looks on, with the same numbers."""
        assert layers.few is not None
        if trace is None:
            return layers.few.run(hidden, plan, 0, depth)
        for layer, block in enumerate(layers.blocks[:depth]):
            if trace.wants_attention:
                watch((block.qkv(hidden).view(len(hidden), 3, block.heads, -1),), plan, None, trace)
            hidden = layers.few.run(hidden, plan, layer, layer + 1)
            trace.add_hidden(hidden)
        return hidden

    def _resting(self) -> Layers | None:
        """Its layers as they are remembered; None while they learn, for a step may follow that changes them unseen."""
        if self.training or torch.is_grad_enabled() or recorded():
            self._rest.forget()
            return None
        return self._rest.layers(self, lambda: (_remembered(self.block(layer)) for layer in range(self.layers)))


class SharedStack(Stack):
    """`layers` layers out of fewer blocks: layer i uses block i * blocks // layers (ALBERT's groups)."""

    def __init__(self, blocks: Sequence[nn.Module], layers: int):
        super().__init__(blocks)
        self.layers = layers

    def block(self, layer: int) -> nn.Module:
        return self.blocks[layer * len(self.blocks) // self.layers]


def _remembered(block: nn.Module) -> Remembered | None:
    """A block's parts for a stack at rest; None where one is not the plain one."""
    if type(block) is not Block or block.pre_norm:
        return None
    attention, inner = block.attention, block.feed_forward
    if type(attention) is not Attention or type(inner) is not FeedForward:
        return None
    norms, linear = (block.attention_norm, block.feed_forward_norm), (attention.qkv, attention.output, inner.narrow)
    kinds = {type(norm) is Norm for norm in norms} | {type(layer) is Linear for layer in linear}
    if kinds != {True} or type(inner.widen) is not ActivatedLinear:
        return None
    return Remembered(attention.heads, attention.qkv, attention.output, norms[0], inner.widen, inner.narrow, norms[1])
