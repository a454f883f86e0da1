"""What is read out of a frozen encoder: layers joined, perhaps a bidirectional LSTM, perhaps pooling, scores.

    layers ── sum, concat or mix ── scale ──┬──────────────┬── pool or not ── linear ──>
                                            └── BiLSTM ────┘

`scale` makes the vectors about as large as what the weights start for: the layers of one encoder differ by a factor of
three, their sums by thirty. The two-layer BiLSTM is that of Devlin et al. 2018, section 5.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.nn.crf import Crf
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.heads import Reads
from kinfolk.nn.packed import Layout
from kinfolk.nn.recurrent import Recurrent
from kinfolk.nn.scalar_mix import ScalarMix

JOINS = ("sum", "concat", "mix")
POOLS = ("first", "mean", "max")
LIMITS = {"width": (1, 2**24), "labels": (1, 2**20), "recurrent": (0, 16), "hidden": (1, 2**16)}
MOST_LAYERS = 1_000


@dataclass(frozen=True)
class ProbeConfig:
    """`layers` are numbers, 0 for the embeddings; `width` is the encoder's. Without `pool` every token has scores."""

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
        numbers = isinstance(self.layers, tuple) and all(type(number) is int for number in self.layers)
        if not numbers or not self.layers or not all(0 <= number <= MOST_LAYERS for number in self.layers):
            raise ConfigError("layers is not a list of layers' numbers")
        if len(self.layers) > MOST_LAYERS + 1:
            raise ConfigError(f"{len(self.layers):,} layers are more than a model may have")
        if self.join not in JOINS or not (self.pool is None or self.pool in POOLS):
            raise ConfigError(f"join is one of {', '.join(JOINS)}, pool one of {', '.join(POOLS)}, or null")
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise ConfigError(f"{name}={str(value)[:60]} is not a whole number between {least} and {most:,}")
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
    """(layers, tokens, width) -> (tokens, labels), or (sequences, labels) with pooling."""

    reads: Reads = "layers"

    def __init__(self, config: ProbeConfig):
        super().__init__()
        self.config = config
        self.layers = config.layers
        self.mix = ScalarMix(len(config.layers)) if config.join == "mix" else None
        self.recurrent = (
            Recurrent(config.joined_width, config.hidden, config.recurrent, "lstm", dropout=config.dropout)
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
        found: Tensor = self.dropout(self.config.scale * self.joined(layers))
        if self.recurrent is not None:
            found = self.dropout(self.recurrent(found, layout)[0])
        return found if self.config.pool is None else getattr(layout, self.config.pool)(found)

    def forward(self, layers: Tensor, layout: Layout) -> Tensor:
        return self.output(self.vectors(layers, layout))  # type: ignore[no-any-return]
