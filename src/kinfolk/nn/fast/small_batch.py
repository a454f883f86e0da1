"""Calls small_batch.c: few tokens through a whole stack in one call.

For one short text torch spends most of its time around the products. Six layers of MiniLM with this and without, two
threads: 8 tokens 1.7 and 3.9 ms, 24 tokens 3.4 and 5.6, 64 tokens 7.7 and 8.8, 128 tokens 16.0 and 15.6 (AVX-512).

The library is compiled when kinfolk is installed (hatch_build.py). Without it torch does it all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from kinfolk.nn.scopes import AttentionPlan

MAX_TOKENS = 64  # tokens; from about 80 on, oneDNN is faster
BLOCK = 16  # small_batch.c works on this many columns at a time
WEIGHTS = 12  # of one layer: weight and bias of four products and two norms


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
        if group.mask is not None or group.fully_masked is not None or group.causal:
            return False
        queries, keys = group.queries, group.keys
        if queries.start != 0 or keys.start != 0 or queries.length != keys.length:
            return False
        return queries.count * queries.length == keys.count * keys.length == tokens

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
