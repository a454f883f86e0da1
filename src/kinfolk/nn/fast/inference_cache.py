"""What a stack of post-norm blocks looks up once for inference: the sums of blocks.py over weights at hand.

    x = norm(x + attend(x Wqkv + b) Wo + b)
    x = norm(x + activation(x W1 + b) W2 + b)

One short text takes every weight of a model through the processor's cache, and what Python needs to find the next one
is gone from it each time: looking them up took 1.3 of the 7.3 ms of 24 tokens in MiniLM. So a stack remembers them, and
asks before each batch whether all are unchanged. Few tokens go through all layers in one call (small_batch.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from kinfolk.nn.fast.kernels import Bias, attend
from kinfolk.nn.fast.linear import FUSED, IN_PLACE, ActivatedLinear, Linear, Norm, fusing_pays, packed_linear
from kinfolk.nn.fast.small_batch import SmallBatch
from kinfolk.nn.scopes import AttentionPlan

SETTINGS = {"layers", "heads", "pre_norm", "activation", "eps", "normalized_shape"}  # what a block reads of itself


class BlockWeights(NamedTuple):
    """The parts of one post-norm block."""

    heads: int
    qkv: Linear
    output: Linear
    attention_norm: Norm
    up: ActivatedLinear
    down: Linear
    feed_forward_norm: Norm

    @property
    def tensors(self) -> list[Tensor | None]:
        """Weight and bias of each part, in the order of their use."""
        parts = self.qkv, self.output, self.attention_norm, self.up, self.down, self.feed_forward_norm
        return [tensor for part in parts for tensor in (part.weight, part.bias)]


PackedLinear = tuple[Tensor, Tensor | None]  # weight in oneDNN's order, and bias
NormWeights = tuple[tuple[int, ...], Tensor, Tensor, float]  # as torch.layer_norm takes them


class PackedBlock(NamedTuple):
    """The same, ready to be computed by oneDNN."""

    heads: int
    qkv: PackedLinear
    output: PackedLinear
    attention_norm: NormWeights
    up: PackedLinear
    activation: str
    down: PackedLinear
    feed_forward_norm: NormWeights

    @classmethod
    def of(cls, block: BlockWeights) -> Self | None:
        packed = [layer.packed_weight.of(layer.weight) for layer in (block.qkv, block.output, block.up, block.down)]
        if any(weight is None for weight in packed):
            return None
        biases = (block.qkv.bias, block.output.bias, block.up.bias, block.down.bias)
        qkv, output, up, down = zip(packed, biases, strict=True)
        norms = [
            (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
            for norm in (block.attention_norm, block.feed_forward_norm)
        ]
        return cls(block.heads, qkv, output, norms[0], up, block.up.activation, down, norms[1])  # type: ignore[arg-type]


class CachedStack:
    """The layers of a stack, and what is made of them at the first use, as long as `unchanged` says yes."""

    def __init__(self, blocks: list[BlockWeights], unchanged: Callable[[], bool]):
        self.blocks = blocks
        self.unchanged = unchanged

    @cached_property
    def packed(self) -> list[PackedBlock] | None:
        """None where this processor does not gain by it."""
        packed = [PackedBlock.of(block) for block in self.blocks]
        return None if None in packed else packed  # type: ignore[return-value]

    @cached_property
    def small_batch(self) -> SmallBatch | None:
        """None where the library is not there, or the blocks are not of the kind that it knows."""
        kinds = {
            (block.heads, block.up.activation, block.attention_norm.eps, block.feed_forward_norm.eps)
            for block in self.blocks
        }
        if len(kinds) != 1:
            return None
        heads, activation, epsilon, last = kinds.pop()
        if activation != "gelu" or epsilon != last:
            return None
        return SmallBatch.of([block.tensors for block in self.blocks], heads, epsilon)


class InferenceCache:
    """What a stack has looked up, as long as it is valid."""

    def __init__(self) -> None:
        self.cached: CachedStack | None = None

    def of(self, stack: nn.Module, look_up: Callable[[], Iterable[BlockWeights | None]]) -> CachedStack | None:
        """The stack's layers, looked up anew when something changed; None where one is of another kind."""
        cached = self.cached
        if cached is not None and cached.unchanged():
            return cached
        self.cached, blocks = None, []
        for block in look_up():
            if block is None:
                return None
            blocks.append(block)
        if any(weight.is_inference() for weight in stack.parameters()):  # which count no changes
            return None
        cached = CachedStack(blocks, _unchanged(stack))
        self.cached = cached  # at once: another thread may forget it meanwhile
        return cached if cached.unchanged() else None

    def forget(self) -> None:
        """Give the memory back."""
        self.cached = None

    def __reduce__(self) -> tuple[type[InferenceCache], tuple[()]]:
        """A copy of a stack makes its own."""
        return InferenceCache, ()


def run(layers: list[PackedBlock], hidden: Tensor, plan: AttentionPlan, bias: Bias | None) -> Tensor:
    """(tokens, width) -> (tokens, width), as the blocks would."""
    tokens = hidden.shape[0]
    for heads, qkv, output, attention_norm, up, activation, down, feed_forward_norm in layers:
        mixed = attend((packed_linear(hidden, *qkv).view(tokens, 3, heads, -1),), plan, bias)
        total = packed_linear(mixed.flatten(1), *output).add_(hidden)
        hidden = torch.layer_norm(total, *attention_norm)
        if activation in FUSED and fusing_pays():
            inner = packed_linear(hidden, *up, *FUSED[activation])
        else:
            inner = IN_PLACE[activation](packed_linear(hidden, *up))
        total = packed_linear(inner, *down).add_(hidden)
        hidden = torch.layer_norm(total, *feed_forward_norm)
    return hidden


def _unchanged(stack: nn.Module) -> Callable[[], bool]:
    """A question to be asked later: are all parts the same, none learning or hooked, no weight written?"""
    modules = list(stack.modules())
    attributes = [
        (values, name, values[name])
        for module in modules
        for values, names in (
            (module._modules, module._modules),
            (module._parameters, module._parameters),
            (vars(module), SETTINGS & vars(module).keys()),
        )
        for name in names
    ]
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
