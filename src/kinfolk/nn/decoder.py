"""A decoder: blocks whose tokens look at what came before them, then at the source.

    x ── self-attention ── cross-attention ── feed-forward ──>      each with its residual path and norm
                                  ↑
                             the encoder's last layer

Vaswani et al. 2017, section 3.1. The whole target at once while training, one token of each row while generating.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from kinfolk.nn.attention import CrossAttention
from kinfolk.nn.blocks import BlockSettings, Layer
from kinfolk.nn.norm import Norm
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan
from kinfolk.nn.state import CrossCache, KeyValueCache
from kinfolk.nn.trace import PairTrace


class DecoderBlock(Layer):
    """One layer of a decoder."""

    def __init__(self, config: BlockSettings, norm: str = "post", inner_dropout: float = 0.0):
        super().__init__(config, norm, inner_dropout)
        self.cross = CrossAttention(config.width, config.heads, config.attention_dropout)
        self.cross_norm = Norm(config.width, config.norm_epsilon)

    def forward(
        self, hidden: Tensor, plan: AttentionPlan, source: Tensor, across: AttentionPlan, trace: PairTrace | None = None
    ) -> Tensor:
        own, between = (None, None) if trace is None else (trace.target, trace.across)
        hidden = self.residual(hidden, self.attention_norm, lambda x: self.attention(x, plan, None, own))
        hidden = self.residual(hidden, self.cross_norm, lambda x: self.cross(x, source, across, between))
        return self.residual(hidden, self.feed_forward_norm, self.feed_forward)

    def step(self, hidden: Tensor, cache: KeyValueCache, source: CrossCache, layer: int) -> Tensor:
        """The newest token of each row: (rows, width) -> (rows, width)."""
        hidden = self.residual(hidden, self.attention_norm, lambda x: self.attention.step(x, cache, layer))
        hidden = self.residual(hidden, self.cross_norm, lambda x: self.cross.step(x, source, layer))
        return self.residual(hidden, self.feed_forward_norm, self.feed_forward)


@dataclass(frozen=True)
class DecoderState:
    """What a decoder remembers: its past, its sources, and the vectors of positions, some of them still to come."""

    cache: KeyValueCache
    source: CrossCache
    positions: Tensor  # (places, width)

    @property
    def beams(self) -> int:
        return self.cache.beams

    def reorder(self, rows: Tensor) -> DecoderState:
        """Row i goes on from what row rows[i] was."""
        return DecoderState(self.cache.reorder(rows), self.source, self.positions)

    def keep(self, sentences: Tensor) -> DecoderState:
        """Only these sentences, with all their beams."""
        return DecoderState(self.cache.keep(sentences), self.source.keep(sentences), self.positions)


class Decoder(nn.Module):
    """Blocks on top of each other."""

    def __init__(self, blocks: Sequence[DecoderBlock]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self, hidden: Tensor, plan: AttentionPlan, source: Tensor, across: AttentionPlan, trace: PairTrace | None = None
    ) -> Tensor:
        """Targets (m, width) and their sources (n, width) -> (m, width); `across` binds the two layouts."""
        for block in self.blocks:
            hidden = block(hidden, plan, source, across, trace)
            if trace is not None:
                trace.target.add_hidden(hidden)
        return hidden

    def start(self, source: Tensor, layout: Layout, beams: int, positions: Tensor) -> DecoderState:
        """Nothing written yet; the sources' keys and values are computed here, once."""
        attentions: list[CrossAttention] = [block.cross for block in self.blocks]  # type: ignore[misc]
        keys = CrossCache.of([attention.project(source) for attention in attentions], layout)
        first = attentions[0]
        cache = KeyValueCache.empty(
            len(attentions), layout.sequences, beams, first.heads, first.head_width, like=source
        )
        return DecoderState(cache, keys, positions)

    def step(self, hidden: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """One token more of each row: (rows, width) -> (rows, width)."""
        cache = state.cache.opened()
        for layer, block in enumerate(self.blocks):
            hidden = block.step(hidden, cache, state.source, layer)  # type: ignore[operator]
        return hidden, DecoderState(cache, state.source, state.positions)
