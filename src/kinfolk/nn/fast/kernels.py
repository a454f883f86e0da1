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

from kinfolk.nn.fast.dropout_attention import attend_learning
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.packing import product
from kinfolk.nn.scopes import AttentionPlan, Group
from kinfolk.nn.trace import Trace

# A score term: given a group and its queries (count, heads, m, head_width), something to add to the scores
# (count, heads, m, n).
Bias = Callable[[Group, Tensor], Tensor]


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    plan: AttentionPlan,
    bias: Bias | None = None,
    dropout: float = 0.0,
    trace: Trace | None = None,
) -> Tensor:
    """Packed queries (m, heads, head_width) look at packed keys and values (n, heads, head_width)."""
    return _attend((queries, keys, values), plan, bias, dropout, trace)


def attend_own(
    qkv: Tensor, plan: AttentionPlan, bias: Bias | None = None, dropout: float = 0.0, trace: Trace | None = None
) -> Tensor:
    """As `attend`, for queries, keys and values of the same tokens: (n, 3, heads, head_width), taken in one go."""
    return _attend((qkv,), plan, bias, dropout, trace)


def _attend(
    given: tuple[Tensor, ...], plan: AttentionPlan, bias: Bias | None, dropout: float, trace: Trace | None
) -> Tensor:
    if not plan.groups:
        return given[0].new_zeros(0, *given[0].shape[-2:])
    if trace is not None:
        watch(given, plan, bias, trace)
    if dropout > 0 and given[0].device.type == "cpu":
        terms = [] if bias is None else [bias(group, _taken(given, group)[0]) for group in plan.groups]
        return attend_learning(given, plan, terms, dropout)
    outputs = []
    for group in plan.groups:
        q, k, v = _taken(given, group)
        mask = group.mask if bias is None else _masked(bias(group, q), group)
        if k.shape[2] == 0:  # no keys at all, as in cross-attention to an empty source
            mixed = q.new_zeros(q.shape)
        else:
            causal = group.causal and bias is None
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        if group.fully_masked is not None:
            mixed = mixed.masked_fill(group.fully_masked, 0.0)
        outputs.append(group.queries.give(mixed))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined if plan.order is None else joined.index_select(0, plan.order)


def watch(given: tuple[Tensor, ...], plan: AttentionPlan, bias: Bias | None, trace: Trace) -> None:
    """Show a trace who attends to whom, beside the computation, where it wants to know."""
    if not trace.wants_attention:
        return
    trace.begin_attention()
    for group in plan.groups:
        q, k, _ = _taken(given, group)
        trace.add_attention(group, plain_scores(q, k, group, bias), plan)


def _taken(given: tuple[Tensor, ...], group: Group) -> tuple[Tensor, ...]:
    """A group's queries, keys and values: (count, heads, length, head_width) each."""
    if len(given) == 1:
        return group.keys.rows(given[0]).permute(2, 0, 3, 1, 4).unbind(0)
    queries, keys, values = given
    return group.queries.take(queries), group.keys.take(keys), group.keys.take(values)


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
    allowed = group.allowed(q.device)
    return scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))


def _masked(bias: Tensor, group: Group) -> Tensor:
    allowed = group.allowed(bias.device)
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
