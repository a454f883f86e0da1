"""The precision of matrix products in training: float32, or bfloat16 where the processor has it.

    bf16:    round(round(x) round(W)' + round(b))        rounded to 8 bits, added up in 24; in and out come float32

Weights, their optimizer, residual sums, norms and softmax stay float32, and so does everything that is not learning. A
product takes half the time on a processor with AVX512-BF16 or AMX. Recurrences are no products of this kind: torch
computes a whole LSTM in one piece, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.errors import InputError

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}

_dtype: ContextVar[torch.dtype | None] = ContextVar("dtype", default=None)


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
    """total += one @ other in the current precision."""
    dtype = _dtype.get()
    if dtype is None:
        total.addmm_(one, other)
    else:
        total += one.to(dtype) @ other.to(dtype)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse what the machine would only imitate, at a third of the speed."""
    if PRECISIONS[precision] is not None and not _has_bf16(device):
        raise InputError(
            f"precision {precision}: this {'processor' if device.type == 'cpu' else 'device'} has no instructions for "
            "it and would be slower than with fp32; leave the option out"
        )


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
