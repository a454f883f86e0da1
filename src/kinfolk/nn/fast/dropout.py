"""Dropout, and attention with dropout, quick on a CPU: in training each value is zero with probability p.

    y = x * m / (1 - p),   m = 1 with probability 1 - p, else 0

The mask is read off random integers, four of its entries from each: sixteen bits decide one, so p is met within
2 ** -16. torch draws a number for every entry, which costs several times as much, and the seed rules both alike.

Attention under dropout has its gradient written out:

    S = Q K' / sqrt(head_width) + bias      P = softmax(S)      D = P * m / (1 - p)      Y = D V

    dV = D' dY      dP = dY V' * m / (1 - p)      dS = P * (dP - sum(P * dP))      dQ = dS K / sqrt(head_width)      …

Left to itself, torch copies queries, keys and values once more for every product, fills a whole matrix with zeros for
the gradient of each group of sequences, and keeps three numbers a score. Here each group reads its rows once and writes
its gradients where they belong; of a score one number and one byte are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kinfolk.nn.scopes import AttentionPlan, Group, PackedIndex

ENTRIES = 4  # of sixteen bits in one integer of sixty-four
LOWEST, STEPS = -(2**15), 2**16
SAVED = 5  # tensors of each group, for the gradient


def dropout(values: Tensor, p: float) -> Tensor:
    """Values of any shape, some of them zero."""
    if values.device.type != "cpu":
        return torch.dropout(values, p, train=True)
    return values * dropout_mask(values.shape, p).to(values.dtype).mul_(1 / (1 - p))


def dropout_mask(shape: Sequence[int], p: float) -> Tensor:
    """Which values stay, True with probability 1 - p; on the CPU."""
    count = math.prod(shape)
    bits = torch.empty(-(-count // ENTRIES), dtype=torch.int64).random_(-(2**63), None)
    kept = bits.view(torch.int16)[:count] >= LOWEST + round(p * STEPS)
    return kept.view(*shape)


class Dropout(nn.Module):
    """`dropout` while training, nothing otherwise."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.p) if self.training and self.p > 0 else values


def attend_with_dropout(projected: Sequence[Tensor], plan: AttentionPlan, terms: Sequence[Tensor], p: float) -> Tensor:
    """Packed queries look at packed keys and values: (m, heads, head_width).

    `projected` is three tensors (tokens, heads, head_width), or one (tokens, 3, heads, head_width). `terms` are added
    to the scores, one tensor for each group of the plan, or none at all.
    """
    return _Attention.apply(plan, p, len(projected), *projected, *terms)  # type: ignore[no-untyped-call, no-any-return]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: AttentionPlan, p: float, parts: int, *tensors: Tensor) -> Tensor:
        sides, terms = _sides(tensors[:parts]), tensors[parts:]
        mixed, saved = torch.empty_like(sides[0], memory_format=torch.contiguous_format), []
        for index, group in enumerate(plan.groups):
            q, k, v = (_flat(rows.take(side)) for rows, side in _rows(group, *sides))
            weights = _scores(q, k, group, terms[index] if terms else None).softmax(-1)
            mask = dropout_mask(weights.shape, p)
            output = torch.bmm(mask.to(v.dtype).mul_(weights), v).mul_(1 / (1 - p))
            group.queries.write(mixed, _by_heads(_cleared(output, group), group.queries.count))
            saved += [q, k, v, weights, mask]
        ctx.save_for_backward(*saved)
        ctx.plan, ctx.p = plan, p
        ctx.shapes = [tensor.shape for tensor in tensors[:parts]]
        ctx.term_shapes = [term.shape for term in terms]
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [gradient.new_empty(shape) for shape in ctx.shapes]
        sides, d_terms = _sides(gradients), []
        saved = ctx.saved_tensors
        for index, group in enumerate(ctx.plan.groups):
            q, k, v, weights, mask = saved[SAVED * index : SAVED * (index + 1)]
            d_output = _cleared(_flat(group.queries.take_zero_padded(gradient)), group).mul(1 / (1 - ctx.p))
            kept = mask.to(v.dtype)
            d_weights = torch.bmm(d_output, v.transpose(1, 2)).mul_(kept)
            d_values = torch.bmm(kept.mul_(weights).transpose(1, 2), d_output)
            d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            if ctx.term_shapes:
                d_terms.append(_by_heads(d_scores, group.queries.count).sum_to_size(ctx.term_shapes[index]))
            d_scores = d_scores * q.shape[-1] ** -0.5
            parts = torch.bmm(d_scores, k), torch.bmm(d_scores.transpose(1, 2), q), d_values
            for (rows, side), part in zip(_rows(group, *sides), parts, strict=True):
                rows.write(side, _by_heads(part, rows.count))
        return None, None, None, *gradients, *d_terms


def _sides(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, as views where they are one tensor."""
    queries, keys, values = tensors[0].unbind(1) if len(tensors) == 1 else tensors
    return queries, keys, values


def _rows(group: Group, queries: Tensor, keys: Tensor, values: Tensor) -> list[tuple[PackedIndex, Tensor]]:
    return [(group.queries, queries), (group.keys, keys), (group.keys, values)]


def _flat(taken: Tensor) -> Tensor:
    """(count, heads, length, head_width) -> (count x heads, length, head_width), side by side in memory."""
    return taken.contiguous().flatten(0, 1)


def _by_heads(flat: Tensor, count: int) -> Tensor:
    """(count x heads, …) -> (count, heads, …)."""
    return flat.view(count, len(flat) // count, *flat.shape[1:])


def _scores(q: Tensor, k: Tensor, group: Group, term: Tensor | None) -> Tensor:
    """(count x heads, m, n), minus infinity where the group's mask forbids."""
    flat = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5)
    scores = _by_heads(flat, group.queries.count)
    if term is not None:
        scores += term
    allowed = group.allowed(q.device)
    if allowed is not None:
        scores.masked_fill_(~allowed, float("-inf"))
    return flat


def _cleared(flat: Tensor, group: Group) -> Tensor:
    """As it is, but zero for queries that may see nothing."""
    if group.fully_masked is None:
        return flat
    return _by_heads(flat, group.queries.count).masked_fill(group.fully_masked, 0).flatten(0, 1)
