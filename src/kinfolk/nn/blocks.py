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
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.errors import InputError
from kinfolk.nn.attention import Attention, CrossAttention, record_attention
from kinfolk.nn.fast.inference_cache import CachedStack, InferenceCache, parts, run
from kinfolk.nn.fast.kernels import Bias
from kinfolk.nn.fast.linear import ActivatedLinear, Dropout, Linear, Norm, add, dropout, is_tracing
from kinfolk.nn.scopes import AttentionPlan
from kinfolk.nn.state import CrossCache, DecoderState, KeyValueCache
from kinfolk.nn.trace import Trace

# What cross-attention looks at: the encoder's vectors (n, width), target x source as a plan, and perhaps a trace of it.
CrossSource = tuple[Tensor, AttentionPlan, Trace | None]


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


class Block(nn.Module):
    """One layer: self-attention, perhaps cross-attention, and a feed-forward network, each with residual and norm."""

    def __init__(
        self,
        attention: Attention,
        feed_forward: nn.Module,
        norm: Callable[[], nn.Module],
        cross: CrossAttention | None = None,
        pre_norm: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.pre_norm = pre_norm
        self.attention, self.attention_norm = attention, norm()
        self.feed_forward, self.feed_forward_norm = feed_forward, norm()
        self.dropout = Dropout(dropout)
        self.cross, self.cross_norm = cross, None if cross is None else norm()

    def forward(
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        bias: Bias | None = None,
        trace: Trace | None = None,
        source: CrossSource | None = None,
    ) -> Tensor:
        """(tokens, width) -> (tokens, width), or of the plan's `rows` alone."""
        hidden = self._residual(hidden, self.attention_norm, lambda x: self.attention(x, plan, bias, trace), plan.rows)
        if source is not None:
            hidden = self._residual(hidden, self.cross_norm, lambda x: self.cross(x, *source))  # type: ignore[misc]
        return self._residual(hidden, self.feed_forward_norm, self.feed_forward)

    def prefill(
        self, hidden: Tensor, plan: AttentionPlan, cache: KeyValueCache, layer: int, bias: Bias | None = None
    ) -> Tensor:
        attend = partial(self.attention.prefill, plan=plan, cache=cache, layer=layer, bias=bias)
        hidden = self._residual(hidden, self.attention_norm, attend)
        return self._residual(hidden, self.feed_forward_norm, self.feed_forward)

    def step(self, hidden: Tensor, cache: KeyValueCache, layer: int, source: CrossCache | None = None) -> Tensor:
        hidden = self._residual(hidden, self.attention_norm, lambda x: self.attention.step(x, cache, layer))
        if source is not None:
            hidden = self._residual(hidden, self.cross_norm, lambda x: self.cross.step(x, source, layer))  # type: ignore[union-attr]
        return self._residual(hidden, self.feed_forward_norm, self.feed_forward)

    def _residual(
        self, hidden: Tensor, norm: Any, part: Callable[[Tensor], Tensor], rows: Tensor | None = None
    ) -> Tensor:
        """norm(x + part(x)), or x + part(norm(x)); `part` makes a fresh tensor (of these rows)."""
        kept = hidden if rows is None else hidden.index_select(0, rows)
        change = part(norm(hidden) if self.pre_norm else hidden)
        total = add(kept, self.dropout(change) if self.training else change)
        return total if self.pre_norm else norm(total)


def build_block(config: Any, norm: str = "post", inner_dropout: float = 0.0, cross: bool = False) -> Block:
    """A block of the usual parts, of the sizes in a model's config; with `cross`, one of a translator's decoder."""
    sizes = (config.width, config.heads, config.attention_dropout)
    attention = Attention(*sizes)
    inner = FeedForward(config.width, config.inner_width, config.activation, inner_dropout)
    norms = partial(Norm, config.width, config.norm_epsilon)
    return Block(attention, inner, norms, CrossAttention(*sizes) if cross else None, norm == "pre", config.dropout)


class Stack(nn.Module):
    """Blocks on top of each other: layer i is `blocks[i]`; over the last of pre-norm blocks lies a `final_norm`."""

    def __init__(self, blocks: Sequence[Block], final_norm: nn.Module | None = None):
        super().__init__()
        self.final_norm = final_norm
        self.blocks = nn.ModuleList(blocks)
        self.layers = len(blocks)
        self.inference_cache = InferenceCache()

    def block(self, layer: int) -> Block:
        return self.blocks[layer]  # type: ignore[return-value]

    def forward(
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        bias: Bias | None = None,
        trace: Trace | None = None,
        depth: int | None = None,
        source: CrossSource | None = None,
    ) -> Tensor:
        """Run the first `depth` layers (all by default), giving each layer's vectors to the trace."""
        depth = self.layers if depth is None else depth
        if not 0 <= depth <= self.layers:
            raise InputError(f"depth={depth}: there are {self.layers} layers")
        # For speed alone: the loop below gives the same vectors.
        if hidden.dtype is torch.float32 and hidden.shape[0] > 0 and (cached := self.cached()) is not None:
            small = cached.small_batch if bias is None else None
            if small is not None and small.fits(hidden, plan):
                if trace is None:
                    return small.run(hidden, plan, 0, depth)
                for layer, block in enumerate(cached.blocks[:depth]):  # with the same numbers as in one call
                    if trace.wants_attention:
                        record_attention((block.attention.project(hidden),), plan, None, trace)
                    hidden = small.run(hidden, plan, layer, layer + 1)
                    trace.add_hidden(hidden)
                return hidden
            if trace is None and cached.packed is not None:
                return run(cached.packed[:depth], hidden, plan, bias)
        for layer in range(depth):
            hidden = self.block(layer)(hidden, plan, bias, trace, source=source)
            if layer + 1 == self.layers and self.final_norm is not None:
                hidden = self.final_norm(hidden)
            if trace is not None:
                trace.add_hidden(hidden)
        return hidden

    def prefill(
        self, hidden: Tensor, plan: AttentionPlan, state: DecoderState, bias: Bias | None = None
    ) -> tuple[Tensor, DecoderState]:
        """Read prompts, one per sentence, of any lengths: (tokens, width) -> (tokens, width), and the state after."""
        cache = state.cache.with_prompts(plan.keys)
        for layer in range(self.layers):
            hidden = self.block(layer).prefill(hidden, plan, cache, layer, bias)
        return hidden if self.final_norm is None else self.final_norm(hidden), replace(state, cache=cache)

    def step(self, hidden: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        cache = state.cache.advance()
        for layer in range(self.layers):
            hidden = self.block(layer).step(hidden, cache, layer, state.source)
        return hidden if self.final_norm is None else self.final_norm(hidden), replace(state, cache=cache)

    def cached(self) -> CachedStack | None:
        """Its weights as they were looked up; None while they learn, for a step may follow that changes them unseen."""
        if self.training or torch.is_grad_enabled() or is_tracing():
            self.inference_cache.forget()
            return None
        return self.inference_cache.of(self, _plain_blocks)


class SharedStack(Stack):
    """`layers` layers out of fewer blocks: layer i uses block i * blocks // layers (ALBERT's groups)."""

    def __init__(self, blocks: Sequence[Block], layers: int):
        super().__init__(blocks)
        self.layers = layers

    def block(self, layer: int) -> Block:
        return self.blocks[layer * len(self.blocks) // self.layers]  # type: ignore[return-value]


def _plain_blocks(stack: Stack) -> list[Block] | None:
    """The blocks as layers, where all are post-norm and of the usual parts: the inference cache knows no others."""
    blocks = [stack.block(layer) for layer in range(stack.layers)]
    return blocks if stack.final_norm is None and all(_is_plain(block) for block in blocks) else None


def _is_plain(block: Block) -> bool:
    if (type(block), type(block.attention), type(block.feed_forward)) != (Block, Attention, FeedForward):
        return False
    usual = [type(part) for part in parts(block)] == [Linear, Linear, Norm, ActivatedLinear, Linear, Norm]
    known = sum(len(list(part.parameters())) for part in parts(block)) == len(list(block.parameters()))
    return usual and known and not block.pre_norm and block.cross is None
