"""The one place that chooses how attention is computed.

    attend(Q, K, V) = softmax(Q K' / sqrt(head_width) + bias) V       over the keys that the scope allows

Every choice here gives the plain definition's result (`attention.attention_scores`). Under dropout on a CPU the
gradient is written out: torch would copy queries, keys and values for every product and keep three numbers a score.

    S = Q K' / sqrt(head_width) + bias      P = softmax(S)      D = P * m / (1 - p)      Y = D V

    dV = D' dY      dP = dY V' * m / (1 - p)      dS = P * (dP - sum(P * dP))      dQ = dS K / sqrt(head_width)      …
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from kinfolk.nn.fast.linear import dropout_mask
from kinfolk.nn.scopes import AttentionPlan, Group, PackedIndex

# A score term: given a group and its queries (count, heads, m, head_width), something to add to the scores
# (count, heads, m, n).
Bias = Callable[[Group, Tensor], Tensor]

SAVED = 5  # tensors of each group, for the gradient


def attend(
    projected: tuple[Tensor, ...], plan: AttentionPlan, bias: Bias | None = None, dropout: float = 0.0
) -> Tensor:
    """(m, heads, head_width), of three tensors (tokens, heads, head_width) or one (tokens, 3, heads, head_width)."""
    if not plan.groups:
        return projected[0].new_zeros(0, *projected[0].shape[-2:])
    if dropout > 0 and projected[0].device.type == "cpu":
        terms = [] if bias is None else [bias(group, group.take(projected)[0]) for group in plan.groups]
        return _AttentionWithDropout.apply(plan, dropout, len(projected), *projected, *terms)  # type: ignore[no-untyped-call, no-any-return]
    outputs = []
    for group in plan.groups:
        q, k, v = group.take(projected)
        mask = group.mask
        if bias is not None:
            mask, allowed = bias(group, q), group.allowed(q.device)
            mask = mask if allowed is None else mask.masked_fill(~allowed, float("-inf"))
        if k.shape[2] == 0:  # no keys at all, as in cross-attention to an empty source
            mixed = q.new_zeros(q.shape)
        else:
            causal = group.causal and bias is None
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        outputs.append(group.queries.unpad(_cleared(mixed, group)))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined if plan.order is None else joined.index_select(0, plan.order)


def attend_slots(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """One step of generation: rows (sentences x beams, heads, head_width) -> (rows, width).

    Keys and values are slots of their sentence, (sentences, heads, slots, head_width); the mask is added to the scores.
    """
    beams = queries.view(len(keys), -1, *queries.shape[1:]).transpose(1, 2)  # (sentences, heads, beams, head_width)
    mixed = F.scaled_dot_product_attention(beams, keys, values, attn_mask=mask)
    return mixed.transpose(1, 2).reshape(len(queries), -1)


class _AttentionWithDropout(torch.autograd.Function):
    """The same with a mask drawn for the weights; `tensors` are the projections, then a score term for each group."""

    @staticmethod
    def forward(ctx: Any, plan: AttentionPlan, p: float, parts: int, *tensors: Tensor) -> Tensor:
        sides, terms = _sides(tensors[:parts]), tensors[parts:]
        mixed, saved = torch.empty_like(sides[0], memory_format=torch.contiguous_format), []
        for index, group in enumerate(plan.groups):
            q, k, v = (rows.take(side).contiguous().flatten(0, 1) for rows, side in _rows(group, *sides))
            weights = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5)
            scores, allowed = _by_heads(weights, group.queries.count), group.allowed(q.device)
            if terms:
                scores += terms[index]
            if allowed is not None:
                scores.masked_fill_(~allowed, float("-inf"))
            weights = weights.softmax(-1)
            mask = dropout_mask(weights.shape, p)
            output = torch.bmm(mask.to(v.dtype).mul_(weights), v).mul_(1 / (1 - p))
            group.queries.write(mixed, _cleared(_by_heads(output, group.queries.count), group))
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
            d_output = _cleared(group.queries.take_zero_padded(gradient).contiguous(), group)
            d_output = d_output.flatten(0, 1).mul(1 / (1 - ctx.p))
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


def _by_heads(flat: Tensor, count: int) -> Tensor:
    """(count x heads, …) -> (count, heads, …)."""
    return flat.view(count, len(flat) // count, *flat.shape[1:])


def _cleared(mixed: Tensor, group: Group) -> Tensor:
    """(count, heads, m, head_width) as it is, but zero for queries that may see nothing."""
    return mixed if group.fully_masked is None else mixed.masked_fill(group.fully_masked, 0.0)
