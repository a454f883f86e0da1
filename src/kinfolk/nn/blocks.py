"""Blocks and stacks.

    post-norm (Vaswani et al. 2017)          pre-norm (GPT-2)

    x ──┬── f ── + ── norm ──>               x ──┬── norm ── f ── + ──>
        └────────┘                               └────────────────┘

f is self-attention first; then, in the decoder of a translator, cross-attention to the source (section 3.1 of the
paper); then the feed-forward network. A stack reads all tokens at once (`forward`), or the prompts of a text to be
written (`prefill`) and then one token of each row at a time (`step`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kinfolk.errors import InputError
from kinfolk.nn.attention import Attention, CrossAttention, record_attention
from kinfolk.nn.fast.dropout import Dropout, dropout
from kinfolk.nn.fast.inference_cache import BlockWeights, CachedStack, InferenceCache, run
from kinfolk.nn.fast.kernels import Bias
from kinfolk.nn.fast.linear import ActivatedLinear, Linear, Norm, add, is_tracing
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan
from kinfolk.nn.state import CrossCache, DecoderState, KeyValueCache
from kinfolk.nn.trace import Trace


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2: (tokens, width) -> (tokens, inner_width) -> (tokens, width)."""

    def __init__(self, width: int, inner_width: int, activation: str, dropout: float = 0.0):
        super().__init__()
        self.up = ActivatedLinear(width, inner_width, activation)
        self.down = Linear(inner_width, width)
        self.dropout = dropout

    def forward(self, hidden: Tensor) -> Tensor:
        inner = self.up(hidden)
        if self.training and self.dropout > 0:
            inner = dropout(inner, self.dropout)
        return self.down(inner)  # type: ignore[no-any-return]


class Source(NamedTuple):
    """What cross-attention looks at: the encoder's vectors (n, width), target x source as a plan, and a trace of it."""

    hidden: Tensor
    plan: AttentionPlan
    trace: Trace | None = None


class Block(nn.Module):
    """One layer: self-attention, perhaps cross-attention, and a feed-forward network, each with residual and norm."""

    def __init__(
        self,
        attention: Attention,
        attention_norm: nn.Module,
        feed_forward: nn.Module,
        feed_forward_norm: nn.Module,
        cross: CrossAttention | None = None,
        cross_norm: nn.Module | None = None,
        pre_norm: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.pre_norm = pre_norm
        self.attention, self.attention_norm = attention, attention_norm
        self.feed_forward, self.feed_forward_norm = feed_forward, feed_forward_norm
        self.dropout = Dropout(dropout)
        self.cross, self.cross_norm = cross, cross_norm

    def forward(
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        bias: Bias | None = None,
        trace: Trace | None = None,
        at: Tensor | None = None,
        source: Source | None = None,
    ) -> Tensor:
        """(tokens, width) -> (tokens, width). With `at`, only these rows come out; the plan's queries are they."""
        hidden = self._residual(hidden, self.attention_norm, lambda x: self.attention(x, plan, bias, trace, at), at)
        if source is not None:
            hidden = self._residual(hidden, self.cross_norm, lambda x: self.cross(x, *source))  # type: ignore[misc]
        return self._residual(hidden, self.feed_forward_norm, self.feed_forward)

    def prefill(
        self, hidden: Tensor, plan: AttentionPlan, cache: KeyValueCache, layer: int, bias: Bias | None = None
    ) -> Tensor:
        """As `forward` on prompts, whose keys and values go into the cache."""
        hidden = self._residual(
            hidden, self.attention_norm, lambda x: self.attention.prefill(x, plan, cache, layer, bias)
        )
        return self._residual(hidden, self.feed_forward_norm, self.feed_forward)

    def step(self, hidden: Tensor, cache: KeyValueCache, layer: int, source: CrossCache | None = None) -> Tensor:
        """The newest token of each row: (rows, width) -> (rows, width)."""
        hidden = self._residual(hidden, self.attention_norm, lambda x: self.attention.step(x, cache, layer))
        if source is not None:
            hidden = self._residual(hidden, self.cross_norm, lambda x: self.cross.step(x, source, layer))  # type: ignore[union-attr]
        return self._residual(hidden, self.feed_forward_norm, self.feed_forward)

    def _residual(
        self, hidden: Tensor, norm: nn.Module | None, part: Callable[[Tensor], Tensor], at: Tensor | None = None
    ) -> Tensor:
        """norm(x + part(x)), or x + part(norm(x)); `part` makes a fresh tensor (of the rows `at`)."""
        assert norm is not None
        kept = hidden if at is None else hidden.index_select(0, at)
        change = part(norm(hidden) if self.pre_norm else hidden)
        total = add(kept, self.dropout(change) if self.training else change)
        return total if self.pre_norm else norm(total)


def build_block(config: Any, norm: str = "post", inner_dropout: float = 0.0, cross: bool = False) -> Block:
    """A block of the usual parts, of the sizes in a model's config; with `cross`, one of a translator's decoder."""
    width, heads, epsilon = config.width, config.heads, config.norm_epsilon
    return Block(
        Attention(width, heads, config.attention_dropout),
        Norm(width, epsilon),
        FeedForward(width, config.inner_width, config.activation, inner_dropout),
        Norm(width, epsilon),
        CrossAttention(width, heads, config.attention_dropout) if cross else None,
        Norm(width, epsilon) if cross else None,
        pre_norm=norm == "pre",
        dropout=config.dropout,
    )


class Stack(nn.Module):
    """Blocks on top of each other: layer i is `blocks[i]`."""

    def __init__(self, blocks: Sequence[Block]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.layers = len(blocks)
        self.inference_cache = InferenceCache()

    def block(self, layer: int) -> Block:
        """The block that serves as layer `layer`, counted from 0."""
        return self.blocks[layer]  # type: ignore[return-value]

    def forward(
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        bias: Bias | None = None,
        trace: Trace | None = None,
        depth: int | None = None,
        source: Source | None = None,
    ) -> Tensor:
        """Run the first `depth` layers (all by default), giving each layer's vectors to the trace."""
        depth = self.layers if depth is None else depth
        if not 0 <= depth <= self.layers:
            raise InputError(f"depth={depth}: there are {self.layers} layers")
        # For speed alone: the loop below gives the same vectors.
        if hidden.dtype is torch.float32 and hidden.shape[0] > 0 and (cached := self.cached()) is not None:
            if bias is None and cached.small_batch is not None and cached.small_batch.fits(hidden, plan):
                return _run_small_batch(cached, hidden, plan, trace, depth)
            if trace is None and cached.packed is not None:
                return run(cached.packed[:depth], hidden, plan, bias)
        for layer in range(depth):
            hidden = self.block(layer)(hidden, plan, bias, trace, source=source)
            if trace is not None:
                trace.add_hidden(hidden)
        return hidden

    def start(
        self, sentences: int, beams: int, like: Tensor, source: Tensor | None = None, layout: Layout | None = None
    ) -> DecoderState:
        """Nothing read yet. Keys and values of sources (n, width) are computed here, once."""
        blocks = [self.block(layer) for layer in range(self.layers)]
        first = blocks[0].attention
        cache = KeyValueCache.empty(
            self.layers, sentences, beams, first.heads, first.qkv.in_features // first.heads, like
        )
        if source is None or layout is None:
            return DecoderState(cache)
        return DecoderState(cache, CrossCache.of([block.cross.project(source) for block in blocks], layout))  # type: ignore[union-attr]

    def prefill(
        self, hidden: Tensor, plan: AttentionPlan, state: DecoderState, bias: Bias | None = None
    ) -> tuple[Tensor, DecoderState]:
        """Read prompts, one per sentence, of any lengths: (tokens, width) -> (tokens, width), and the state after."""
        cache = state.cache.with_prompts(plan.keys)
        for layer in range(self.layers):
            hidden = self.block(layer).prefill(hidden, plan, cache, layer, bias)
        return hidden, replace(state, cache=cache)

    def step(self, hidden: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """One token more of each row: (rows, width) -> (rows, width)."""
        cache = state.cache.advance()
        for layer in range(self.layers):
            hidden = self.block(layer).step(hidden, cache, layer, state.source)
        return hidden, replace(state, cache=cache)

    def cached(self) -> CachedStack | None:
        """Its weights as they were looked up; None while they learn, for a step may follow that changes them unseen."""
        if self.training or torch.is_grad_enabled() or is_tracing():
            self.inference_cache.forget()
            return None
        return self.inference_cache.of(self, lambda: (_weights(self.block(layer)) for layer in range(self.layers)))


class SharedStack(Stack):
    """`layers` layers out of fewer blocks: layer i uses block i * blocks // layers (ALBERT's groups)."""

    def __init__(self, blocks: Sequence[Block], layers: int):
        super().__init__(blocks)
        self.layers = layers

    def block(self, layer: int) -> Block:
        return self.blocks[layer * len(self.blocks) // self.layers]  # type: ignore[return-value]


def _run_small_batch(
    cached: CachedStack, hidden: Tensor, plan: AttentionPlan, trace: Trace | None, depth: int
) -> Tensor:
    """In one call, or layer by layer for a trace, with the same numbers."""
    assert cached.small_batch is not None
    if trace is None:
        return cached.small_batch.run(hidden, plan, 0, depth)
    for layer, block in enumerate(cached.blocks[:depth]):
        if trace.wants_attention:
            record_attention((block.qkv(hidden).view(len(hidden), 3, block.heads, -1),), plan, None, trace)
        hidden = cached.small_batch.run(hidden, plan, layer, layer + 1)
        trace.add_hidden(hidden)
    return hidden


def _weights(block: nn.Module) -> BlockWeights | None:
    """A post-norm block's parts for the inference cache; None where one is not the plain one."""
    if type(block) is not Block or block.pre_norm or block.cross is not None:
        return None
    attention, inner = block.attention, block.feed_forward
    if type(attention) is not Attention or type(inner) is not FeedForward:
        return None
    norms, linear = (block.attention_norm, block.feed_forward_norm), (attention.qkv, attention.output, inner.down)
    kinds = {type(norm) is Norm for norm in norms} | {type(layer) is Linear for layer in linear}
    if kinds != {True} or type(inner.up) is not ActivatedLinear:
        return None
    return BlockWeights(attention.heads, attention.qkv, attention.output, norms[0], inner.up, inner.down, norms[1])  # type: ignore[arg-type]
