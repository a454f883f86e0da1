"""The header of a safetensors file, checked before anything is allocated.

Layout of the format: eight bytes, little-endian, give the length of a JSON object; the object names every tensor with
its dtype, its shape and where its bytes lie; the bytes follow, without holes, to the end of the file. A file that says
anything else is refused here, so the code that maps tensors may believe what it is told.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kinfolk.errors import FolderError, WeightsError
from kinfolk.files import parse_json

Buffer = mmap.mmap | bytearray

LENGTH_BYTES = 8
LARGEST_HEADER = 100_000_000  # the limit of the safetensors library itself
MOST_DIMENSIONS = 64  # torch promises no more than this for its operations
METADATA = "__metadata__"
LFS_POINTER = b"version https://git-lfs"

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """One tensor: its dtype as safetensors names it, its shape, and its bytes, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a file holds: its tensors in the order of their bytes, its metadata, and where the bytes begin."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    data_start: int


def parse_header(content: Buffer, where: str) -> Header:
    """The checked header of a whole file in memory; a fault is a WeightsError that begins with `where`."""
    length = _header_length(content, where)
    start = LENGTH_BYTES + length
    found = _header_object(bytes(content[LENGTH_BYTES:start]), where)
    metadata = _metadata(found.pop(METADATA, {}), where)
    entries = {name: _entry(fields, f"{where}: tensor {name[:80]!r}") for name, fields in found.items()}
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
    _check_cover(ordered, len(content) - start, where)
    return Header(ordered, metadata, start)


def build_header(described: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """The bytes before the data, for tensors given as (name, dtype name, shape) in the order of their data.

    Padded with spaces to a multiple of eight, so that every tensor after it is aligned.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    begin = 0
    for name, dtype, shape in described:
        end = begin + byte_count(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def byte_count(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor, as a Python integer that cannot overflow."""
    return math.prod(shape) * DTYPES[dtype].itemsize


def _header_length(content: Buffer, where: str) -> int:
    size = len(content)
    if bytes(content[: len(LFS_POINTER)]) == LFS_POINTER:
        raise WeightsError(f"{where} is a Git LFS pointer, not the weights themselves; fetch them with `git lfs pull`")
    if size < LENGTH_BYTES:
        raise WeightsError(f"{where}: truncated: {size} bytes are there, a safetensors file begins with {LENGTH_BYTES}")
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    if length > LARGEST_HEADER:
        raise WeightsError(f"{where}: not a safetensors file: it promises a header of {length:,} bytes")
    if LENGTH_BYTES + length > size:
        promised = LENGTH_BYTES + length
        raise WeightsError(f"{where}: truncated: {size:,} bytes are there, the header alone promises {promised:,}")
    return length


def _header_object(text: bytes, where: str) -> dict[str, Any]:
    try:
        found = parse_json(text.decode("utf-8"), f"{where}: header")
    except UnicodeDecodeError:
        raise WeightsError(f"{where}: header: not UTF-8 text") from None
    except FolderError as error:
        raise WeightsError(str(error)) from None
    if not isinstance(found, dict):
        raise WeightsError(f"{where}: header: expected a JSON object, found {type(found).__name__}")
    return found


def _metadata(found: object, where: str) -> dict[str, str]:
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return found
    raise WeightsError(f"{where}: header: {METADATA} must map strings to strings")


def _entry(fields: object, where: str) -> Entry:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise WeightsError(f"{where}: expected the fields dtype, shape and data_offsets, and no others")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        given = repr(dtype[:80]) if isinstance(dtype, str) else f"of type {type(dtype).__name__}"
        raise WeightsError(f"{where}: dtype {given} is not known; kinfolk reads {', '.join(DTYPES)}")
    if not _are_counts(shape) or len(shape) > MOST_DIMENSIONS:
        raise WeightsError(f"{where}: the shape must be at most {MOST_DIMENSIONS} non-negative whole numbers")
    if math.prod(size for size in shape if size) >= 2**63:  # torch multiplies sizes even beside a zero
        raise WeightsError(f"{where}: the shape {str(shape)[:80]} has more elements than a tensor can have")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise WeightsError(f"{where}: data_offsets must be two non-negative whole numbers")
    begin, end = offsets
    needed = byte_count(dtype, shape)
    if end - begin != needed:
        raise WeightsError(
            f"{where}: {dtype} of shape {shape} needs {needed:,} bytes, data_offsets give {end - begin:,}"
        )
    return Entry(dtype, tuple(shape), begin, end)


def _are_counts(found: object) -> bool:
    return isinstance(found, list) and all(type(number) is int and 0 <= number < 2**63 for number in found)


def _check_cover(ordered: Mapping[str, Entry], size: int, where: str) -> None:
    """Refuse entries that overlap, leave holes, or do not end where the file ends."""
    reached = 0
    for name, entry in ordered.items():
        if entry.begin != reached:
            fault = "they overlap" if entry.begin < reached else "a hole"
            begins = f"begins at byte {entry.begin:,}, the one before it ends at {reached:,}: {fault}"
            raise WeightsError(f"{where}: tensor {name[:80]!r} {begins}")
        reached = entry.end
    if reached > size:
        raise WeightsError(f"{where}: truncated: {size:,} bytes of tensors are there, the header promises {reached:,}")
    if reached < size:
        raise WeightsError(f"{where}: {size - reached:,} bytes too many after the {reached:,} that the header promises")
