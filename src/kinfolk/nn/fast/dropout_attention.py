"""Attention with dropout while a model learns on a CPU, its gradient written out.

    S = Q K' / sqrt(head_width) + bias      P = softmax(S)      D = P * m / (1 - p)      Y = D V

    dV = D' dY      dP = dY V' * m / (1 - p)      dS = P * (dP - sum(P * dP))      dQ = dS K / sqrt(head_width)      …

m is the mask of dropout. Left to itself, torch copies queries, keys and values once more for every product, fills a
whole matrix with zeros for the gradient of each group of sequences, and keeps three numbers a score. Here each group
reads its rows once and writes its gradients where they belong; of a score one number and one byte are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kinfolk.nn.fast.dropout import dropout_mask
from kinfolk.nn.scopes import AttentionPlan, Group, Rows

KEPT = 5  # tensors of each group, for the gradient


def attend_learning(given: Sequence[Tensor], plan: AttentionPlan, terms: Sequence[Tensor], p: float) -> Tensor:
    """Packed queries look at packed keys and values: (m, heads, head_width).

    They are `given` as three tensors (tokens, heads, head_width), or as one (tokens, 3, heads, head_width). `terms` are
    added to the scores, one tensor for each group of `bound`, or none at all.
    """
    found: Tensor = _Attention.apply(plan, p, len(given), *given, *terms)  # type: ignore[no-untyped-call]
    return found


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: AttentionPlan, p: float, parts: int, *tensors: Tensor) -> Tensor:
        queries, keys, values = _sides(tensors[:parts])
        terms = tensors[parts:]
        mixed, kept = torch.empty_like(queries, memory_format=torch.contiguous_format), []
        for number, group in enumerate(plan.groups):
            q, k, v = (_flat(rows.take(side)) for rows, side in _rows(group, queries, keys, values))
            shares = _scores(q, k, group, terms[number] if terms else None).softmax(-1)
            alive = dropout_mask(shares.shape, p)
            found = torch.bmm(alive.to(v.dtype).mul_(shares), v).mul_(1 / (1 - p))
            group.queries.put(mixed, _by_heads(_seen(found, group), group.queries.count))
            kept += [q, k, v, shares, alive]
        ctx.save_for_backward(*kept)
        ctx.plan, ctx.p = plan, p
        ctx.shapes = [tensor.shape for tensor in tensors[:parts]]
        ctx.terms = [term.shape for term in terms]
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        into = [gradient.new_empty(shape) for shape in ctx.shapes]
        sides, of_terms = _sides(into), []
        saved = ctx.saved_tensors
        for number, group in enumerate(ctx.plan.groups):
            q, k, v, shares, alive = saved[KEPT * number : KEPT * (number + 1)]
            given = _seen(_flat(group.queries.spread(gradient)), group).mul(1 / (1 - ctx.p))
            mask = alive.to(v.dtype)
            of_shares = torch.bmm(given, v.transpose(1, 2)).mul_(mask)
            of_v = torch.bmm(mask.mul_(shares).transpose(1, 2), given)
            of_scores = torch._softmax_backward_data(of_shares, shares, -1, shares.dtype)
            if ctx.terms:
                of_terms.append(_by_heads(of_scores, group.queries.count).sum_to_size(ctx.terms[number]))
            of_scores = of_scores * q.shape[-1] ** -0.5
            found = torch.bmm(of_scores, k), torch.bmm(of_scores.transpose(1, 2), q), of_v
            for (rows, side), part in zip(_rows(group, *sides), found, strict=True):
                rows.put(side, _by_heads(part, rows.count))
        return None, None, None, *into, *of_terms


def _sides(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, as views where they are one tensor."""
    queries, keys, values = tensors[0].unbind(1) if len(tensors) == 1 else tensors
    return queries, keys, values


def _rows(group: Group, queries: Tensor, keys: Tensor, values: Tensor) -> list[tuple[Rows, Tensor]]:
    return [(group.queries, queries), (group.keys, keys), (group.keys, values)]


def _flat(taken: Tensor) -> Tensor:
    """(count, heads, length, head_width) -> (count x heads, length, head_width), side by side in memory."""
    return taken.contiguous().flatten(0, 1)


def _by_heads(flat: Tensor, count: int) -> Tensor:
    """(count x heads, …) -> (count, heads, …)."""
    return flat.view(count, len(flat) // count, *flat.shape[1:])


def _scores(q: Tensor, k: Tensor, group: Group, term: Tensor | None) -> Tensor:
    """(count x heads, m, n), minus infinity where the group's mask forbids."""
    found = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5)
    scores = _by_heads(found, group.queries.count)
    if term is not None:
        scores += term
    allowed = group.allowed(q.device)
    if allowed is not None:
        scores.masked_fill_(~allowed, float("-inf"))
    return found


def _seen(flat: Tensor, group: Group) -> Tensor:
    """As it is, but zero for queries that may see nothing."""
    return (
        flat
        if group.fully_masked is None
        else _by_heads(flat, group.queries.count).masked_fill(group.fully_masked, 0).flatten(0, 1)
    )
