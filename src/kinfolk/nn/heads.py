"""Heads: vectors in, scores out. Each is written once and serves every family.

A head says in `reads` what it wants of the body: "tokens" (every vector), "first" (the first token's vector of each
sequence), "pooled" (the body's pooler on top of that), "last" (what a recurrence knows when it has read all) or
"layers" (every vector of several layers, `ProbeHead`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.nn.crf import Crf
from kinfolk.nn.fast.dropout import Dropout
from kinfolk.nn.fast.linear import ACTIVATIONS, Embedding, Linear
from kinfolk.nn.fast.precision import linear
from kinfolk.nn.losses import chunked_cross_entropy
from kinfolk.nn.packed import Layout
from kinfolk.nn.recurrent import RecurrentStack

JOINS = ("sum", "concat", "mix")
POOLS = ("first", "mean", "max")
LIMITS = {"width": (1, 2**24), "labels": (1, 2**20), "recurrent": (0, 16), "hidden": (1, 2**16)}
MAX_LAYERS = 1_000

Reads = Literal["tokens", "first", "last", "pooled", "layers"]


class Pooler(nn.Module):
    """tanh(W x + b) on the first token's vector: (sequences, width) -> (sequences, width)."""

    def __init__(self, width: int):
        super().__init__()
        self.dense = Linear(width, width)

    def forward(self, first: Tensor) -> Tensor:
        return torch.tanh(self.dense(first))


class VocabularyHead(nn.Module):
    """x E' + c, scores over a vocabulary: (tokens, width) -> (tokens, vocabulary). For masked and next tokens alike.

    E is the body's table of tokens (`tied`) or one of its own, `c` optional. Before it, x may go through `transform`
    and `norm`: BERT's norm(activation(W x + b)).
    """

    reads: Reads = "tokens"

    def __init__(
        self,
        width: int,
        vocabulary_size: int,
        tied: bool = True,
        bias: bool = True,
        transform: nn.Module | None = None,
        norm: nn.Module | None = None,
    ):
        super().__init__()
        self.width, self.vocabulary_size = width, vocabulary_size
        self.transform, self.norm = transform, norm
        self.table: Linear | None = None
        self.bias = nn.Parameter(torch.zeros(vocabulary_size)) if bias else None
        if not tied:
            self.untie()

    def untie(self) -> None:
        """Score with a table of its own."""
        self.table = Linear(self.width, self.vocabulary_size, bias=False)

    def forward(self, hidden: Tensor, embedding: Embedding) -> Tensor:
        return linear(self.transformed(hidden), self.matrix(embedding).weight, self.bias)

    def step(self, hidden: Tensor, embedding: Embedding) -> Tensor:
        """The same, for generation: the table is packed once, then read for every token."""
        return self.matrix(embedding).project(self.transformed(hidden), self.bias)

    def loss(self, hidden: Tensor, embedding: Embedding, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """The sum of the cross-entropies of targets (tokens,), of which only a chunk of scores exists at a time."""
        matrix = self.matrix(embedding).weight
        return chunked_cross_entropy(self.transformed(hidden), matrix, self.bias, targets, smoothing)

    def transformed(self, hidden: Tensor) -> Tensor:
        """(tokens, body's width) -> (tokens, width): what is compared with the rows of the table."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        return hidden if self.norm is None else self.norm(hidden)

    def matrix(self, embedding: Embedding) -> Linear | Embedding:
        """The table that scores."""
        return embedding if self.table is None else self.table


class TextHead(nn.Module):
    """Scores for a whole text: one linear layer, or two with an activation between (RoBERTa tanh, DistilBERT relu)."""

    def __init__(self, width: int, labels: int, reads: Reads, dropout: float, activation: str | None = None):
        super().__init__()
        self.reads: Reads = reads
        self.dropout = Dropout(dropout)
        self.dense = Linear(width, width) if activation else None
        self.activation = activation
        self.output = Linear(width, labels)

    def forward(self, vectors: Tensor) -> Tensor:
        if self.dense is not None and self.activation is not None:
            vectors = ACTIVATIONS[self.activation](self.dense(vectors))
        return self.output(self.dropout(vectors))  # type: ignore[no-any-return]


class TokenHead(nn.Module):
    """Scores for every token: (tokens, width) -> (tokens, labels). Tags, or the two ends of an answer."""

    reads: Reads = "tokens"

    def __init__(self, width: int, labels: int, dropout: float):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = Linear(width, labels)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(self.dropout(hidden))  # type: ignore[no-any-return]


class CrfHead(TokenHead):
    """A token head whose scores are the emissions of a random field: (tokens, width) -> (tokens, labels)."""

    def __init__(self, width: int, labels: int, dropout: float):
        super().__init__(width, labels, dropout)
        self.crf = Crf(labels)


class ScalarMix(nn.Module):
    """A learned mixture of layers, gamma * sum_l softmax(w)_l h_l: (layers, tokens, width) -> (tokens, width).

    w has one value per layer, gamma scales the whole: tasks want vectors of different lengths. At the start all layers
    weigh the same. Peters et al. 2018 (ELMo), equation 1.
    """

    def __init__(self, layers: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def shares(self) -> Tensor:
        """softmax(w): how much each layer counts, (layers,)."""
        return self.weights.softmax(0)

    def forward(self, layers: Tensor) -> Tensor:
        return self.gamma * torch.tensordot(self.shares, layers, 1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ProbeConfig:
    """`layers`: 0 is the embedding; `width` is the encoder's. Without `pool` every token has scores."""

    layers: tuple[int, ...]
    join: str
    width: int
    labels: int
    pool: str | None = None
    recurrent: int = 0  # layers of the LSTM
    hidden: int = 128  # of each of its directions
    scale: float = 1.0
    dropout: float = 0.0
    crf: bool = False  # of tokens: their scores are the emissions of a random field

    def __post_init__(self) -> None:
        valid = isinstance(self.layers, tuple) and all(
            type(layer) is int and 0 <= layer <= MAX_LAYERS for layer in self.layers
        )
        if not valid or not 1 <= len(self.layers) <= MAX_LAYERS + 1:
            raise ConfigError(f"layers is not a list of one to {MAX_LAYERS + 1:,} layer indices")
        if self.join not in JOINS or not (self.pool is None or self.pool in POOLS):
            raise ConfigError(f"join is one of {', '.join(JOINS)}, pool one of {', '.join(POOLS)}, or null")
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError(f"{name}={str(value)[:60]} is not a whole number between {low} and {high:,}")
        for name, limit in {"scale": math.inf, "dropout": 1.0}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < limit:
                raise ConfigError(f"{name}={str(value)[:60]} is not a number from 0 up to {limit}")
        if type(self.crf) is not bool or (self.crf and self.pool is not None):
            raise ConfigError("crf is true or false, and has no meaning with pool")

    @property
    def joined_width(self) -> int:
        """Width of the layers put together."""
        return self.width * (len(self.layers) if self.join == "concat" else 1)


class ProbeHead(nn.Module):
    """What is read out of a frozen encoder: (layers, tokens, width) -> (tokens, labels); pooled, (sequences, labels).

    layers ── sum, concat or mix ── scale ──┬──────────────┬── pool or not ── linear ──>
                                            └── BiLSTM ────┘

    `scale` makes the vectors about as large as what the weights start for: the layers of one encoder differ by a factor
    of three, their sums by thirty. The two-layer BiLSTM is that of Devlin et al. 2018, section 5.3.
    """

    reads: Reads = "layers"

    def __init__(self, config: ProbeConfig):
        super().__init__()
        self.config = config
        self.layers = config.layers
        self.mix = ScalarMix(len(config.layers)) if config.join == "mix" else None
        self.recurrent = (
            RecurrentStack("lstm", config.joined_width, config.hidden, config.recurrent, True, config.dropout)
            if config.recurrent
            else None
        )
        self.dropout = nn.Dropout(config.dropout)
        width = config.joined_width if self.recurrent is None else self.recurrent.output_width
        self.output = Linear(width, config.labels)
        self.crf = Crf(config.labels) if config.crf else None

    def joined(self, layers: Tensor) -> Tensor:
        """(layers, tokens, width) -> (tokens, joined width)."""
        if self.mix is not None:
            return self.mix(layers)  # type: ignore[no-any-return]
        return layers.sum(0) if self.config.join == "sum" else layers.transpose(0, 1).flatten(1)

    def vectors(self, layers: Tensor, layout: Layout) -> Tensor:
        """What the linear layer reads."""
        vectors: Tensor = self.dropout(self.config.scale * self.joined(layers))
        if self.recurrent is not None:
            vectors = self.dropout(self.recurrent(vectors, layout)[0])
        return vectors if self.config.pool is None else getattr(layout, self.config.pool)(vectors)

    def forward(self, layers: Tensor, layout: Layout) -> Tensor:
        return self.output(self.vectors(layers, layout))  # type: ignore[no-any-return]
