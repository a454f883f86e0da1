"""RNN, LSTM and GRU language models: what comes next, from a state that has read all that came before (N -> N).

Idea: read a text a token at a time, keep one vector of what was read, and guess the next token from it. What such a
model has learned of a language is worth carrying elsewhere: under a head for classes (N -> 1) or tags (N -> N) it is an
encoder like any other, and it can start the decoder of a sequence-to-sequence model (seq2seq.py).
Departures: none, it has no parent. As options the kind of recurrence ("gru" is torch's form, "deck_gru" that of the
lectures: nn/gru.py), one table for reading and scoring (Press and Wolf 2017) and, for readers that do not
guess what comes next, both directions with half the width each.
Papers: Mikolov et al. 2010, "Recurrent neural network based language model"; Zaremba et al. 2014, "Recurrent Neural
Network Regularization", whose three sizes are the presets; Dai and Le 2015, "Semi-supervised Sequence Learning".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.model import MOST_LAYERS, EncoderConfig, Family, Head, Preset
from kinfolk.nn.fast.dropout import Dropout
from kinfolk.nn.fast.linear import Embedding
from kinfolk.nn.gru import KINDS, DeckGru, build_recurrent
from kinfolk.nn.heads import CrfHead, NextTokenHead, TextHead, TokenHead
from kinfolk.nn.packed import Layout, Tokens
from kinfolk.nn.recurrent import Recurrent
from kinfolk.nn.trace import Trace

LAYER = re.compile(r"_l(\d+)(_reverse)?$")  # as torch ends the names of its weights
CELL = re.compile(r"cells\.(\d+)\.")  # as the deck's form begins them: layers x directions


@dataclass(frozen=True)
class RecurrentLmConfig(EncoderConfig):
    """Defaults are Zaremba's medium model. `width` is that of the table and of the vectors."""

    vocabulary_size: int = 10_000
    width: int = 650
    layers: int = 2
    positions: int = 4096  # tokens read at once by heads, as a promise to the reader: recurrence goes on for ever
    segments: int = 0
    dropout: float = 0.5
    init_std: float = 0.05
    pad_id: int = 0
    end_id: int = 0  # ends a text, and stands before the first one
    kind: str = "lstm"
    tied: bool = False
    bidirectional: bool = False

    model_type: ClassVar[str] = "kinfolk-recurrent-lm"
    hf_names: ClassVar[dict[str, str]] = {
        name: name
        for name in (
            "vocabulary_size", "width", "layers", "positions", "dropout", "pad_id", "end_id", "kind", "tied",
            "bidirectional",
        )
    } | {"init_std": "initial_deviation"}  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        check_recurrent(self)
        if self.end_id >= self.vocabulary_size:
            raise ConfigError(f"end_id={self.end_id:,} is not an id of a vocabulary of {self.vocabulary_size:,}")
        if self.bidirectional and self.width % 2:
            raise ConfigError(f"width {self.width} cannot be halved between two directions")


def check_recurrent(config: Any) -> None:
    """Refuse sizes and kinds that no recurrent stack has, and flags that are none."""
    if config.kind not in KINDS:
        raise ConfigError(f"kind {config.kind[:60]!r} is not known; choose one of {', '.join(KINDS)}")
    for name in ("vocabulary_size", "width", "hidden", "layers"):
        if getattr(config, name, 1) < 1:
            raise ConfigError(f"{name} must be at least 1")
    if config.layers > MOST_LAYERS:
        raise ConfigError(f"layers={config.layers:,} is more than the {MOST_LAYERS:,} that a model may have")
    for name in ("tied", "shared_tables", "bidirectional"):
        if type(getattr(config, name, True)) is not bool:
            raise ConfigError(f"{name}={str(getattr(config, name))[:60]} is neither true nor false")


class RecurrentBody(nn.Module):
    """tokens -> (tokens, width): a table and a recurrent stack; there is no pooler."""

    pooler = None

    def __init__(self, config: RecurrentLmConfig, pooler: bool = False):
        super().__init__()
        self.table = Embedding(config.vocabulary_size, config.width)
        hidden = config.width // (1 + config.bidirectional)
        self.stack = build_recurrent(
            config.kind, config.width, hidden, config.layers, config.bidirectional, config.dropout
        )
        self.dropout = Dropout(config.dropout)
        self.bidirectional = config.bidirectional

    @property
    def token_table(self) -> Tensor:
        """(vocabulary, width), which the head for the next token may share."""
        return self.table.weight

    def last(self, hidden: Tensor, layout: Layout) -> Tensor:
        """What each direction knows when it has read all: (tokens, width) -> (sequences, width)."""
        if not self.bidirectional:
            return layout.last(hidden)
        forth, back = hidden.chunk(2, -1)  # what was read from the right has read all at the first token
        return torch.cat([layout.last(forth), layout.first(back)], -1)

    def depth_of(self, name: str) -> int:
        """The layer that a weight belongs to, from 1, and 0 for the table."""
        return 1 + layer_of(name, self.stack) if ".stack." in name else 0

    def forward(self, tokens: Tokens, trace: Trace | None = None, depth: int | None = None) -> Tensor:
        given = self.dropout(self.table(tokens.ids))
        if trace is None and depth is None:
            return self.dropout(self.stack(given, tokens.layout)[0])  # type: ignore[no-any-return]
        layers = [given, *self.stack.each_layer(given, tokens.layout)][: None if depth is None else depth + 1]
        if trace is not None:
            trace.begin(tokens.layout)
            for hidden in layers:
                trace.add_hidden(hidden)
        return self.dropout(layers[-1])  # type: ignore[no-any-return]


def layer_of(name: str, stack: Recurrent | DeckGru) -> int:
    """The number of the layer, from 0, that a weight of a recurrent stack belongs to."""
    if isinstance(stack, DeckGru):
        found = CELL.search(name)
        return int(found[1]) // stack.directions if found else 0
    found = LAYER.search(name)
    return int(found[1]) if found else 0


PRESETS = {
    "recurrent-lm-small": Preset(RecurrentLmConfig(width=200, dropout=0.0), ""),
    "recurrent-lm-medium": Preset(RecurrentLmConfig(), "20M"),
    "recurrent-lm-large": Preset(RecurrentLmConfig(width=1500, dropout=0.65), "66M"),
}


def last_head(config: RecurrentLmConfig, labels: int) -> nn.Module:
    """One linear layer on what has read the whole text."""
    return TextHead(config.width, labels, "last", config.dropout)


HEADS = {
    "next_token": Head(
        lambda config, labels: NextTokenHead(config.width, config.vocabulary_size, config.tied),
        "RecurrentLm",
        {"bias": "decoder.output_bias", "table": "decoder.output.weight"},
    ),
    "classify": Head(last_head, "RecurrentForSequenceClassification", {"output": "classifier"}),
    "tag": Head(
        lambda config, labels: TokenHead(config.width, labels, config.dropout),
        "RecurrentForTokenClassification",
        {"output": "classifier"},
    ),
    "tag_crf": Head(
        lambda config, labels: CrfHead(config.width, labels, config.dropout),
        "RecurrentForTokenClassification",
        {"output": "classifier", "crf": "crf"},
    ),
    "choose": Head(lambda config, labels: last_head(config, 1), "RecurrentForMultipleChoice", {"output": "classifier"}),
}

FAMILY = Family(
    name=RecurrentLmConfig.model_type,
    title="Recurrent LM",
    parent=None,
    idea="reads a token at a time and guesses the next one from a state of what was read",
    paper="Mikolov et al. 2010",
    config=RecurrentLmConfig,
    body=RecurrentBody,
    prefix="decoder",
    base_architecture="RecurrentModel",
    presets=PRESETS,
    keys={"table": "table", "stack": "stack"},
    heads=HEADS,
    ignored=(),
    counted=("next_token",),
)
