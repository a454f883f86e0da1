"""The one place that chooses how attention is computed.

    attend(Q, K, V) = softmax(Q K' / sqrt(head_width) + bias) V       over the keys that the scope allows

Every choice here gives the plain definition's result (`attention.attention_scores`); tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.nn.fast.dropout import attend_with_dropout
from kinfolk.nn.scopes import AttentionPlan, Group

# A score term: given a group and its queries (count, heads, m, head_width), something to add to the scores
# (count, heads, m, n).
Bias = Callable[[Group, Tensor], Tensor]


def attend(
    projected: tuple[Tensor, ...], plan: AttentionPlan, bias: Bias | None = None, dropout: float = 0.0
) -> Tensor:
    """Packed queries look at packed keys and values: (m, heads, head_width).

    `projected` is three tensors (tokens, heads, head_width), or for self-attention one (tokens, 3, heads, head_width),
    which is taken in one go.
    """
    if not plan.groups:
        return projected[0].new_zeros(0, *projected[0].shape[-2:])
    if dropout > 0 and projected[0].device.type == "cpu":
        terms = [] if bias is None else [bias(group, group.take(projected)[0]) for group in plan.groups]
        return attend_with_dropout(projected, plan, terms, dropout)
    outputs = []
    for group in plan.groups:
        q, k, v = group.take(projected)
        mask = group.mask if bias is None else _masked(bias(group, q), group)
        if k.shape[2] == 0:  # no keys at all, as in cross-attention to an empty source
            mixed = q.new_zeros(q.shape)
        else:
            causal = group.causal and bias is None
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        if group.fully_masked is not None:
            mixed = mixed.masked_fill(group.fully_masked, 0.0)
        outputs.append(group.queries.unpad(mixed))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined if plan.order is None else joined.index_select(0, plan.order)


def attend_slots(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """One step of generation: rows (sentences x beams, heads, head_width) look at the slots of their sentence.

    Keys and values are (sentences, heads, slots, head_width), the mask is added to the scores; out comes (rows, width).
    """
    beams = queries.view(len(keys), -1, *queries.shape[1:]).transpose(1, 2)  # (sentences, heads, beams, head_width)
    mixed = F.scaled_dot_product_attention(beams, keys, values, attn_mask=mask)
    return mixed.transpose(1, 2).reshape(len(queries), -1)


def _masked(bias: Tensor, group: Group) -> Tensor:
    allowed = group.allowed(bias.device)
    return bias if allowed is None else bias.masked_fill(~allowed, float("-inf"))
