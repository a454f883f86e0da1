"""torch's own layers, made quick for inference on a CPU: linear, linear with activation, embedding, layer norm.

    x W' + b, or activation(x W' + b)        (tokens, inputs) -> (tokens, outputs)

torch keeps a weight row by row, and every product has to gather what a register wants. oneDNN can put it into blocks
once. Six layers of MiniLM, two threads, before and after: 24 tokens 8.3 and 3.8 ms, 2,048 tokens 234 and 199 ms (Zen 4
with AVX-512); with AVX2 alone 6.3 and 4.5, 234 and 219 ms. The price is a second copy of the weight in memory, which is
made at the first product of a layer that does not learn, and anew when the weight has changed.

A model is first built on the meta device, where shapes can be checked against a file before any memory is taken. There
random numbers mean nothing, and asking torch for them loads 800 modules (1.5 s): so these layers leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kinfolk.nn.fast.precision import linear

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


class PackedWeight:
    """The copy of one weight in oneDNN's order, valid as long as the weight stays the same."""

    def __init__(self) -> None:
        self.cached: tuple[int, int, Tensor, Tensor] | None = None  # address, version, the copy, the weight

    def of(self, weight: Tensor) -> Tensor | None:
        """Address and version counter tell whether the copy is still valid. None: this weight is not packed.

        The weight itself is kept too, or another that took its place could come to lie at its address. torch's fused
        optimizers write without counting: a layer that may learn must `forget`. A write through `weight.data` is not
        counted either, and goes unnoticed.
        """
        cached = self.cached
        if cached is not None and cached[0] == weight.data_ptr() and cached[1] == weight._version:
            return cached[2]
        if not _can_pack(weight):
            return None
        detached = weight.detach()
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(detached)
        self.cached = weight.data_ptr(), weight._version, packed, detached  # at once: other threads see all or nothing
        return packed

    def forget(self) -> None:
        """Give the memory back."""
        self.cached = None

    def __reduce__(self) -> tuple[type[PackedWeight], tuple[()]]:
        """A copy of a layer makes its own."""
        return PackedWeight, ()


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
        """The weight as `packed_linear` wants it for these rows; None while it learns, and where nothing is gained.

        Where gradients are wanted, a step may follow that changes the weight unseen.
        """
        if torch.is_grad_enabled():
            self.packed_weight.forget()
            return None
        if self.training or hidden.dtype is not torch.float32 or hidden.shape[0] == 0 or is_tracing():
            return None
        return self.packed_weight.of(weight)

    def project(self, hidden: Tensor, bias: Tensor | None) -> Tensor:
        """x W' + b, packed where that is possible."""
        weight = self.weight
        packed = self.packed(hidden, weight)
        return linear(hidden, weight, bias) if packed is None else packed_linear(hidden, packed, bias)

    @property
    def packed_weight(self) -> PackedWeight:
        """Made at the first use, so that modules need no constructor of ours; an attribute that is no weight."""
        packed_weight: PackedWeight | None = self.__dict__.get("_packed_weight")
        if packed_weight is None:
            packed_weight = self.__dict__["_packed_weight"] = PackedWeight()
        return packed_weight


class Linear(_Packable, nn.Linear):
    """x W' + b."""

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
    """g * (x - mean(x)) / sqrt(var(x) + epsilon) + b for each token's vector x (Ba et al. 2016).

    torch's own, called directly: for one short text, the detour through its module would cost more than the norm.
    """

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.layer_norm(hidden, self.normalized_shape, self.weight, self.bias, self.eps)


def add(hidden: Tensor, change: Tensor) -> Tensor:
    """hidden + change; where no gradient is wanted, in the memory of `change`, which must be fresh."""
    return hidden + change if torch.is_grad_enabled() else change.add_(hidden)


def packed_linear(
    hidden: Tensor, packed: Tensor, bias: Tensor | None, activation: str = "none", algorithm: str = ""
) -> Tensor:
    """activation(x W' + b) by oneDNN; `algorithm` is its name for a form of GELU."""
    return torch.ops.mkldnn._linear_pointwise.default(hidden, packed, bias, activation, [], algorithm)  # type: ignore[no-any-return]


def is_tracing() -> bool:
    """Does torch record what is computed (jit.trace, compile, export)? Only plain torch may be used then."""
    watched = torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0
    return watched or torch.compiler.is_compiling()


def _can_pack(weight: Tensor) -> bool:
    """Is it in float32 on a processor that gains by it, and does it count its changes?"""
    return weight.is_cpu and weight.dtype == torch.float32 and not weight.is_inference() and packing_pays()


@cache
def packing_pays() -> bool:
    """On x86 with vectors of 256 bits or more; elsewhere nobody has measured."""
    capability: str = torch.backends.cpu.get_cpu_capability()
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")  # type: ignore[no-untyped-call]
    return known and capability.startswith("AVX")


@cache
def fusing_pays() -> bool:
    """With AVX-512 the fused gelu is nearly free (0.25 ns an element against 4.6); with AVX2 it is the slower way."""
    capability: str = torch.backends.cpu.get_cpu_capability()
    return capability.startswith("AVX512")
