"""The sum at the bottom: norm(token + position + segment), (tokens,) -> (tokens, width); the norm is optional.

Devlin et al. 2018, figure 2.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from kinfolk.nn.fast.dropout import Dropout
from kinfolk.nn.fast.linear import Embedding, Norm
from kinfolk.nn.packed import Tokens


class SummedEmbeddings(nn.Module):
    """Learned tables for tokens, positions and, where the model has them, segments; then dropout.

    BERT norms the sum; GPT and GPT-2 (`norm=False`) do not.
    """

    def __init__(self, config: Any, width: int, norm: bool = True):
        super().__init__()
        self.width = width
        self.first_position = config.first_position
        self.tokens = Embedding(config.vocabulary_size, width)
        self.positions = Embedding(config.positions, width)
        self.segments = Embedding(config.segments, width) if config.segments else None
        self.norm = Norm(width, config.norm_epsilon) if norm else None
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tokens) -> Tensor:
        total = self.tokens(tokens.ids) + self.positions(tokens.layout.positions + self.first_position)
        if self.segments is not None:
            # Without segments every token belongs to the first: one row, added to all.
            total = total + (self.segments.weight[0] if tokens.segments is None else self.segments(tokens.segments))
        return self.dropout(total if self.norm is None else self.norm(total))  # type: ignore[no-any-return]
