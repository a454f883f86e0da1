"""RNN, LSTM and GRU language models: what comes next, from a state that has read all that came before (N -> N).

Idea: read a text a token at a time, keep one vector of what was read, and guess the next token from it. What such a
model has learned of a language is worth carrying elsewhere: to a classifier or a tagger (recurrent_reader.py), to the
decoder of a sequence-to-sequence model (seq2seq.py).
Departures: none, it has no parent. As options the kind of recurrence ("gru" is torch's form, "deck_gru" that of the
lectures: parts/deck_gru.py) and one table for reading and scoring (Press and Wolf 2017).
Papers: Mikolov et al. 2010, "Recurrent neural network based language model"; Zaremba et al. 2014, "Recurrent Neural
Network Regularization", whose three sizes are the presets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.model import MOST_LAYERS, Config
from kinfolk.models.text_to_text import xavier
from kinfolk.parts.deck_gru import KINDS, DeckGru
from kinfolk.parts.recurrent import Recurrent, State
from kinfolk.parts.recurrent_decoder import RecurrentDecoder, RecurrentState
from kinfolk.parts.tokens import Tokens
from kinfolk.parts.trace import Trace

LAYER = re.compile(r"_l(\d+)(_reverse)?$")  # as torch ends the names of its weights
CELL = re.compile(r"cells\.(\d+)\.")  # as the deck's form begins them: layers x directions


@dataclass(frozen=True)
class RecurrentLmConfig(Config):
    """Defaults are Zaremba's medium model."""

    vocabulary_size: int = 10_000
    end_id: int = 0  # ends a text, and stands before the first one
    kind: str = "lstm"
    width: int = 650  # of the table
    hidden: int = 650
    layers: int = 2
    dropout: float = 0.5
    tied: bool = False

    model_type: ClassVar[str] = "kinfolk-recurrent-lm"
    hf_names: ClassVar[dict[str, str]] = {
        name: name for name in ("vocabulary_size", "end_id", "kind", "width", "hidden", "layers", "dropout", "tied")
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_recurrent(self)
        if self.end_id >= self.vocabulary_size:
            raise ConfigError(f"end_id={self.end_id:,} is not an id of a vocabulary of {self.vocabulary_size:,}")
        check_tied(self)


def check_recurrent(config: Any) -> None:
    """Refuse sizes and kinds that no recurrent stack has, and flags that are none."""
    if config.kind not in KINDS:
        raise ConfigError(f"kind {config.kind[:60]!r} is not known; choose one of {', '.join(KINDS)}")
    for name in ("vocabulary_size", "width", "hidden", "layers"):
        if getattr(config, name) < 1:
            raise ConfigError(f"{name} must be at least 1")
    if config.layers > MOST_LAYERS:
        raise ConfigError(f"layers={config.layers:,} is more than the {MOST_LAYERS:,} that a model may have")
    for name in ("tied", "shared_tables", "bidirectional"):
        if type(getattr(config, name, True)) is not bool:
            raise ConfigError(f"{name}={str(getattr(config, name))[:60]} is neither true nor false")


def check_tied(config: Any) -> None:
    """Refuse one table for vectors of two widths."""
    if config.tied and config.width != config.hidden:
        raise ConfigError(
            f"tied: one table cannot read with width {config.width} and score vectors of width {config.hidden}"
        )


class RecurrentLm(nn.Module):
    """Tokens -> a vector for each, which tells what comes after it, and the state after the last."""

    def __init__(self, config: RecurrentLmConfig):
        super().__init__()
        self.config = config
        self.decoder = RecurrentDecoder(
            config.vocabulary_size, config.width, config.hidden, config.layers, config.kind, config.dropout, config.tied
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.decoder.table.weight.device

    @property
    def output_table(self) -> Tensor:
        """(vocabulary, hidden): what vectors are scored with."""
        return self.decoder.output_table

    @property
    def output_bias(self) -> Tensor:
        """(vocabulary,)."""
        return self.decoder.output_bias

    def forward(self, tokens: Tokens, state: State | None = None, trace: Trace | None = None) -> tuple[Tensor, State]:
        """(tokens, hidden); `state` is where each sequence goes on from (zeros without it)."""
        return self.decoder(tokens, state, trace)  # type: ignore[no-any-return]

    def scores(self, hidden: Tensor, at: Tensor | None = None) -> Tensor:
        """Of the next token, before the softmax; with `at`, only at those rows: (rows, vocabulary)."""
        return self.decoder.scores(hidden, at)

    @torch.no_grad()
    def start(self, source: Tokens, beams: int) -> RecurrentState:
        """Read what each text begins with, but for its last token: that is fed first. An empty beginning is none."""
        _, memory = self(source)
        return RecurrentState.of(memory, beams)

    @torch.no_grad()
    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Each row's last token (rows,) -> scores of its next one (rows, vocabulary), and the state after it."""
        hidden, memory = self.decoder.step(ids, state.memory)
        scores = self.scores(hidden)
        return scores if scores.dtype == torch.float64 else scores.float(), RecurrentState(state.beams, memory)

    def depths(self) -> dict[str, int]:
        """How far above the input each parameter stands: 0 for the table, then the layers, then the scores."""
        return {name: self._depth(name) for name, _ in self.named_parameters()}

    def _depth(self, name: str) -> int:
        if name.startswith("decoder.stack."):
            return 1 + layer_of(name, self.decoder.stack)
        return 0 if name.startswith("decoder.table.") else self.config.layers + 1


def layer_of(name: str, stack: Recurrent | DeckGru) -> int:
    """The number of the layer, from 0, that a weight of a recurrent stack belongs to."""
    if isinstance(stack, DeckGru):
        found = CELL.search(name)
        return int(found[1]) // stack.directions if found else 0
    found = LAYER.search(name)
    return int(found[1]) if found else 0


def start_recurrent(model: nn.Module, seed: int = 0) -> None:
    """Xavier's start, with the biases of LSTMs' forget gates at one (Jozefowicz et al. 2015)."""
    xavier(model, seed)
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            for name, weight in module.named_parameters():
                if name.startswith("bias_ih"):
                    with torch.no_grad():
                        weight[module.hidden_size : 2 * module.hidden_size] = 1.0


def fresh_lm(config: RecurrentLmConfig, seed: int = 0) -> RecurrentLm:
    """A model to be trained from the beginning; the same seed gives the same weights."""
    with torch.device("meta"):
        model = RecurrentLm(config)
    model.to_empty(device="cpu")
    start_recurrent(model, seed)
    return model


PRESETS = {
    "recurrent-lm-small": RecurrentLmConfig(width=200, hidden=200, dropout=0.0),
    "recurrent-lm-medium": RecurrentLmConfig(),
    "recurrent-lm-large": RecurrentLmConfig(width=1500, hidden=1500, dropout=0.65),
}
