"""The one place that chooses how something is computed: attention, and a linear layer with its activation.

    attend(Q, K, V) = softmax(Q K' / sqrt(head_width) + bias) V       over the keys that the scope allows

Every choice here gives the plain definition's result; tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.parts.dropout import dropout as drop
from kinfolk.parts.dropout import dropped_mix
from kinfolk.parts.packing import product
from kinfolk.parts.scopes import Bound, Group
from kinfolk.parts.tables import Linear
from kinfolk.parts.trace import Trace

MANY_SCORES = 2**22  # 16 MB: beyond, memory is dearer than the time to make the mask's numbers again

# A score term: given a group and its queries (count, heads, m, head_width), something to add to the scores
# (count, heads, m, n).
Bias = Callable[[Group, Tensor], Tensor]


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    bound: Bound,
    bias: Bias | None = None,
    dropout: float = 0.0,
    trace: Trace | None = None,
) -> Tensor:
    """Packed queries (m, heads, head_width) look at packed keys and values (n, heads, head_width)."""

    def take(group: Group) -> tuple[Tensor, ...]:
        return group.queries.take(queries), group.keys.take(keys), group.keys.take(values)

    return _attend(take, bound, bias, dropout, trace) if bound.groups else queries.new_zeros(queries.shape)


def attend_own(
    qkv: Tensor, bound: Bound, bias: Bias | None = None, dropout: float = 0.0, trace: Trace | None = None
) -> Tensor:
    """As `attend`, for queries, keys and values of the same tokens: (n, 3, heads, head_width), taken in one go."""

    def take(group: Group) -> tuple[Tensor, ...]:
        return group.keys.rows(qkv).permute(2, 0, 3, 1, 4).unbind(0)

    return _attend(take, bound, bias, dropout, trace) if bound.groups else qkv.new_zeros(0, *qkv.shape[2:])


def _attend(
    take: Callable[[Group], tuple[Tensor, ...]],
    bound: Bound,
    bias: Bias | None,
    dropout: float,
    trace: Trace | None,
) -> Tensor:
    watcher = trace if trace is not None and trace.wants_attention else None
    if watcher is not None:
        watcher.begin_attention()
    outputs = []
    for group in bound.groups:
        q, k, v = take(group)
        mask = group.mask if bias is None else _masked(bias(group, q), group)
        if k.shape[2] == 0:  # no keys at all, as in cross-attention to an empty source
            mixed = q.new_zeros(q.shape)
        elif dropout > 0 and q.device.type == "cpu":  # torch takes these very steps there, with a dearer mask
            scores = plain_scores(q, k, group, bias)
            many = scores.numel() > MANY_SCORES
            mixed = dropped_mix(scores, v, dropout) if many else drop(scores.softmax(-1), dropout) @ v
        else:
            causal = group.causal and bias is None
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        if group.blind is not None:
            mixed = mixed.masked_fill(group.blind, 0.0)
        outputs.append(group.queries.give(mixed))
        if watcher is not None:
            watcher.add_attention(group, plain_scores(q, k, group, bias), bound)
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined if bound.order is None else joined.index_select(0, bound.order)


def attend_slots(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """One step of generation: rows (sentences x beams, heads, head_width) look at the slots of their sentence.

    Keys and values are (sentences, heads, slots, head_width), the mask is added to the scores; out comes (rows, width).
    """
    beams = queries.view(len(keys), -1, *queries.shape[1:]).transpose(1, 2)  # (sentences, heads, beams, head_width)
    mixed = F.scaled_dot_product_attention(beams, keys, values, attn_mask=mask)
    return mixed.transpose(1, 2).reshape(len(queries), -1)


def plain_scores(q: Tensor, k: Tensor, group: Group, bias: Bias | None = None) -> Tensor:
    """Q K' / sqrt(head_width) + bias, -inf where the group's mask forbids: the definition, for eyes and tests."""
    scores: Tensor = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias(group, q)
    allowed = _allowed(group, q.device)
    return scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))


def _allowed(group: Group, device: torch.device) -> Tensor | None:
    if not group.causal:
        return group.mask
    length = group.queries.length
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def _masked(bias: Tensor, group: Group) -> Tensor:
    allowed = _allowed(group, bias.device)
    return bias if allowed is None else bias.masked_fill(~allowed, float("-inf"))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda hidden: F.gelu(hidden, approximate="tanh"),
    "relu": F.relu,
    "tanh": torch.tanh,
    "silu": F.silu,
}

# The same in the memory of their input: a fresh block of that size costs more than the activation itself.
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.ops.aten.gelu_,
    "gelu_tanh": lambda hidden: torch.ops.aten.gelu_(hidden, approximate="tanh"),
    "relu": torch.relu_,
    "tanh": torch.tanh_,
    "silu": lambda hidden: F.silu(hidden, inplace=True),
}

# Activations that oneDNN computes inside the matrix product, as (name, algorithm).
FUSED = {"gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "relu": ("relu", "")}


class ActivatedLinear(Linear):
    """activation(x W' + b), (tokens, inputs) -> (tokens, outputs); fused where the machine gains by it."""

    def __init__(self, inputs: int, outputs: int, activation: str):
        super().__init__(inputs, outputs)
        self.activation = activation

    def forward(self, hidden: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        fused = FUSED.get(self.activation) if fusing_pays() else None
        packed = None if fused is None else self.packed(hidden, weight)
        if fused is not None and packed is not None:
            return product(hidden, packed, bias, *fused)
        activations = ACTIVATIONS if torch.is_grad_enabled() else IN_PLACE
        return activations[self.activation](self.product(hidden, bias))


def add(hidden: Tensor, change: Tensor) -> Tensor:
    """hidden + change; where no gradient is wanted, in the memory of `change`, which must be fresh."""
    return hidden + change if torch.is_grad_enabled() else change.add_(hidden)


@cache
def fusing_pays() -> bool:
    """With AVX-512 the fused gelu is nearly free (0.25 ns an element against 4.6); with AVX2 it is the slower way."""
    capability: str = torch.backends.cpu.get_cpu_capability()
    return capability.startswith("AVX512")
