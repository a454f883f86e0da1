"""What a stack of post-norm blocks looks up once for inference: the sums of blocks.py over weights at hand.

    x = norm(x + attend(x Wqkv + b) Wo + b)
    x = norm(x + activation(x W1 + b) W2 + b)

Looking up the weights took 1.3 of the 7.3 ms of 24 tokens in MiniLM. So a stack remembers them, and asks before each
batch whether all are unchanged. Few tokens go through all layers in one call (small_batch.c).

For one short text torch spends most of its time around the products. Six layers of MiniLM with small_batch.c and
without, two threads: 8 tokens 1.7 and 3.9 ms, 24 tokens 3.4 and 5.6, 64 tokens 7.7 and 8.8, 128 tokens 16.0 and 15.6
(AVX-512). It is compiled when kinfolk is installed (hatch_build.py); without it torch does it all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from kinfolk.nn.fast.kernels import Bias, attend
from kinfolk.nn.fast.linear import FUSED, IN_PLACE, Cache, fusing_pays, packed_linear
from kinfolk.nn.scopes import AttentionPlan

SETTINGS = {"layers", "heads", "pre_norm", "activation", "eps", "normalized_shape"}  # what a block reads of itself
MAX_TOKENS = 64  # tokens; from about 80 on, oneDNN is faster
BLOCK = 16  # small_batch.c works on this many columns at a time
WEIGHTS = 12  # of one layer: weight and bias of four products and two norms

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


class SmallBatch:
    """Where the weights of a stack's layers lie, in the order of small_batch.c's `Layer`."""

    def __init__(self, call: ctypes._NamedFuncPointer, layers: Sequence[Sequence[Tensor]], heads: int, epsilon: float):
        self._call = call
        self._weights = [[weight.detach() for weight in layer] for layer in layers]  # kept: they must not be freed
        addresses = [weight.data_ptr() for layer in self._weights for weight in layer]
        self._table = (ctypes.c_void_p * len(addresses))(*addresses)
        self._width, self._inner_width = layers[0][8].shape  # of the product down to the width
        self._heads, self._epsilon = heads, epsilon

    @classmethod
    def of(cls, layers: Sequence[Sequence[Tensor | None]], heads: int, epsilon: float) -> Self | None:
        call = library()
        kept = [[weight for weight in layer if weight is not None and _plain(weight)] for layer in layers]
        if call is None or not kept or any(len(layer) != WEIGHTS for layer in kept):
            return None
        width, inner = kept[0][8].shape
        if width % (heads * BLOCK) or inner % BLOCK:
            return None
        vector, norm = (width,), [(width,), (width,)]
        attention = [(3 * width, width), (3 * width,), (width, width), vector, *norm]
        shapes = [*attention, (inner, width), (inner,), (width, inner), vector, *norm]
        if any([tuple(weight.shape) for weight in layer] != shapes for layer in kept):
            return None
        return cls(call, kept, heads, epsilon)

    def fits(self, hidden: Tensor, plan: AttentionPlan) -> bool:
        """Are these few tokens, in sequences of one length, that all see each other?"""
        tokens, width = hidden.shape
        if tokens > MAX_TOKENS or width != self._width or len(plan.groups) != 1 or not _plain(hidden):
            return False
        group = plan.groups[0]
        if group.mask is not None or group.causal:
            return False
        queries, keys = group.queries, group.keys
        alike = queries.start == keys.start == 0 and queries.length == keys.length
        return alike and queries.count * queries.length == keys.count * keys.length == tokens

    def run(self, hidden: Tensor, plan: AttentionPlan, first: int, last: int) -> Tensor:
        """(tokens, width) -> (tokens, width): layers `first` to `last - 1`."""
        assert 0 <= first <= last <= len(self._weights)
        rows = plan.groups[0].queries
        result = hidden.clone()
        failed = self._call(
            ctypes.byref(self._table, first * WEIGHTS * ctypes.sizeof(ctypes.c_void_p)),
            last - first,
            rows.count,
            rows.length,
            self._width,
            self._heads,
            self._inner_width,
            self._epsilon,
            torch.get_num_threads(),
            result.data_ptr(),
        )
        if failed:
            raise MemoryError
        return result


def _plain(tensor: Tensor) -> bool:
    """Does it lie in memory as C expects? Other kinds of tensors do not."""
    if type(tensor) not in (Tensor, nn.Parameter) or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return tensor.is_cpu and tensor.dtype is torch.float32 and tensor.is_contiguous()


@cache
def library() -> ctypes._NamedFuncPointer | None:
    """The function of the library for this processor; None where there is none."""
    capability: str = torch.backends.cpu.get_cpu_capability()
    kind = "avx512" if capability.startswith("AVX512") else capability.lower()
    try:
        call = ctypes.CDLL(str(Path(__file__).with_name(f"small_batch-{kind}.so"))).small_batch_1
    except (OSError, AttributeError):  # not compiled here, or torch has another OpenMP; of another version
        return None
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    call.argtypes = [pointer, *[integer] * 6, ctypes.c_float, integer, pointer]
    call.restype = integer
    return call
