"""RNN, LSTM and GRU language models: what comes next, from a state that has read all that came before (N -> N).

Idea: read a text a token at a time, keep one vector of what was read, and predict the next token from it. What such a
model has learned of a language is worth carrying elsewhere: under a head for classes (N -> 1) or tags (N -> N) it is an
encoder like any other, and it can start the decoder of a sequence-to-sequence model (seq2seq.py).
Departures: none, it has no parent. As options the kind of recurrence ("gru" is torch's form, "deck_gru" that of the
lectures: nn/gru.py), one table for reading and scoring (Press and Wolf 2017) and, for encoders that do not predict
what comes next, both directions with half the width each.
Papers: Mikolov et al. 2010, "Recurrent neural network based language model"; Zaremba et al. 2014, "Recurrent Neural
Network Regularization", whose three sizes are the presets; Dai and Le 2015, "Semi-supervised Sequence Learning".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from kinfolk.errors import ConfigError
from kinfolk.models.config import Config
from kinfolk.models.encoder_family import last_head, task_heads
from kinfolk.models.family import Family, Head, Preset, init_recurrent
from kinfolk.nn.gru import KINDS
from kinfolk.nn.heads import VocabularyHead
from kinfolk.nn.recurrent_decoder import RecurrentBody


@dataclass(frozen=True)
class RecurrentLmConfig(Config):
    """Defaults are Zaremba's medium model. `width` is that of the table and of the vectors."""

    vocabulary_size: int = 10_000
    width: int = 650
    layers: int = 2
    positions: int = 4096  # tokens read at once by heads, as a promise to the reader: recurrence goes on for ever
    segments: int = 0
    dropout: float = 0.5
    init_std: float = 0.05  # of new heads
    end_id: int = 0  # ends a text, and stands before the first one
    kind: str = "lstm"
    tied: bool = False
    bidirectional: bool = False

    sizes: ClassVar = (*Config.sizes, "layers")
    choices: ClassVar = {"kind": KINDS}
    hf_names: ClassVar[dict[str, str]] = {
        name: name
        for name in (
            "vocabulary_size", "width", "layers", "positions", "dropout", "pad_id", "end_id", "kind", "tied",
            "bidirectional",
        )
    } | {"init_std": "initial_deviation"}  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ids("end_id")
        if self.bidirectional and self.width % 2:
            raise ConfigError(f"width {self.width} cannot be halved between two directions")


def build_body(config: RecurrentLmConfig) -> RecurrentBody:
    """The table and a stack of one or two directions."""
    hidden = config.width // (1 + config.bidirectional)
    sizes = (config.vocabulary_size, config.width, hidden, config.layers)
    return RecurrentBody(*sizes, config.kind, config.dropout, config.bidirectional)


def next_token_head(config: RecurrentLmConfig, labels: int) -> nn.Module:
    """Scores of the next token."""
    if config.bidirectional:
        raise ConfigError("a model that predicts the next token cannot read from both ends; use bidirectional=false")
    return VocabularyHead(config.width, config.vocabulary_size, config.tied)


PRESETS = {
    "recurrent-lm-small": Preset(RecurrentLmConfig(width=200, dropout=0.0), ""),
    "recurrent-lm-medium": Preset(RecurrentLmConfig(), "20M"),
    "recurrent-lm-large": Preset(RecurrentLmConfig(width=1500, dropout=0.65), "66M"),
}
NEXT_TOKEN = Head(next_token_head, "RecurrentLm", {"bias": "decoder.output_bias", "table": "decoder.output"})

FAMILY = Family(
    name="kinfolk-recurrent-lm",
    title="Recurrent LM",
    parent=None,
    idea="reads a token at a time and guesses the next one from a state of what was read",
    paper="Mikolov et al. 2010",
    config=RecurrentLmConfig,
    body=build_body,
    prefix="decoder",
    base_architecture="RecurrentModel",
    presets=PRESETS,
    keys={"": ""},
    heads={"next_token": NEXT_TOKEN} | task_heads("Recurrent", classify=last_head, choose=last_head),
    default_heads=("next_token",),
    initialize=init_recurrent,
)
