"""Recurrent classifiers and taggers: one answer for a text (N -> 1), or one for each of its tokens (N -> N).

Idea: the state after the last token has read the whole text, and each token's vector what came up to it.
Departures from a recurrent language model:
  1. labels take the place of the vocabulary; they score the final state, the mean over all tokens, or each token;
  2. it may read in both directions, side by side: then each token's vector knows the whole text.
Its table and recurrence can start from a language model, which has seen more text than a task has to offer
(`start_reader_from`).
Paper: Dai and Le 2015, "Semi-supervised Sequence Learning".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.model import Config
from kinfolk.models.recurrent_lm import RecurrentLm, check_recurrent, layer_of, start_recurrent
from kinfolk.parts.deck_gru import build_recurrent
from kinfolk.parts.dropout import Dropout
from kinfolk.parts.tables import Embedding, Linear
from kinfolk.parts.tokens import Layout, Tokens

TASKS = ("classify", "tag")
POOLS = ("last", "mean")


@dataclass(frozen=True)
class RecurrentReaderConfig(Config):
    """`pool` says what a classifier reads."""

    vocabulary_size: int = 10_000
    labels: int = 2
    task: str = "classify"
    pool: str = "last"
    kind: str = "lstm"
    width: int = 256  # of the table
    hidden: int = 256  # of each direction
    layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.2

    model_type: ClassVar[str] = "kinfolk-recurrent-reader"
    hf_names: ClassVar[dict[str, str]] = {
        name: name
        for name in (
            "vocabulary_size", "labels", "task", "pool", "kind", "width", "hidden", "layers", "bidirectional",
            "dropout",
        )
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        check_recurrent(self)
        for name, known in {"task": TASKS, "pool": POOLS}.items():
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} {getattr(self, name)[:60]!r} is not known; choose one of {', '.join(known)}")
        if self.labels < 1:
            raise ConfigError("labels must be at least 1")


class RecurrentReader(nn.Module):
    """Tokens -> scores (texts, labels) or (tokens, labels); what objectives/tasks.py asks of a model."""

    def __init__(self, config: RecurrentReaderConfig):
        super().__init__()
        self.config = config
        self.table = Embedding(config.vocabulary_size, config.width)
        self.stack = build_recurrent(
            config.kind, config.width, config.hidden, config.layers, config.bidirectional, config.dropout
        )
        self.output = Linear(self.stack.output_width, config.labels)
        self.dropout = Dropout(config.dropout)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.table.weight.device

    def forward(self, tokens: Tokens) -> Tensor:
        """(tokens, directions x hidden)."""
        hidden, _ = self.stack(self.dropout(self.table(tokens.ids)), tokens.layout)
        return hidden  # type: ignore[no-any-return]

    def hidden_for(self, name: str, tokens: Tokens) -> Tensor:
        """What the head reads: vectors of the last layer."""
        return self(tokens)  # type: ignore[no-any-return]

    def scores(self, name: str, tokens: Tokens, hidden: Tensor) -> Tensor:
        """What the one head says of them. Every text that is pooled by its last state must have a token."""
        assert name == self.config.task, f"this reader was built to {self.config.task}"
        pooled = hidden if self.config.task == "tag" else self._pooled(hidden, tokens.layout)
        return self.output(self.dropout(pooled))  # type: ignore[no-any-return]

    def _pooled(self, hidden: Tensor, layout: Layout) -> Tensor:
        if self.config.pool == "mean":
            return layout.mean(hidden)
        if not self.config.bidirectional:
            return layout.last(hidden)
        forth, back = hidden.chunk(2, -1)  # what was read from the right has read all at the first token
        return torch.cat([layout.last(forth), layout.first(back)], -1)

    def depths(self) -> dict[str, int]:
        """How far above the input each parameter stands: 0 for the table, then the layers, then the scores."""
        return {name: self._depth(name) for name, _ in self.named_parameters()}

    def _depth(self, name: str) -> int:
        if name.startswith("stack."):
            return 1 + layer_of(name, self.stack)
        return 0 if name.startswith("table.") else self.config.layers + 1


def fresh_reader(config: RecurrentReaderConfig, seed: int = 0) -> RecurrentReader:
    """A model to be trained from the beginning; the same seed gives the same weights."""
    with torch.device("meta"):
        model = RecurrentReader(config)
    model.to_empty(device="cpu")
    start_recurrent(model, seed)
    return model


def start_reader_from(lm: RecurrentLm, model: RecurrentReader) -> None:
    """Give a reader the table and the recurrence of a language model that was learned with the same tokens."""
    if model.config.bidirectional:
        raise ConfigError("a language model reads in one direction; build the reader with bidirectional=false")
    for name in ("vocabulary_size", "kind", "width", "hidden", "layers"):
        found, wanted = getattr(lm.config, name), getattr(model.config, name)
        if found != wanted:
            raise ConfigError(f"the language model has {name}={found}, the reader {wanted}; make one like the other")
    model.table.load_state_dict(lm.decoder.table.state_dict())
    model.stack.load_state_dict(lm.decoder.stack.state_dict())
