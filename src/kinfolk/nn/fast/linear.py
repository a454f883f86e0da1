"""torch's own layers, made quick on a CPU: linear, linear with activation, embedding, layer norm, dropout; precision.

    x W' + b, or activation(x W' + b)        (tokens, inputs) -> (tokens, outputs)
    x * m / (1 - p)                          m = 1 with probability 1 - p, else 0; in training

oneDNN can put a weight into blocks once. Six layers of MiniLM, two threads, before and after: 24 tokens 8.3 and 3.8 ms,
2,048 tokens 234 and 199 ms (Zen 4 with AVX-512); with AVX2 alone 6.3 and 4.5, 234 and 219 ms. The price is a second
copy, made at the first product of a layer that does not learn, and anew when the weight has changed.

Of dropout's mask four entries are read off one random integer: sixteen bits decide one, so p is met within 2 ** -16.
On the meta device, where a model is built first, asking for random numbers loads 800 modules (1.5 s): it is left out.

bf16 products, which take half the time with AVX512-BF16 or AMX, are for training alone: in and out come float32, and
weights, optimizer, residual sums, norms, softmax and recurrences stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kinfolk.errors import InputError
from kinfolk.nn.activations import ACTIVATIONS

# ACTIVATIONS in the memory of their input: a fresh block of that size costs more than the activation itself.
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.ops.aten.gelu_,
    "gelu_tanh": lambda hidden: torch.ops.aten.gelu_(hidden, approximate="tanh"),
    "relu": torch.relu_,
    "tanh": torch.tanh_,
    "silu": lambda hidden: F.silu(hidden, inplace=True),
}

# Activations that oneDNN computes inside the matrix product, as (name, algorithm).
FUSED = {"gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "relu": ("relu", "")}

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}

_dtype: ContextVar[torch.dtype | None] = ContextVar("dtype", default=None)

ENTRIES = 4  # of sixteen bits in one integer of sixty-four
LOWEST, STEPS = -(2**15), 2**16


class Cache:
    """What a layer or a stack looks up once; a copy of it makes its own."""

    cached: Any = None

    def forget(self) -> None:
        self.cached = None

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()


class PackedWeight(Cache):
    """The copy of one weight in oneDNN's order, valid as long as the weight stays the same."""

    def of(self, weight: Tensor) -> Tensor | None:
        """Address and version counter tell whether the copy is still valid. None: this weight is not packed.

        torch's fused optimizers write without counting: a layer that may learn must `forget`.
        """
        cached: tuple[int, int, Tensor, Tensor] | None = self.cached  # address, version, the copy, the weight
        if cached is not None and cached[0] == weight.data_ptr() and cached[1] == weight._version:
            return cached[2]
        if not (weight.is_cpu and weight.dtype == torch.float32 and packing_pays()) or weight.is_inference():
            return None
        detached = weight.detach()
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(detached)
        # At once: other threads see all or nothing. With the weight, or another could come to lie at its address.
        self.cached = weight.data_ptr(), weight._version, packed, detached
        return packed


class _Packable(nn.Module):
    """A layer that knows when its weight is only read."""

    weight: Tensor

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()  # type: ignore[misc]

    def train(self, mode: bool = True) -> Self:
        if mode:
            self.packed_weight.forget()
        return super().train(mode)

    def packed(self, hidden: Tensor, weight: Tensor) -> Tensor | None:
        """The weight as `packed_linear` wants it for these rows; None while it learns, and where nothing is gained."""
        if torch.is_grad_enabled():  # a step may follow that changes the weight unseen
            self.packed_weight.forget()
            return None
        if self.training or hidden.dtype is not torch.float32 or hidden.shape[0] == 0 or is_tracing():
            return None
        return self.packed_weight.of(weight)

    def project(self, hidden: Tensor, bias: Tensor | None) -> Tensor:
        weight = self.weight
        packed = self.packed(hidden, weight)
        return linear(hidden, weight, bias) if packed is None else packed_linear(hidden, packed, bias)

    @cached_property
    def packed_weight(self) -> PackedWeight:
        """Made at the first use, so that modules need no constructor of ours; an attribute that is no weight."""
        return PackedWeight()


class Linear(_Packable, nn.Linear):
    def forward(self, hidden: Tensor) -> Tensor:
        return self.project(hidden, self.bias)


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
            return packed_linear(hidden, packed, bias, *fused)
        activations = ACTIVATIONS if torch.is_grad_enabled() else IN_PLACE
        return activations[self.activation](self.project(hidden, bias))


class Embedding(_Packable, nn.Embedding):
    """Row i of a table for id i; with `project`, vectors compared with every row: the scores of a vocabulary."""


class Norm(nn.LayerNorm):
    """g * (x - mean(x)) / sqrt(var(x) + epsilon) + b for each token's vector x (Ba et al. 2016), called directly."""

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.layer_norm(hidden, self.normalized_shape, self.weight, self.bias, self.eps)


def add(hidden: Tensor, change: Tensor) -> Tensor:
    """hidden + change; where no gradient is wanted, in the memory of `change`, which must be fresh."""
    return hidden + change if torch.is_grad_enabled() else change.add_(hidden)


def dropout(values: Tensor, p: float) -> Tensor:
    if values.device.type != "cpu":
        return torch.dropout(values, p, train=True)
    return values * dropout_mask(values.shape, p).to(values.dtype).mul_(1 / (1 - p))


def dropout_mask(shape: Sequence[int], p: float) -> Tensor:
    """Which values stay, True with probability 1 - p; on the CPU."""
    count = math.prod(shape)
    bits = torch.empty(-(-count // ENTRIES), dtype=torch.int64).random_(-(2**63), None)
    return (bits.view(torch.int16)[:count] >= LOWEST + round(p * STEPS)).view(*shape)


class Dropout(nn.Dropout):
    def forward(self, values: Tensor) -> Tensor:
        return dropout(values, self.p) if self.training and self.p > 0 else values


def packed_linear(
    hidden: Tensor, packed: Tensor, bias: Tensor | None, activation: str = "none", algorithm: str = ""
) -> Tensor:
    """activation(x W' + b) by oneDNN; `algorithm` is its name for a form of GELU."""
    return torch.ops.mkldnn._linear_pointwise.default(hidden, packed, bias, activation, [], algorithm)  # type: ignore[no-any-return]


def is_tracing() -> bool:
    """Does torch record what is computed (jit.trace, compile, export)? Only plain torch may be used then."""
    watched = torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0
    return watched or torch.compiler.is_compiling()


@cache
def packing_pays() -> bool:
    """On x86 with vectors of 256 bits or more; elsewhere nobody has measured."""
    known: bool = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")  # type: ignore[no-untyped-call]
    return known and torch.backends.cpu.get_cpu_capability().startswith("AVX")


@cache
def fusing_pays() -> bool:
    """With AVX-512 the fused gelu is nearly free (0.25 ns an element against 4.6); with AVX2 it is the slower way."""
    return bool(torch.backends.cpu.get_cpu_capability().startswith("AVX512"))


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Products that start in here, and their gradients, have this precision."""
    token = _dtype.set(PRECISIONS[precision])
    try:
        yield
    finally:
        _dtype.reset(token)


def linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W' + b in the current precision: (tokens, inputs) -> (tokens, outputs), in the type of x."""
    dtype = _dtype.get()
    if dtype is None:
        return F.linear(hidden, weight, bias)
    return F.linear(hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)).to(hidden.dtype)


def add_product(total: Tensor, one: Tensor, other: Tensor) -> None:
    dtype = _dtype.get()
    if dtype is None:
        total.addmm_(one, other)
    else:
        total += one.to(dtype) @ other.to(dtype)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse what the machine would only imitate, at a third of the speed."""
    if PRECISIONS[precision] is not None and not _has_bf16(device):
        raise InputError(f"precision {precision}: this processor has no instructions for it; leave the option out")


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
