"""Sequence to sequence: one recurrent network reads the source, a second one writes the target from where it ended.

Idea: a language model that does not begin with an empty state but with one that has read a source; source and target
may then have different lengths, and both sides are learned together.
Departures from a recurrent language model:
  1. an encoder of the same kind and depth reads the source, perhaps in both directions;
  2. the decoder's layers begin with the final states of the encoder's; of both directions or another width, a learned
     projection (state = W [forward; backward] + b, one for each layer and part of the state);
  3. one table may serve source and target.
Sources are read as they stand, not in reverse as in the paper.
Papers: Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks"; Cho et al. 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Family, Head, Keys, Model, Preset
from kinfolk.models.recurrent_lm import HF_KINDS, RecurrentBody, RecurrentLmConfig, init_recurrent
from kinfolk.nn.fast.linear import Dropout, Embedding, Linear
from kinfolk.nn.heads import VocabularyHead
from kinfolk.nn.packed import Tokens
from kinfolk.nn.recurrent import KINDS, RecurrentStack, stored_names
from kinfolk.nn.scopes import Full
from kinfolk.nn.state import CellState, RecurrentState
from kinfolk.nn.trace import PairTrace, Trace


@dataclass(frozen=True)
class Seq2SeqConfig(TranslationConfig):
    """`layers` and `hidden` are those of each side; `encoder_hidden` is that of each direction of the encoder."""

    kind: str = "lstm"
    width: int = 256  # of the tables
    hidden: int = 256
    encoder_hidden: int = 0  # 0: as wide as the decoder
    layers: int = 2
    bidirectional: bool = True  # the encoder
    positions: int = 512  # tokens of a source or a target, as a promise to the reader: recurrence goes on for ever
    dropout: float = 0.2
    tied: bool = True

    sizes: ClassVar = (*TranslationConfig.sizes, "hidden", "layers")
    choices: ClassVar = {"kind": KINDS}
    hf_values: ClassVar = {"kind": HF_KINDS}

    @property
    def source_hidden(self) -> int:
        return self.encoder_hidden or self.hidden

    @property
    def source_width(self) -> int:
        return self.source_hidden * (1 + self.bidirectional)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tied and self.width != self.hidden:
            raise ConfigError(f"tied: one table cannot read with width {self.width} and score width {self.hidden}")


class Seq2Seq(nn.Module):
    """Source and target tokens -> vectors of the target, each of which tells what comes next."""

    differentiable_steps = True  # gradients may flow through `start` and `step`

    def __init__(self, config: Any):
        super().__init__()
        self.config, self.depth = config, 2 * config.layers
        self.source_table = None if config.shared_tables else Embedding(config.vocabulary_size, config.width)
        kind, width, hidden, layers = config.kind, config.width, config.hidden, config.layers
        self.encoder = RecurrentStack(kind, width, config.source_hidden, layers, config.bidirectional, config.dropout)
        bridged = config.bidirectional or config.source_hidden != hidden
        self.bridge = Bridge(config.source_width, hidden, layers, kind) if bridged else None
        self.decoder = RecurrentBody(config.target_vocabulary, width, hidden, layers, kind, config.dropout)
        self.look_back = self.build_look_back(config)
        self.attends = self.look_back is not None
        self.dropout = Dropout(config.dropout)

    def build_look_back(self, config: Any) -> Any:
        return None  # it does not look at the source while it writes

    @property
    def token_embedding(self) -> Embedding:
        return self.decoder.table

    def read(self, source: Tokens, trace: Trace | None = None) -> tuple[Tensor, CellState]:
        """The encoder's vectors (source tokens, source width), and the state that the decoder begins with."""
        table = self.decoder.table if self.source_table is None else self.source_table
        embedded = self.dropout(table(source.ids))
        hidden, end = self.encoder(embedded, source.layout)
        if trace is not None:
            trace.begin(source.layout, embedded, hidden)
        return hidden, end if self.bridge is None else self.bridge(end)

    def encode(self, source: Tokens, trace: Trace | None = None) -> Tensor:
        return self.read(source, trace)[0]

    def forward(self, source: Tokens, target: Tokens, trace: PairTrace | None = None) -> Tensor:
        """Teacher forcing: target i is written for source i, each of its tokens by those up to it: (m, hidden).

        `target` begins with the start token; the vector at a token tells what comes after it.
        """
        sources, own, across = trace or (None, None, None)
        read, first = self.read(source, sources)
        hidden = self.decoder(target, own, state=first)
        if across is not None:
            across.begin(target.layout)
        if self.look_back is None:
            return hidden  # type: ignore[no-any-return]
        return self.look_back(hidden, read, Full().plan(target.layout, source.layout), across)  # type: ignore[no-any-return]

    def start(self, source: Tokens, beams: int = 1) -> RecurrentState:
        read, first = self.read(source)
        state = RecurrentState.of(first, beams)
        return state if self.look_back is None else self.look_back.start(state, read, source.layout)

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, after = self.decoder.step(ids, state)
        return hidden if self.look_back is None else self.look_back.step(hidden, state), after

    def layer_id(self, name: str) -> int:
        layers: int = self.config.layers
        if name.startswith("encoder."):
            return 1 + self.encoder.layer_of(name)
        if name.startswith("decoder.stack."):
            return 1 + layers + self.decoder.stack.layer_of(name)
        if name.startswith("bridge."):
            return layers
        return 0 if name.endswith("table.weight") else self.depth + 1


class Bridge(nn.Module):
    """The final states of an encoder -> the first states of a decoder, layer by layer."""

    def __init__(self, source_width: int, hidden: int, layers: int, kind: str):
        super().__init__()
        pieces = 2 if kind == "lstm" else 1
        self.layers = nn.ModuleList([Linear(source_width, hidden) for _ in range(pieces * layers)])

    def forward(self, end: CellState) -> CellState:
        # Each (layers x directions, sequences, source hidden), a layer's directions one after the other
        # -> (layers, sequences, source width)
        layers = len(self.layers) // len(end)
        sides = [piece.reshape(layers, -1, *piece.shape[1:]).transpose(1, 2).flatten(2) for piece in end]
        rows = iter(self.layers)
        return tuple(torch.stack([next(rows)(layer) for layer in piece]) for piece in sides)


def start_decoder_from(lm: Model, model: Model) -> None:
    """Give the decoder the table, recurrence and output of a language model of the same tokens.

    Ramachandran et al. 2017. A shared table then reads the source too.
    """
    model.body.decoder.load_state_dict(lm.body.state_dict())
    model.heads.load_state_dict(lm.heads.state_dict())


def require_shape(lm: RecurrentLmConfig, config: Seq2SeqConfig) -> None:
    wanted = {name: getattr(lm, name) for name in ("kind", "width", "layers", "tied")}
    wanted |= {"target_vocabulary": lm.vocabulary_size, "hidden": lm.width}
    actual = {name: getattr(config, name) for name in wanted}
    differing = [f"{name}={actual[name]} must be {size}" for name, size in wanted.items() if size != actual[name]]
    if differing:
        raise ConfigError(f"the decoder does not have the shape of the language model: {', '.join(differing)}")


SUTSKEVER = Seq2SeqConfig(
    vocabulary_size=160_000, target_vocabulary_size=80_000, width=1000, hidden=1000, layers=4, bidirectional=False,
    dropout=0.0, shared_tables=False, tied=False,
)  # fmt: skip
TINY: dict[str, Any] = {"vocabulary_size": 2_000, "kind": "gru", "layers": 1, "dropout": 0.0}
PRESETS = {
    "seq2seq-base": Preset(SUTSKEVER, "384M"),
    "seq2seq-small": Preset(Seq2SeqConfig(vocabulary_size=8_000)),
    "seq2seq-tiny": Preset(Seq2SeqConfig(**TINY)),
}
NEXT_TOKEN = Head(
    lambda config, labels: VocabularyHead(config.hidden, config.target_vocabulary, config.tied),
    "Seq2Seq",
    {"bias": "decoder.output_bias", "table": "decoder.output"},
)


def keys(config: Seq2SeqConfig) -> Keys:
    encoder = stored_names("encoder.", config.kind, config.layers, config.bidirectional)
    return encoder | stored_names("decoder.stack.", config.kind, config.layers, bidirectional=False) | {"": ""}


FAMILY = Family(
    name="kinfolk-seq2seq",
    title="Seq2Seq",
    idea="one recurrent network reads, another writes on from its final state",
    paper="Sutskever et al. 2014",
    config=Seq2SeqConfig,
    body=Seq2Seq,
    presets=PRESETS,
    keys=keys,
    heads={"next_token": NEXT_TOKEN},
    default_heads=("next_token",),
    initialize=init_recurrent,
)
