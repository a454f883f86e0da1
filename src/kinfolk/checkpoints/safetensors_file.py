"""One safetensors file: tensors over a memory map when reading, tensor by tensor when writing.

Reading copies nothing: a tensor is a view of the mapped file, and the pages come from the disk when they are used.
The map is private (copy on write), so a read-only file works and writing into a tensor never reaches the disk.
Measured on 200 tensors of 472 MB: 2 ms until all tensors exist, against 9 ms through `safetensors.safe_open`.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Protocol

import torch
from torch import Tensor

from kinfolk.checkpoints.header import DTYPE_NAMES, DTYPES, METADATA, Buffer, Entry, build_header, parse_header
from kinfolk.errors import WeightsError, did_you_mean
from kinfolk.files import atomic_write, reading, require_file

FORMAT: Mapping[str, str] = MappingProxyType({"format": "pt"})  # what other readers expect to find


class TensorSource(Protocol):
    """Named tensors on the CPU, whatever they are stored in; `where` is for messages."""

    where: str

    def names(self) -> Iterable[str]:
        """All names, in an order that is good to read in."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, known without reading it."""

    def read(self, name: str) -> Tensor:
        """The tensor as stored; it may share memory with the source, so copy what you will change."""


class SafetensorsBuffer:
    """The tensors of a whole safetensors file that lies in memory or is mapped there."""

    def __init__(self, content: Buffer, where: str):
        self.where = where
        self._content = content
        header = parse_header(content, where)
        self.entries, self.metadata, self._start = header.entries, header.metadata, header.data_start

    def names(self) -> Iterable[str]:
        return self.entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def read(self, name: str) -> Tensor:
        entry = self._entry(name)
        dtype, size, start = DTYPES[entry.dtype], entry.end - entry.begin, self._start + entry.begin
        if size == 0:
            return torch.empty(entry.shape, dtype=dtype)
        if dtype is torch.bool:  # a byte that is neither 0 nor 1 would be undefined behaviour as a bool
            return self._bytes(start, size).ne(0).reshape(entry.shape)
        if start % dtype.itemsize:  # legal in the format, but torch wants its numbers aligned
            return self._bytes(start, size).clone().view(dtype).reshape(entry.shape)
        count = size // dtype.itemsize
        return torch.frombuffer(self._content, dtype=dtype, count=count, offset=start).view(entry.shape)

    def _bytes(self, start: int, size: int) -> Tensor:
        return torch.frombuffer(self._content, dtype=torch.uint8, count=size, offset=start)

    def _entry(self, name: str) -> Entry:
        if name in self.entries:
            return self.entries[name]
        raise WeightsError(f"{self.where}: no tensor {name!r}{did_you_mean(name, self.entries)}")


class SafetensorsFile(SafetensorsBuffer):
    """One `.safetensors` file on the disk, its header checked before any tensor exists."""

    def __init__(self, path: Path):
        super().__init__(_mapped(path), str(path))


def _mapped(path: Path) -> Buffer:
    require_file(path, "weights file")
    with reading(path), path.open("rb") as stream:
        if path.stat().st_size == 0:
            return bytearray()  # an empty file cannot be mapped; the header check has the message for it
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)


def tensors_to_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = FORMAT) -> bytes:
    """The same bytes that `write_tensors` writes."""
    stream = io.BytesIO()
    order = _order(tensors, "stored tensors")
    stream.write(_header(tensors, order, metadata))
    _write_data(stream, tensors, order)
    return stream.getvalue()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = FORMAT) -> None:
    """Replace `path` by a safetensors file of these tensors; the same tensors always give the same bytes.

    One tensor at a time is brought to the CPU and made contiguous. Tensors that share memory are written once each.
    """
    order = _order(tensors, str(path))
    header = _header(tensors, order, metadata)
    with atomic_write(path, len(header) + sum(tensor_bytes(tensors[name]) for name in order)) as stream:
        stream.write(header)
        _write_data(stream, tensors, order)


def tensor_bytes(tensor: Tensor) -> int:
    """How many bytes a tensor takes in a file."""
    return tensor.numel() * tensor.dtype.itemsize


def _order(tensors: Mapping[str, Tensor], where: str) -> list[str]:
    """Names with the widest numbers first, so that each tensor is aligned, then by the alphabet."""
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPE_NAMES or tensor.layout is not torch.strided or tensor.is_meta or name == METADATA:
            kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
            raise WeightsError(f"{where}: tensor {name!r} ({kind}) cannot be written as safetensors")
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


def _header(tensors: Mapping[str, Tensor], order: Iterable[str], metadata: Mapping[str, str]) -> bytes:
    described = ((name, DTYPE_NAMES[tensors[name].dtype], tuple(tensors[name].shape)) for name in order)
    return build_header(described, metadata)


def _write_data(stream: BinaryIO, tensors: Mapping[str, Tensor], order: Iterable[str]) -> None:
    for name in order:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        stream.write(flat.view(torch.uint8).numpy().data)
