"""Matrix products with weights that lie as the processor reads them fastest, for inference on a CPU.

    x W' + b, or activation(x W' + b)        (tokens, inputs) -> (tokens, outputs)

torch keeps a weight row by row, and every product has to gather what a register wants. oneDNN can put it into blocks
once. Six layers of MiniLM, two threads, before and after: 24 tokens 8.3 and 3.8 ms, 2,048 tokens 234 and 199 ms (Zen 4
with AVX-512); with AVX2 alone 6.3 and 4.5, 234 and 219 ms. The price is a second copy of the weight in memory, which is
made at the first product, and anew when the weight has changed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor


class Packing:
    """The packed copy of one weight, as long as that stays the same."""

    def __init__(self) -> None:
        self._held: tuple[tuple[int, int], Tensor, Tensor] | None = None  # its state, the packed copy, the weight

    def of(self, weight: Tensor) -> Tensor:
        """Where the weight lies and how often it was written tell whether the copy is still true.

        The weight itself is held too, or another that took its place could come to lie where it lay. torch's fused
        optimisers write without counting: a layer that may learn must `forget`.
        """
        state, held = (weight.data_ptr(), weight._version), self._held
        if held is None or held[0] != state:
            kept = weight.detach()
            packed = torch.ops.mkldnn._reorder_linear_weight(kept)
            held = self._held = state, packed, kept  # in one go: another thread sees all of it or nothing
        return held[1]

    def forget(self) -> None:
        """Give the memory back."""
        self._held = None

    def __reduce__(self) -> tuple[type[Packing], tuple[()]]:
        """A copy of a layer makes its own."""
        return Packing, ()


def packs(hidden: Tensor, weight: Tensor) -> bool:
    """Is there a packed product for these: rows in float32 on a processor that gains by it?"""
    return (
        hidden.dtype == torch.float32
        and weight.dtype == torch.float32
        and hidden.device.type == "cpu"
        and len(hidden) > 0
        and not weight.is_inference()  # which counts no changes
        and packing_pays()
    )


def product(hidden: Tensor, packed: Tensor, bias: Tensor | None, activation: str = "none", way: str = "") -> Tensor:
    """activation(x W' + b) by oneDNN; `way` is its name for the algorithm of a GELU."""
    found: Any = torch.ops.mkldnn._linear_pointwise(hidden, packed, bias, activation, [], way)
    return found  # type: ignore[no-any-return]


@cache
def packing_pays() -> bool:
    """On x86 with vectors of 256 bits or more; elsewhere nobody has measured."""
    capability: str = torch.backends.cpu.get_cpu_capability()
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")  # type: ignore[no-untyped-call]
    return known and capability.startswith("AVX")
