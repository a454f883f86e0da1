"""A recurrent language model as it is trained and as it writes: vectors, scores, and the state that goes on.

`recurrent_lm.py` says what it is. Here the same weights have a state that is passed in and returned: from batch to
batch of a long text (objectives/language_model.py), and from token to token while writing (generate/).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.model import Model
from kinfolk.models.recurrent_lm import FAMILY, RecurrentLmConfig, layer_of
from kinfolk.models.text_to_text import xavier
from kinfolk.nn.packed import Tokens
from kinfolk.nn.recurrent import CellState
from kinfolk.nn.recurrent_decoder import RecurrentDecoder, RecurrentState
from kinfolk.nn.trace import Trace


class RecurrentLm(nn.Module):
    """Tokens -> a vector for each, which tells what comes after it, and the state after the last."""

    def __init__(self, config: RecurrentLmConfig):
        super().__init__()
        if config.bidirectional:
            raise ConfigError("a model that guesses the next token cannot read from both ends; use bidirectional=false")
        self.config = config
        self.decoder = RecurrentDecoder(
            config.vocabulary_size, config.width, config.width, config.layers, config.kind, config.dropout, config.tied
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.decoder.table.weight.device

    @property
    def output_table(self) -> Tensor:
        """(vocabulary, width): what vectors are scored with."""
        return self.decoder.output_table

    @property
    def output_bias(self) -> Tensor:
        """(vocabulary,)."""
        return self.decoder.output_bias

    def forward(
        self, tokens: Tokens, state: CellState | None = None, trace: Trace | None = None
    ) -> tuple[Tensor, CellState]:
        """(tokens, width); `state` is where each sequence goes on from (zeros without it)."""
        return self.decoder(tokens, state, trace)  # type: ignore[no-any-return]

    def scores(self, hidden: Tensor) -> Tensor:
        """Of the next token, before the softmax: (rows, vocabulary)."""
        return self.decoder.scores(hidden)

    @torch.no_grad()
    def start(self, source: Tokens, beams: int) -> RecurrentState:
        """Read what each text begins with, but for its last token: that is fed first. An empty beginning is none."""
        _, memory = self(source)
        return RecurrentState.of(memory, beams)

    @torch.no_grad()
    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Each row's last token (rows,) -> scores of its next one (rows, vocabulary), and the state after it."""
        hidden, memory = self.decoder.step(ids, state.memory)
        return self.scores(hidden), RecurrentState(state.beams, memory)

    def layer_ids(self) -> dict[str, int]:
        """How far above the input each parameter stands: 0 for the table, then the layers, then the scores."""
        return {name: self._depth(name) for name, _ in self.named_parameters()}

    def _depth(self, name: str) -> int:
        if name.startswith("decoder.stack."):
            return 1 + layer_of(name, self.decoder.stack)
        return 0 if name.startswith("decoder.table.") else self.config.layers + 1


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
    """A language model to be trained from the beginning; the same seed gives the same weights."""
    with torch.device("meta"):
        model = RecurrentLm(config)
    model.to_empty(device="cpu")
    start_recurrent(model, seed)
    return model


def fresh_reader(config: RecurrentLmConfig, seed: int = 0) -> Model:
    """A body without heads that has learned nothing: what the transfer of a language model is compared with."""
    with torch.device("meta"):
        model = Model(FAMILY, config, {}, pooler=False, own_table=False)
    model.to_empty(device="cpu")
    start_recurrent(model, seed)
    return model


def as_encoder(lm: RecurrentLm) -> Model:
    """The same weights, not copied, as a body with a head for the next token."""
    with torch.device("meta"):
        model = Model(FAMILY, lm.config, {"next_token": 0}, pooler=False, own_table=False)
    decoder, body, head = lm.decoder, model.body, model.heads["next_token"]
    body.table, body.stack = decoder.table, decoder.stack
    head.bias = decoder.output_bias
    if decoder.output is not None:
        head.table = decoder.output.weight
    return model.train(lm.training)


def as_language_model(model: Model) -> RecurrentLm:
    """The inverse of `as_encoder`."""
    assert isinstance(model.config, RecurrentLmConfig)
    with torch.device("meta"):
        lm = RecurrentLm(model.config)
    decoder, body, head = lm.decoder, model.body, model.heads["next_token"]
    decoder.table, decoder.stack, decoder.output_bias = body.table, body.stack, head.bias  # type: ignore[assignment]
    if decoder.output is not None:
        decoder.output.weight = head.table  # type: ignore[assignment]
    return lm.train(model.training)
