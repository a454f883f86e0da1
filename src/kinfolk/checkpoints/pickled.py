"""Weights in PyTorch's own format, which is a pickle: opened only on request, and then without running code.

A pickle is a program. `torch.load(weights_only=True)` runs it on a machine that can build tensors and nothing else, so
a hostile file fails instead of acting; that machine has had holes before, hence the explicit flag as a second lock.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinfolk.checkpoints.header import LFS_POINTER
from kinfolk.checkpoints.safetensors_file import tensor_bytes
from kinfolk.errors import WeightsError, did_you_mean
from kinfolk.files import require_file

ZIP_START = b"PK\x03\x04"  # torch's format since 1.6; only this one can be mapped


class PickledTensors:
    """The tensors of one `.bin` or `.pt` file that holds a plain state dict."""

    def __init__(self, path: Path, allow_pickle: bool = False):
        self.where = str(path)
        require_file(path, "weights file")
        if not allow_pickle:
            raise WeightsError(
                f"{path} is a pickle, which can run code when opened; pass allow_pickle=True (--allow-pickle) "
                "if you trust it, or convert it once with `kinfolk convert --allow-pickle`"
            )
        self._tensors = _state_dict(_unpickle(path), self.where)

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.read(name).shape)

    def read(self, name: str) -> Tensor:
        if name in self._tensors:
            return self._tensors[name]
        raise WeightsError(f"{self.where}: no tensor {name!r}{did_you_mean(name, self._tensors)}")


def _unpickle(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            start = stream.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            raise WeightsError(f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats; whoever opens such a file knows
            return torch.load(path, map_location="cpu", weights_only=True, mmap=start.startswith(ZIP_START))
    except WeightsError:
        raise
    except Exception as error:  # a damaged or hostile pickle can fail in any way at all
        raise WeightsError(f"{path}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Torch's page of advice (which includes lowering the guard) in a few words."""
    wanted = re.search(r"GLOBAL:? ([\w.]+)", str(error))
    if wanted:
        return f"refused: it asks for {wanted[1]}, and only plain tensors are read from a pickle"
    return f"damaged, or not a file of plain tensors ({type(error).__name__})"


def _state_dict(found: object, where: str) -> dict[str, Tensor]:
    if not isinstance(found, dict):
        raise WeightsError(f"{where}: expected a dictionary of tensors, found {type(found).__name__}")
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise WeightsError(f"{where}: expected a dictionary of tensors, found a {kind} under {str(name)[:80]!r}")
        if not _is_plain(tensor):
            raise WeightsError(f"{where}: tensor {name[:80]!r} is not a plain tensor of numbers on the CPU")
    return {name: tensor.detach() for name, tensor in found.items()}


def _is_plain(tensor: Tensor) -> bool:
    """Dense, real memory, and no larger than it: a stride of zero could turn four bytes into a petabyte."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        return False
    return tensor_bytes(tensor) <= tensor.untyped_storage().nbytes()
