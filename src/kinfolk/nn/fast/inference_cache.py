"""What a stack of post-norm blocks looks up once for inference: the sums of blocks.py over weights at hand.

    x = norm(x + attend(x Wqkv + b) Wo + b)
    x = norm(x + activation(x W1 + b) W2 + b)

Looking up the weights took 1.3 of the 7.3 ms of 24 tokens in MiniLM. So a stack remembers them, and asks before each
batch whether all are unchanged. Few tokens go through all layers in one call (small_batch.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from kinfolk.nn.fast.kernels import Bias, attend
from kinfolk.nn.fast.linear import FUSED, IN_PLACE, Cache, fusing_pays, packed_linear
from kinfolk.nn.fast.small_batch import SmallBatch
from kinfolk.nn.scopes import AttentionPlan

SETTINGS = {"layers", "heads", "pre_norm", "activation", "eps", "normalized_shape"}  # what a block reads of itself

# Of a block: heads; qkv, output and norm of its attention; up, activation, down and norm of its feed-forward network.
# A product is its weight in oneDNN's order and its bias, a norm what torch.layer_norm takes.
PackedBlock = tuple[Any, ...]


class CachedStack:
    """The blocks of a stack, and what is made of them at the first use, as long as `unchanged` says yes."""

    def __init__(self, blocks: list[Any], unchanged: Callable[[], bool]):
        self.blocks = blocks
        self.unchanged = unchanged

    @cached_property
    def packed(self) -> list[PackedBlock] | None:
        packed = [_packed(block) for block in self.blocks]
        return None if None in packed else packed  # type: ignore[return-value]

    @cached_property
    def small_batch(self) -> SmallBatch | None:
        heads = {block.attention.heads for block in self.blocks}
        activations = {block.feed_forward.up.activation for block in self.blocks}
        epsilons = {norm.eps for block in self.blocks for norm in (block.attention_norm, block.feed_forward_norm)}
        if activations != {"gelu"} or len(heads) + len(epsilons) != 2:
            return None
        layers = [[tensor for part in parts(block) for tensor in (part.weight, part.bias)] for block in self.blocks]
        return SmallBatch.of(layers, heads.pop(), epsilons.pop())


class InferenceCache(Cache):
    def of(self, stack: nn.Module, look_up: Callable[[Any], list[Any] | None]) -> CachedStack | None:
        """The stack's blocks, looked up anew when something changed; None where one is of another kind."""
        cached: CachedStack | None = self.cached
        if cached is not None and cached.unchanged():
            return cached
        self.cached, blocks = None, look_up(stack)
        if blocks is None or any(weight.is_inference() for weight in stack.parameters()):  # which count no changes
            return None
        cached = CachedStack(blocks, _unchanged(stack))
        self.cached = cached  # at once: another thread may forget it meanwhile
        return cached if cached.unchanged() else None


def parts(block: Any) -> tuple[Any, ...]:
    """The layers of a block that have weights, in the order of their use."""
    attention, inner = block.attention, block.feed_forward
    return attention.qkv, attention.output, block.attention_norm, inner.up, inner.down, block.feed_forward_norm


def run(layers: list[PackedBlock], hidden: Tensor, plan: AttentionPlan, bias: Bias | None) -> Tensor:
    tokens = hidden.shape[0]
    for heads, qkv, output, attention_norm, up, activation, down, feed_forward_norm in layers:
        mixed = attend((packed_linear(hidden, *qkv).view(tokens, 3, heads, -1),), plan, bias)
        total = packed_linear(mixed.flatten(1), *output).add_(hidden)
        hidden = torch.layer_norm(total, *attention_norm)
        if activation in FUSED and fusing_pays():
            inner = packed_linear(hidden, *up, *FUSED[activation])  # type: ignore[call-arg]
        else:
            inner = IN_PLACE[activation](packed_linear(hidden, *up))
        total = packed_linear(inner, *down).add_(hidden)
        hidden = torch.layer_norm(total, *feed_forward_norm)
    return hidden


def _packed(block: Any) -> PackedBlock | None:
    qkv, output, first, up, down, last = parts(block)
    products = [(layer.packed_weight.of(layer.weight), layer.bias) for layer in (qkv, output, up, down)]
    if any(weight is None for weight, _ in products):
        return None
    norms = [(norm.normalized_shape, norm.weight, norm.bias, norm.eps) for norm in (first, last)]
    return block.attention.heads, *products[:2], norms[0], products[2], up.activation, products[3], norms[1]


def _unchanged(stack: nn.Module) -> Callable[[], bool]:
    """A question to be asked later: are all parts the same, none learning or hooked, no weight written?"""
    modules = list(stack.modules())
    attributes: list[tuple[dict[str, Any], str, Any]] = []
    for module in modules:
        settings = [(vars(module), name, vars(module)[name]) for name in SETTINGS & vars(module).keys()]
        registered = (module._modules, module._parameters)
        attributes += settings + [(values, name, part) for values in registered for name, part in values.items()]
    children = [(module._modules, len(module._modules)) for module in modules]
    weights = [(weight, weight.data_ptr(), weight._version) for weight in stack.parameters()]

    def unchanged() -> bool:
        if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
            return False
        for module in modules:
            if module.training or module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
                return False
        for values, name, value in attributes:
            if values.get(name) is not value:
                return False
        if any(len(values) != count for values, count in children):
            return False
        return all(weight.data_ptr() == address and weight._version == version for weight, address, version in weights)

    return unchanged
