"""Matrix products with weights that lie as the processor reads them fastest, for inference on a CPU.

    x W' + b, or activation(x W' + b)        (tokens, inputs) -> (tokens, outputs)

torch keeps a weight row by row, and every product has to gather what a register wants. oneDNN can put it into blocks
once. Six layers of MiniLM, two threads, before and after: 24 tokens 8.3 and 3.8 ms, 2,048 tokens 234 and 199 ms (Zen 4
with AVX-512); with AVX2 alone 6.3 and 4.5, 234 and 219 ms. The price is a second copy of the weight in memory, which is
made at the first product, and anew when the weight has changed.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor


class Packing:
    """The packed copy of one weight, as long as that stays the same."""

    def __init__(self) -> None:
        self._held: tuple[int, int, Tensor, Tensor] | None = None  # where it lies, its version, packed, the weight

    def of(self, weight: Tensor) -> Tensor | None:
        """Where the weight lies and how often it was written tell whether the copy is still true. None: no packing.

        The weight itself is held too, or another that took its place could come to lie where it lay. torch's fused
        optimizers write without counting: a layer that may learn must `forget`. A write through `weight.data` is not
        counted either, and goes unnoticed.
        """
        held = self._held
        if held is not None and held[0] == weight.data_ptr() and held[1] == weight._version:
            return held[2]
        if not packs(weight):
            return None
        kept = weight.detach()
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(kept)
        self._held = weight.data_ptr(), weight._version, packed, kept  # in one go: other threads see all or nothing
        return packed

    def forget(self) -> None:
        """Give the memory back."""
        self._held = None

    def __reduce__(self) -> tuple[type[Packing], tuple[()]]:
        """A copy of a layer makes its own."""
        return Packing, ()


def packs(weight: Tensor) -> bool:
    """Is it in float32 on a processor that gains by it, and does it count its changes?"""
    return weight.is_cpu and weight.dtype == torch.float32 and not weight.is_inference() and packing_pays()


def product(hidden: Tensor, packed: Tensor, bias: Tensor | None, activation: str = "none", way: str = "") -> Tensor:
    """activation(x W' + b) by oneDNN; `way` is its name for the algorithm of a GELU."""
    return torch.ops.mkldnn._linear_pointwise.default(hidden, packed, bias, activation, [], way)  # type: ignore[no-any-return]


def recorded() -> bool:
    """Does torch write down what is computed, as for ONNX? Only what every torch knows may be used then."""
    watched = torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0
    return watched or torch.compiler.is_compiling()


@cache
def packing_pays() -> bool:
    """On x86 with vectors of 256 bits or more; elsewhere nobody has measured."""
    capability: str = torch.backends.cpu.get_cpu_capability()
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")  # type: ignore[no-untyped-call]
    return known and capability.startswith("AVX")
