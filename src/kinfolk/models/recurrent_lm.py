"""RNN, LSTM and GRU language models: what comes next, from a state that has read all that came before (N -> N).

Idea: read a text a token at a time, keep one vector of what was read, and predict the next token from it. What such a
model has learned can go elsewhere: under a head for classes (N -> 1) or tags (N -> N) it is an encoder like any other,
and it can start the decoder of a sequence-to-sequence model.
Departures: none, it has no parent. As options the kind of recurrence, one table for reading and scoring (Press and
Wolf 2017) and, for encoders that do not predict what comes next, both directions with half the width each.
Papers: Mikolov et al. 2010, "Recurrent neural network based language model"; Zaremba et al. 2014, "Recurrent Neural
Network Regularization", whose three sizes are the presets; Dai and Le 2015, "Semi-supervised Sequence Learning".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.config import Config
from kinfolk.models.encoder_family import TextForm, task_heads
from kinfolk.models.family import Family, Head, Preset, init_normal, init_xavier
from kinfolk.nn.fast.linear import Dropout, Embedding
from kinfolk.nn.heads import VocabularyHead
from kinfolk.nn.packed import Layout, Tokens
from kinfolk.nn.recurrent import KINDS, RecurrentStack, stored_names
from kinfolk.nn.state import CellState, RecurrentState
from kinfolk.nn.trace import Trace

HF_KINDS = {"deck_gru": "gru_reset_before"} | {kind: kind for kind in KINDS}  # as config.json calls them, and ours

HF_NAMES = (
    "vocabulary_size", "width", "layers", "positions", "dropout", "pad_id", "end_id", "kind", "tied", "bidirectional",
)  # fmt: skip


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

    carries_state: ClassVar = True
    sizes: ClassVar = (*Config.sizes, "layers")
    choices: ClassVar = {"kind": KINDS}
    hf_values: ClassVar = {"kind": HF_KINDS}
    hf_names: ClassVar = {name: name for name in HF_NAMES} | {"init_std": "initial_deviation"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_ids("end_id")
        if self.bidirectional and self.width % 2:
            raise ConfigError(f"width {self.width} cannot be halved between two directions")


class RecurrentBody(nn.Module):
    """ids ── table ── dropout ── stack ── dropout ──> vectors (tokens, directions x hidden), and the state after them.

    Dropout lies where nothing recurs (Zaremba et al. 2014).
    """

    def __init__(
        self, vocabulary: int, width: int, hidden: int, layers: int, kind: str, dropout: float, both: bool = False
    ):
        super().__init__()
        self.depth, self.bidirectional = layers, both
        self.table = Embedding(vocabulary, width)
        self.stack = RecurrentStack(kind, width, hidden, layers, both, dropout)
        self.dropout = Dropout(dropout)

    @property
    def token_embedding(self) -> Embedding:
        return self.table

    def forward(
        self, tokens: Tokens, trace: Trace | None = None, depth: int | None = None, state: CellState | None = None
    ) -> Tensor:
        """Vectors of the last layer, or of layer `depth`; `state` is where each sequence begins, zeros without it."""
        if trace is None and depth is None:
            return self.read(tokens, state)[0]
        embedded = self.dropout(self.table(tokens.ids))
        layers = [embedded, *self.stack.each_layer(embedded, tokens.layout, state, depth)[0]]
        if trace is not None:
            trace.begin(tokens.layout, *layers)
        return self.dropout(layers[-1])  # type: ignore[no-any-return]

    def read(self, tokens: Tokens, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """Vectors of the last layer, and the state after each sequence, from which the next batch can go on."""
        hidden, end = self.stack(self.dropout(self.table(tokens.ids)), tokens.layout, state)
        return self.dropout(hidden), end

    def last(self, hidden: Tensor, layout: Layout) -> Tensor:
        """What each direction knows when it has read all: (tokens, width) -> (sequences, width)."""
        if not self.bidirectional:
            return layout.last(hidden)
        forward, backward = hidden.chunk(2, -1)  # what was read from the right has read all at the first token
        return torch.cat([layout.last(forward), layout.first(backward)], -1)

    def start(self, source: Tokens, beams: int) -> RecurrentState:
        """Read what each text begins with, but for its last token: that is fed first. An empty beginning is none."""
        return RecurrentState.of(self.read(source)[1], beams)

    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden, memory = self.stack.step(self.dropout(self.table(ids)), state.memory)
        return self.dropout(hidden), replace(state, memory=memory)

    def layer_id(self, name: str) -> int:
        return 1 + self.stack.layer_of(name) if name.startswith("stack.") else 0


def build_body(config: RecurrentLmConfig) -> RecurrentBody:
    hidden = config.width // (1 + config.bidirectional)
    sizes = (config.vocabulary_size, config.width, hidden, config.layers)
    return RecurrentBody(*sizes, config.kind, config.dropout, config.bidirectional)


@torch.no_grad()
def init_recurrent(model: Any, seed: int = 0) -> None:
    """Xavier's start, with the biases of LSTMs' forget gates at one (Jozefowicz et al. 2015). Heads of tasks start from
    N(0, init_std)."""
    init_xavier(model, seed)
    for head in model.heads.values():
        if not isinstance(head, VocabularyHead):
            init_normal(head, seed, model.config.init_std)
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            module.get_parameter("bias_ih_l0")[module.hidden_size : 2 * module.hidden_size] = 1.0


def next_token_head(config: RecurrentLmConfig, labels: int) -> nn.Module:
    if config.bidirectional:
        raise ConfigError("a model that predicts the next token cannot read from both ends; use bidirectional=false")
    return VocabularyHead(config.width, config.vocabulary_size, config.tied)


PRESETS = {
    "recurrent-lm-small": Preset(RecurrentLmConfig(width=200, dropout=0.0)),
    "recurrent-lm-medium": Preset(RecurrentLmConfig(), "20M"),
    "recurrent-lm-large": Preset(RecurrentLmConfig(width=1500, dropout=0.65), "66M"),
}
NEXT_TOKEN = Head(next_token_head, "RecurrentLm", {"bias": "decoder.output_bias", "table": "decoder.output"})

FAMILY = Family(
    name="kinfolk-recurrent-lm",
    title="Recurrent LM",
    idea="reads a token at a time and guesses the next one from a state of what was read",
    paper="Mikolov et al. 2010",
    config=RecurrentLmConfig,
    body=build_body,
    prefix="decoder",
    base_architecture="RecurrentModel",
    presets=PRESETS,
    keys=lambda config: stored_names("stack.", config.kind, config.layers, config.bidirectional) | {"": ""},
    heads={"next_token": NEXT_TOKEN} | task_heads("Recurrent", TextForm("last"), TextForm("last")),
    default_heads=("next_token",),
    initialize=init_recurrent,
)
