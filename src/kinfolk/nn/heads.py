"""Heads: vectors in, scores out. Each is written once and serves every family.

A head says in `reads` what it wants of the body: "tokens" (every vector), "first" (the first token's vector of each
sequence), "pooled" (the body's pooler on top of that), "last" (what a recurrence knows when it has read all) or
"layers" (every vector of several layers, see readout.py).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from kinfolk.nn.fast.dropout import Dropout
from kinfolk.nn.fast.kernels import ACTIVATIONS, ActivatedLinear
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.fast.precision import linear
from kinfolk.nn.norm import Norm

Reads = Literal["tokens", "first", "last", "pooled", "layers"]


class Pooler(nn.Module):
    """tanh(W x + b) on the first token's vector: (sequences, width) -> (sequences, width)."""

    def __init__(self, width: int):
        super().__init__()
        self.dense = Linear(width, width)

    def forward(self, first: Tensor) -> Tensor:
        return torch.tanh(self.dense(first))


class MaskedHead(nn.Module):
    """norm(activation(W x + b)) E' + c: scores over the vocabulary, (tokens, width) -> (tokens, vocabulary).

    E is the token embedding, shared with the body, unless the checkpoint brings a `table` of its own.
    """

    reads: Reads = "tokens"

    def __init__(self, width: int, table_width: int, vocabulary_size: int, activation: str, epsilon: float):
        super().__init__()
        self.transform = ActivatedLinear(width, table_width, activation)
        self.norm = Norm(table_width, epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.table: nn.Parameter | None = None

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        return linear(self.norm(self.transform(hidden)), embedding if self.table is None else self.table, self.bias)


class NextTokenHead(nn.Module):
    """x E' + c: scores of the next token, (tokens, width) -> (tokens, vocabulary); `tied`: E is the body's table."""

    reads: Reads = "tokens"

    def __init__(self, width: int, vocabulary_size: int, tied: bool):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        self.table = None if tied else nn.Parameter(torch.zeros(vocabulary_size, width))

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        return linear(hidden, embedding if self.table is None else self.table, self.bias)


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
