"""Probes: what is read out of a frozen encoder, from several of its layers at once.

layers ── sum, concat or mix ── scale ──┬──────────────┬── pool or not ── linear ──>
                                        └── BiLSTM ────┘
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.nn.crf import Crf
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.heads import Reads
from kinfolk.nn.packed import Layout
from kinfolk.nn.recurrent import RecurrentStack

JOINS = ("sum", "concat", "mix")
POOLS = ("first", "mean", "max")
LIMITS = {"width": (1, 2**24), "labels": (1, 2**20), "recurrent": (0, 16), "hidden": (1, 2**16)}
MAX_LAYERS = 1_000


class ScalarMix(nn.Module):
    """gamma * sum_l softmax(w)_l h_l: (layers, tokens, width) -> (tokens, width). Peters et al. 2018, equation 1."""

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
        valid = isinstance(self.layers, tuple) and 1 <= len(self.layers) <= MAX_LAYERS + 1
        if not valid or any(type(layer) is not int or not 0 <= layer <= MAX_LAYERS for layer in self.layers):
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


class ProbeHead(nn.Module):
    """(layers, tokens, width) -> (tokens, labels); pooled, (sequences, labels).

    `scale` makes the vectors about as large as what the weights start for: the layers of one encoder differ by a factor
    of three, their sums by thirty. The two-layer BiLSTM is that of Devlin et al. 2018, section 5.3.
    """

    reads: Reads = "layers"

    def __init__(self, config: ProbeConfig):
        super().__init__()
        self.config = config
        self.layers = config.layers
        self.mix = ScalarMix(len(config.layers)) if config.join == "mix" else None
        width = config.width * (len(config.layers) if config.join == "concat" else 1)
        sizes = (width, config.hidden, config.recurrent)
        self.recurrent = RecurrentStack("lstm", *sizes, True, config.dropout) if config.recurrent else None
        self.dropout = nn.Dropout(config.dropout)
        self.output = Linear(2 * config.hidden if config.recurrent else width, config.labels)
        self.crf = Crf(config.labels) if config.crf else None

    def joined(self, layers: Tensor) -> Tensor:
        """(layers, tokens, width) -> (tokens, joined width)."""
        if self.mix is not None:
            return self.mix(layers)  # type: ignore[no-any-return]
        return layers.sum(0) if self.config.join == "sum" else layers.transpose(0, 1).flatten(1)

    def vectors(self, layers: Tensor, layout: Layout) -> Tensor:
        vectors: Tensor = self.dropout(self.config.scale * self.joined(layers))
        if self.recurrent is not None:
            vectors = self.dropout(self.recurrent(vectors, layout)[0])
        return vectors if self.config.pool is None else getattr(layout, self.config.pool)(vectors)

    def forward(self, layers: Tensor, layout: Layout) -> Tensor:
        return self.output(self.vectors(layers, layout))  # type: ignore[no-any-return]
