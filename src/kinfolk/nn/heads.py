"""Heads: vectors in, scores out. Each is written once and serves every family.

A head says in `reads` what it wants of the body: "tokens" (every vector), "first" (the first token's vector of each
sequence), "pooled" (the body's pooler on top of that), "last" (what a recurrence knows when it has read all) or
"layers" (every vector of several layers, `ProbeHead`).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kinfolk.nn.fast.linear import ActivatedLinear, Dropout, Embedding, Linear, add_product, linear

MAX_SCORES = 2**25  # that exist at a time: 128 MB of float32

Reads = Literal["tokens", "first", "last", "pooled", "layers"]


class VocabularyHead(nn.Module):
    """x E' + c, scores over a vocabulary: (tokens, width) -> (tokens, vocabulary). For masked and next tokens alike.

    E is the body's table of tokens (`tied`) or its own. BERT's x goes through norm(activation(W x + b)) before.
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
        return embedding if self.table is None else self.table


class TextHead(nn.Module):
    """Scores for a whole text, or of a head that reads "tokens" for each of them (tags, the two ends of an answer): one
    linear layer, or two with an activation between (RoBERTa tanh, DistilBERT relu)."""

    def __init__(
        self, width: int, labels: int, reads: Reads, dropout: float, activation: str | None = None, bias: bool = True
    ):
        super().__init__()
        self.reads: Reads = reads
        self.dropout = Dropout(dropout)
        self.dense = ActivatedLinear(width, width, activation) if activation else None
        self.output = Linear(width, labels, bias=bias)

    def forward(self, vectors: Tensor) -> Tensor:
        vectors = vectors if self.dense is None else self.dense(vectors)
        return self.output(self.dropout(vectors))  # type: ignore[no-any-return]


def chunked_cross_entropy(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> Tensor:
    """The sum over tokens: hidden (tokens, width), table (vocabulary, width), targets (tokens,).

        loss = sum over tokens of  (1 - e) (-log p_y) + e mean over v of (-log p_v),      p = softmax(h E' + c)

    e > 0 smooths the labels (Szegedy et al. 2015). The gradient is at hand as soon as p is: chunks are forgotten.
    """
    return _ChunkedCrossEntropy.apply(torch.is_grad_enabled(), hidden, table, bias, targets, smoothing)  # type: ignore[no-untyped-call, no-any-return]


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, learns: bool, hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        total = hidden.new_zeros(())
        by_hidden, by_table, by_bias = (
            torch.zeros_like(tensor) if tensor is not None and needed and learns else None
            for tensor, needed in zip((hidden, table, bias), ctx.needs_input_grad[1:], strict=False)
        )
        size = max(1, MAX_SCORES // len(table))
        for rows in (slice(start, start + size) for start in range(0, len(hidden), size)):
            log_probabilities = F.log_softmax(linear(hidden[rows], table, bias), dim=-1)
            right = log_probabilities.gather(1, targets[rows].unsqueeze(1)).sum()
            if smoothing:
                right = (1 - smoothing) * right + smoothing * log_probabilities.mean(dim=1).sum()
            total -= right
            if not learns:
                continue
            change = log_probabilities.exp_()
            if smoothing:
                change.sub_(smoothing / len(table))
            change.scatter_add_(1, targets[rows].unsqueeze(1), change.new_full((len(change), 1), smoothing - 1))
            if by_bias is not None:
                by_bias += change.sum(dim=0)
            if by_hidden is not None:
                add_product(by_hidden[rows], change, table)
            if by_table is not None:
                add_product(by_table, change.t(), hidden[rows])
        ctx.save_for_backward(by_hidden, by_table, by_bias)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor | None, ...]:
        # In place: these are as large as the table. torch would notice a second use of them.
        scaled = [None if gradient is None else gradient.mul_(change) for gradient in ctx.saved_tensors]
        return (None, *scaled, None, None)
