"""A stack at rest: the sums of blocks.py, over weights that were looked up once.

    x = norm(x + attend(x Wqkv + b) Wo + b)
    x = norm(x + activation(x W1 + b) W2 + b)

One short text takes every weight of a model through the processor's cache, and what Python needs to find the next one
is gone from it each time: looking them up took 1.3 of the 7.3 ms of 24 tokens in MiniLM. So a stack remembers them, and
asks before each batch whether all are as they were. Few tokens go through all layers in one call (small_batch.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from kinfolk.nn.fast.kernels import FUSED, IN_PLACE, ActivatedLinear, Bias, attend_own, fusing_pays
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.fast.small_batch import FewTokens
from kinfolk.nn.norm import Norm
from kinfolk.nn.packing import product
from kinfolk.nn.scopes import AttentionPlan

SETTINGS = {"layers", "heads", "pre_norm", "activation", "eps", "normalized_shape"}  # what a block reads of itself


class Sum(NamedTuple):
    """x W' + b, ready to be computed."""

    packed: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, layer: Linear) -> Self | None:
        packed = layer.packing.of(layer.weight)
        return None if packed is None else cls(packed, layer.bias)


class Scale(NamedTuple):
    """The learned half of a norm, as torch.layer_norm takes it."""

    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    epsilon: float

    @classmethod
    def of(cls, norm: Norm) -> Self:
        return cls(norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class Remembered(NamedTuple):
    """One post-norm block."""

    heads: int
    qkv: Linear
    output: Linear
    attention_norm: Norm
    widen: ActivatedLinear
    narrow: Linear
    feed_forward_norm: Norm

    @property
    def weights(self) -> list[Tensor | None]:
        """Weight and bias of each part, in the order of their use."""
        parts = self.qkv, self.output, self.attention_norm, self.widen, self.narrow, self.feed_forward_norm
        return [weight for part in parts for weight in (part.weight, part.bias)]


class Packed(NamedTuple):
    """The same, ready to be computed by oneDNN."""

    heads: int
    qkv: Sum
    output: Sum
    attention_norm: Scale
    widen: Sum
    activation: str
    narrow: Sum
    feed_forward_norm: Scale

    @classmethod
    def of(cls, block: Remembered) -> Self | None:
        qkv, output, widen, narrow = map(Sum.of, (block.qkv, block.output, block.widen, block.narrow))
        if qkv is None or output is None or widen is None or narrow is None:
            return None
        norms = Scale.of(block.attention_norm), Scale.of(block.feed_forward_norm)
        return cls(block.heads, qkv, output, norms[0], widen, block.widen.activation, narrow, norms[1])


class Layers:
    """The layers of a stack, and what is made of them at the first use, as long as `unchanged` says yes."""

    def __init__(self, blocks: list[Remembered], unchanged: Callable[[], bool]):
        self.blocks = blocks
        self.unchanged = unchanged

    @cached_property
    def packed(self) -> list[Packed] | None:
        """None where this processor does not gain by it."""
        found = [Packed.of(block) for block in self.blocks]
        return None if None in found else found  # type: ignore[return-value]

    @cached_property
    def few(self) -> FewTokens | None:
        """None where the library is not there, or the blocks are not of the kind that it knows."""
        kinds = {
            (block.heads, block.widen.activation, block.attention_norm.eps, block.feed_forward_norm.eps)
            for block in self.blocks
        }
        if len(kinds) != 1:
            return None
        heads, activation, epsilon, last = kinds.pop()
        if activation != "gelu" or epsilon != last:
            return None
        return FewTokens.of([block.weights for block in self.blocks], heads, epsilon)


class InferenceCache:
    """What a stack remembers, as long as it holds."""

    def __init__(self) -> None:
        self._held: Layers | None = None

    def layers(self, stack: nn.Module, remember: Callable[[], Iterable[Remembered | None]]) -> Layers | None:
        """The stack's layers, looked up with `remember` when something changed; None where one is of another kind."""
        held = self._held
        if held is not None and held.unchanged():
            return held
        self._held, found = None, []
        for layer in remember():
            if layer is None:
                return None
            found.append(layer)
        if any(weight.is_inference() for weight in stack.parameters()):  # which count no changes
            return None
        held = Layers(found, _unchanged(stack))
        self._held = held  # in one go: another thread may forget it meanwhile
        return held if held.unchanged() else None

    def forget(self) -> None:
        """Give the memory back."""
        self._held = None

    def __reduce__(self) -> tuple[type[InferenceCache], tuple[()]]:
        """A copy of a stack makes its own."""
        return InferenceCache, ()


def run(layers: list[Packed], hidden: Tensor, plan: AttentionPlan, bias: Bias | None) -> Tensor:
    """(tokens, width) -> (tokens, width), as the blocks would."""
    tokens = hidden.shape[0]
    for heads, qkv, output, attention_norm, widen, activation, narrow, feed_forward_norm in layers:
        mixed = attend_own(product(hidden, *qkv).view(tokens, 3, heads, -1), plan, bias)
        total = product(mixed.flatten(1), *output).add_(hidden)
        hidden = torch.layer_norm(total, *attention_norm)
        if activation in FUSED and fusing_pays():
            inner = product(hidden, *widen, *FUSED[activation])
        else:
            inner = IN_PLACE[activation](product(hidden, *widen))
        total = product(inner, *narrow).add_(hidden)
        hidden = torch.layer_norm(total, *feed_forward_norm)
    return hidden


def _unchanged(stack: nn.Module) -> Callable[[], bool]:
    """A question to be asked later: are all parts in their places, none learning or watched, no weight written?"""
    modules = list(stack.modules())
    places = [
        (slots, name, held)
        for module in modules
        for slots, names in (
            (module._modules, module._modules),
            (module._parameters, module._parameters),
            (vars(module), SETTINGS & vars(module).keys()),
        )
        for name, held in ((name, slots[name]) for name in names)
    ]
    children = [(module._modules, len(module._modules)) for module in modules]
    weights = [(weight, weight.data_ptr(), weight._version) for weight in stack.parameters()]

    def unchanged() -> bool:
        if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
            return False
        for module in modules:
            if module.training or module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
                return False
        for slots, name, held in places:
            if slots.get(name) is not held:
                return False
        if any(len(slots) != count for slots, count in children):
            return False
        return all(weight.data_ptr() == where and weight._version == version for weight, where, version in weights)

    return unchanged
