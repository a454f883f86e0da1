"""Transformer: an encoder reads the source, a decoder writes the target, and both know only attention.

Idea: recurrence makes tokens wait for each other; let every token look at all others at once instead, and say where
each one stands by a sum of sines.
Departures from sequence-to-sequence RNNs:
  1. self-attention takes the place of recurrence; the decoder's looks only at what came before;
  2. every decoder layer looks at the encoder's last layer, with several heads;
  3. positions are sinusoids added to the embeddings, which are scaled by sqrt(width);
  4. source, target and scores share one table of tokens.
As options, what was found later: the norm before each part instead of after it, with one more norm on top of each side
(Wang et al. 2019), separate tables, a bias on the scores, and a start token without a vector (Marian's).
Paper: Vaswani et al. 2017, "Attention Is All You Need".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Family, Head, Keys, Preset, init_xavier
from kinfolk.nn.activations import ACTIVATIONS
from kinfolk.nn.blocks import Stack, build_block
from kinfolk.nn.embeddings import ARRANGEMENTS, sinusoids
from kinfolk.nn.fast.linear import Dropout, Embedding, Norm
from kinfolk.nn.heads import VocabularyHead
from kinfolk.nn.packed import Tokens
from kinfolk.nn.scopes import Causal, Full
from kinfolk.nn.state import DecoderState
from kinfolk.nn.trace import PairTrace, Trace

NORMS = ("post", "pre")
FIRST_POSITIONS = 64  # of a state; they double when they are used up
SIDE = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.")


@dataclass(frozen=True)
class TransformerConfig(TranslationConfig):
    width: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    inner_width: int = 2048
    positions: int = 512  # tokens of a source or a target, as a promise to the reader: sinusoids go on for ever
    activation: str = "relu"
    attention_dropout: float = 0.0
    inner_dropout: float = 0.0
    norm: str = "post"
    norm_epsilon: float = 1e-5
    sinusoid: str = "interleaved"
    scale_embedding: bool = True
    output_bias: bool = False
    zero_start: bool = False  # the start token is a place and nothing else

    sizes: ClassVar = (*TranslationConfig.sizes, "encoder_layers", "decoder_layers", "heads", "inner_width")
    choices: ClassVar = {"activation": tuple(ACTIVATIONS), "sinusoid": ARRANGEMENTS, "norm": NORMS}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads or self.width % 2:
            raise ConfigError(f"width {self.width} must be even and divisible by the number of heads, {self.heads}")


class Transformer(nn.Module):
    """Source and target tokens -> vectors of the target, each of which tells what comes next."""

    attends = True  # it looks at its source while it writes

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config, self.depth = config, config.encoder_layers + config.decoder_layers
        self.scale = math.sqrt(config.width) if config.scale_embedding else 1.0
        self.source_table = Embedding(config.vocabulary_size, config.width)
        self.target_table = None if config.shared_tables else Embedding(config.target_vocabulary, config.width)
        self.encoder = self.build_stack(config, config.encoder_layers, cross=False)
        self.decoder = self.build_stack(config, config.decoder_layers, cross=True)
        self.dropout = Dropout(config.dropout)

    def build_stack(self, config: TransformerConfig, layers: int, cross: bool) -> Stack:
        blocks = [build_block(config, config.norm, config.inner_dropout, cross) for _ in range(layers)]
        return Stack(blocks, Norm(config.width, config.norm_epsilon) if config.norm == "pre" else None)

    @property
    def token_embedding(self) -> Embedding:
        return self.source_table if self.target_table is None else self.target_table

    def encode(self, source: Tokens, trace: Trace | None = None) -> Tensor:
        hidden = self._embed(F.embedding(source.ids, self.source_table.weight), source)
        if trace is not None:
            trace.begin(source.layout, hidden)
        return self.encoder(hidden, Full().plan(source.layout), trace=trace)  # type: ignore[no-any-return]

    def forward(self, source: Tokens, target: Tokens, trace: PairTrace | None = None) -> Tensor:
        """Teacher forcing: target i is written for source i, each of its tokens by those up to it: (m, width).

        `target` begins with the start token; the vector at a token tells what comes after it.
        """
        sources, own, across = trace or (None, None, None)
        read = self.encode(source, sources)
        hidden = self._embed(self._target_vectors(target.ids), target)
        if own is not None and across is not None:
            own.begin(target.layout, hidden)
            across.begin(target.layout)
        looks = (read, Full().plan(target.layout, source.layout), across)
        return self.decoder(hidden, Causal().plan(target.layout), trace=own, source=looks)  # type: ignore[no-any-return]

    def start(self, source: Tokens, beams: int) -> DecoderState:
        read = self.encode(source)
        state = DecoderState.of(self.decoder, source.layout.sequences, beams, read, (read, source.layout))
        return replace(state, positions=self._positions(FIRST_POSITIONS, read))

    def step(self, ids: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        position, positions = state.cache.steps, state.positions
        assert positions is not None
        if position == len(positions):
            positions = self._positions(2 * position, positions)
            state = replace(state, positions=positions)
        hidden = torch.add(positions[position], self._target_vectors(ids), alpha=self.scale)
        return self.decoder.step(self.dropout(hidden), state)

    def _target_vectors(self, ids: Tensor) -> Tensor:
        vectors = F.embedding(ids, self.token_embedding.weight)
        if not self.config.zero_start:
            return vectors
        return vectors.masked_fill_((ids == self.config.start_id).unsqueeze(1), 0.0)

    def _embed(self, vectors: Tensor, tokens: Tokens) -> Tensor:
        positions = self._positions(max(tokens.layout.lengths, default=0), vectors)[tokens.layout.positions]
        return self.dropout(torch.add(positions, vectors, alpha=self.scale))  # type: ignore[no-any-return]

    def _positions(self, length: int, like: Tensor) -> Tensor:
        return sinusoids(length, self.config.width, self.config.sinusoid, like.device).to(like.dtype)

    def layer_id(self, name: str) -> int:
        match, below = SIDE.match(name), self.config.encoder_layers
        if match:
            return int(match[2]) + 1 + (below if match[1] == "decoder" else 0)
        if name.startswith("encoder."):
            return below
        return 0 if name.endswith("_table.weight") else self.depth + 1


BIG = TransformerConfig(width=1024, heads=16, inner_width=4096, dropout=0.3)
SMALL = TransformerConfig(
    vocabulary_size=8_000, width=256, encoder_layers=3, decoder_layers=3, heads=4, inner_width=1024
)
TINY = replace(SMALL, vocabulary_size=2_000, width=128, encoder_layers=2, decoder_layers=2, inner_width=512)
PRESETS = {
    "transformer-base": Preset(TransformerConfig(), "65M"),
    "transformer-big": Preset(BIG, "213M"),
    "transformer-small": Preset(SMALL),
    "transformer-tiny": Preset(TINY),
}
KEYS: Keys = {"": ""} | {  # ours: those of our files; others are the same
    f"{side}.{ours}": f"{side}{theirs}"
    for side in ("encoder", "decoder")
    for ours, theirs in {
        "blocks.{}.feed_forward.up": ".blocks.{}.feed_forward.widen",
        "blocks.{}.feed_forward.down": ".blocks.{}.feed_forward.narrow",
        "final_norm": "_norm",
    }.items()
}
NEXT_TOKEN = Head(  # the table of the target's tokens scores them
    lambda config, labels: VocabularyHead(config.width, config.target_vocabulary, bias=config.output_bias),
    "Transformer",
    {"bias": "output_bias"},
)

FAMILY = Family(
    name="kinfolk-transformer",
    title="Transformer",
    idea="reads a source and writes a target with attention alone",
    paper="Vaswani et al. 2017",
    config=TransformerConfig,
    body=Transformer,
    presets=PRESETS,
    keys=KEYS,
    heads={"next_token": NEXT_TOKEN},
    default_heads=("next_token",),
    initialize=init_xavier,
)
