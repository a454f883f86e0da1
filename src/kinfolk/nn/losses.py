"""Cross-entropy over a vocabulary, of which only a piece exists at a time.

    loss = sum over tokens of  (1 - e) (-log p_y) + e mean over v of (-log p_v),      p = softmax(h E' + c)

With e = 0 it is the plain cross-entropy; e > 0 smooths the labels (Szegedy et al. 2015; Vaswani et al. 2017, section
5.4): it is the cross-entropy against (1 - e) at y and e / V everywhere. The gradient by the scores is p minus that, so
it is at hand as soon as p is: a chunk of tokens is scored and forgotten, and what is kept is as large as the
hidden vectors and the table. (tokens x vocabulary) is never kept.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.nn.fast.precision import add_product, linear

MAX_SCORES = 2**25  # that exist at a time: 128 MB of float32


def chunked_cross_entropy(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> Tensor:
    """The sum over tokens: hidden (tokens, width), table (vocabulary, width), targets (tokens,)."""
    if torch.is_grad_enabled():
        return _ChunkedCrossEntropy.apply(hidden, table, bias, targets, smoothing)  # type: ignore[no-untyped-call, no-any-return]
    total = hidden.new_zeros(())
    for rows in _chunks(len(hidden), len(table)):
        log_probabilities = F.log_softmax(linear(hidden[rows], table, bias), dim=-1)
        total += _loss(log_probabilities, targets[rows], smoothing)
    return total


def _chunks(tokens: int, vocabulary: int) -> list[slice]:
    size = max(1, MAX_SCORES // vocabulary)
    return [slice(start, start + size) for start in range(0, tokens, size)]


def _loss(log_probabilities: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    right = log_probabilities.gather(1, targets.unsqueeze(1)).sum()
    if smoothing == 0.0:
        return -right
    return -(1 - smoothing) * right - smoothing * log_probabilities.mean(dim=1).sum()


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        total = hidden.new_zeros(())
        by_hidden, by_table, by_bias = (
            None if tensor is None or not needed else torch.zeros_like(tensor)
            for tensor, needed in zip((hidden, table, bias), ctx.needs_input_grad, strict=False)
        )
        for rows in _chunks(len(hidden), len(table)):
            log_probabilities = F.log_softmax(linear(hidden[rows], table, bias), dim=-1)
            total += _loss(log_probabilities, targets[rows], smoothing)
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
        return (*scaled, None, None)
