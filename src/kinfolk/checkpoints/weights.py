"""Tensors of a model folder, by name: safetensors in one file or in shards, pickles behind a flag; one way to write.

Order of preference when reading: `model.safetensors`, its sharded index, then PyTorch's pickles. The safetensors
library checks and maps a file; what it lets pass is refused here before: names that occur twice, further fields, more
dimensions than torch knows. Files are written one tensor at a time, so that saving takes no second copy of a model.
"""

from __future__ import annotations

import io
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_bytes
from torch import Tensor

from kinfolk.errors import FolderError, WeightsError, did_you_mean, shorten_list
from kinfolk.files import atomic_write, inside, parse_json, read_object, reading, require_file, write_json

METADATA = "__metadata__"
MAX_HEADER = 100_000_000  # bytes, the limit of the safetensors library itself
MAX_DIMENSIONS = 64  # torch promises no more than this for its operations
LFS_POINTER = b"version https://git-lfs"
ZIP_START = b"PK\x03\x04"  # torch's pickles since 1.6; only these can be mapped
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = "model-{:05d}-of-{:05d}.safetensors"
MAX_SHARD = 5_000_000_000  # bytes; Hugging Face's own default was this for years
PICKLES, PICKLE_INDEX = ("pytorch_model.bin", "pytorch_model.pt"), "pytorch_model.bin.index.json"
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U64": torch.uint64, "U32": torch.uint32,
    "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class TensorSource:
    """Named tensors on the CPU, in an order that is good to read in; here those that are in memory already."""

    def __init__(self, entries: Mapping[str, Any], location: str):
        """`entries` is what is known of each tensor, `location` is for messages."""
        self.location, self._entries = location, entries

    def names(self) -> Iterable[str]:
        return self._entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, known without reading it."""
        return tuple(self.read(name).shape)

    def read(self, name: str) -> Tensor:
        """The tensor as stored; it may share memory with the source, so copy what you will change or keep."""
        return self._entry(name)  # type: ignore[no-any-return]

    def _entry(self, name: str) -> Any:
        if name not in self._entries:
            raise WeightsError(f"{self.location}: no tensor {name!r}{did_you_mean(name, self._entries)}")
        return self._entries[name]


class SafetensorsFile(TensorSource):
    """One `.safetensors` file, its header checked before any tensor exists; mapped as long as this object lives."""

    def __init__(self, path: Path):
        require_file(path, "weights file")
        with reading(path), path.open("rb") as stream:
            shapes = _header_shapes(stream, str(path))
        with _library_errors(str(path)):
            file: Any = safe_open(path, framework="pt")
            super().__init__({name: shapes[name] for name in file.offset_keys()}, str(path))
        self._file = file

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name)  # type: ignore[no-any-return]

    def read(self, name: str) -> Tensor:
        self._entry(name)
        with _library_errors(self.location):
            tensor: Tensor = self._file.get_tensor(name)
        # A byte that is neither 0 nor 1 would be undefined behaviour as a bool.
        return tensor.view(torch.uint8).ne(0) if tensor.dtype is torch.bool else tensor


def tensors_from_bytes(content: bytes, location: str) -> TensorSource:
    """The tensors of a whole safetensors file in memory."""
    _header_shapes(io.BytesIO(content), location)
    with _library_errors(location):
        return TensorSource(load_bytes(content), location)


@contextmanager
def _library_errors(location: str) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise WeightsError(f"{location}: not a whole safetensors file ({str(error)[:200]})") from None


def _header_shapes(stream: BinaryIO, location: str) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor by the header; refuses what the library would let pass or would not explain."""
    start = stream.read(8)
    length = int.from_bytes(start, "little")
    if start == LFS_POINTER[:8]:
        raise WeightsError(f"{location} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
    if len(start) < 8 or length > MAX_HEADER:
        raise WeightsError(f"{location}: truncated, or not a safetensors file")
    try:
        header = parse_json(stream.read(length).decode("utf-8"), f"{location}: header")
    except UnicodeDecodeError:
        raise WeightsError(f"{location}: header: not UTF-8 text") from None
    except FolderError as error:
        raise WeightsError(str(error)) from None
    if not isinstance(header, dict):
        raise WeightsError(f"{location}: header: not a JSON object")
    header.pop(METADATA, None)
    for name, fields in header.items():
        if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
            raise WeightsError(f"{location}: tensor {name[:80]!r}: expected dtype, shape and data_offsets")
        if not isinstance(fields["dtype"], str) or fields["dtype"] not in DTYPES:
            raise WeightsError(f"{location}: tensor {name[:80]!r}: unknown dtype {str(fields['dtype'])[:80]!r}")
        shape = fields["shape"]
        valid = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS
        valid = valid and all(type(size) is int and size >= 0 for size in shape)
        if not valid or math.prod(filter(None, shape)) >= 2**63:  # torch multiplies sizes even beside a zero
            raise WeightsError(f"{location}: tensor {name[:80]!r}: not a shape: {str(shape)[:80]}")
    return {name: tuple(fields["shape"]) for name, fields in header.items()}


def _open_pickle(path: Path, allow_pickle: bool) -> TensorSource:
    """The tensors of one `.bin` or `.pt` file that holds a plain state dict.

    A pickle is a program. `torch.load(weights_only=True)` runs it on a machine that can build tensors and nothing else,
    so a hostile file fails instead of acting; that machine has had holes before, hence the flag as a second lock.
    """
    require_file(path, "weights file")
    if not allow_pickle:
        raise WeightsError(
            f"{path} is a pickle, which can run code when opened; pass allow_pickle=True (--allow-pickle) "
            "if you trust it, or convert it once with `kinfolk convert --allow-pickle`"
        )
    state = _unpickle(path)
    if not isinstance(state, dict):
        raise WeightsError(f"{path}: expected a dictionary of tensors, found {type(state).__name__}")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise WeightsError(f"{path}: expected a dictionary of tensors, found a {kind} under {str(name)[:80]!r}")
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        # A stride of zero could turn four bytes into a petabyte.
        if not plain or tensor_bytes(tensor) > tensor.untyped_storage().nbytes():
            raise WeightsError(f"{path}: tensor {name[:80]!r} is not a plain tensor of numbers on the CPU")
    return TensorSource({name: tensor.detach() for name, tensor in state.items()}, str(path))


def _unpickle(path: Path) -> Any:
    with reading(path), path.open("rb") as stream:
        start = stream.read(len(LFS_POINTER))
    if start == LFS_POINTER:
        raise WeightsError(f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats; whoever opens such a file knows
            return torch.load(path, map_location="cpu", weights_only=True, mmap=start.startswith(ZIP_START))
    except Exception as error:  # a damaged or hostile pickle can fail in any way at all
        wanted = re.search(r"GLOBAL:? ([\w.]+)", str(error))  # torch's page of advice includes lowering the guard
        reason = f"damaged, or not a file of plain tensors ({type(error).__name__})"
        if wanted:
            reason = f"refused: it asks for {wanted[1]}, and only plain tensors are read from a pickle"
        raise WeightsError(f"{path}: {reason}") from None


class ShardedTensors(TensorSource):
    """The tensors of all files that an index names, {"weight_map": {tensor: file}}: Hugging Face's large models.

    Index and files must agree both ways: a tensor that only one of the two knows is named.
    """

    def __init__(self, index: Path, open_shard: Callable[[Path], TensorSource] = SafetensorsFile):
        weight_map = read_object(index).get("weight_map")
        valid = isinstance(weight_map, dict) and all(isinstance(file, str) for file in weight_map.values())
        if not valid or not weight_map:
            raise WeightsError(f'{index}: "weight_map" must be an object that gives each tensor the name of its file')
        shards: dict[str, TensorSource] = {}
        for file in dict.fromkeys(weight_map.values()):
            shard = open_shard(inside(index.parent, file))
            listed, present = {name for name, other in weight_map.items() if other == file}, set(shard.names())
            if listed != present:
                fault = "does not hold" if listed - present else "holds, but the index does not place there,"
                names = sorted(listed - present or present - listed)
                raise WeightsError(f"{index}: {file[:80]!r} {fault} {shorten_list(repr(name[:80]) for name in names)}")
            shards |= dict.fromkeys(shard.names(), shard)
        super().__init__(shards, str(index))

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape(name)  # type: ignore[no-any-return]

    def read(self, name: str) -> Tensor:
        return self._entry(name).read(name)  # type: ignore[no-any-return]


def open_tensors(folder: Path, allow_pickle: bool = False) -> TensorSource:
    """The weights of a folder, checked as far as possible without reading them."""
    pickle = partial(_open_pickle, allow_pickle=allow_pickle)
    openers: dict[str, Callable[[Path], TensorSource]] = {
        WHOLE: SafetensorsFile,
        INDEX: ShardedTensors,
        **dict.fromkeys(PICKLES, pickle),
        PICKLE_INDEX: partial(ShardedTensors, open_shard=pickle),
    }
    for name, opener in openers.items():
        path = inside(folder, name)
        with reading(folder):
            exists = path.exists()
        if exists:
            return opener(path)
    hint = "" if allow_pickle else "; from the hub, pickles are fetched only with allow_pickle=True (--allow-pickle)"
    raise WeightsError(f"{folder}: no weights; looked for {', '.join(openers)}{hint}")


def tensor_bytes(tensor: Tensor) -> int:
    """How many bytes a tensor takes in a file."""
    return tensor.numel() * tensor.dtype.itemsize


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Replace `path` by a safetensors file of these tensors; the same tensors always give the same bytes.

    One tensor at a time is brought to the CPU and made contiguous. Tensors that share memory are written once each.
    """
    header, order = _header(tensors, str(path))
    with atomic_write(path, len(header) + sum(map(tensor_bytes, tensors.values()))) as stream:
        _write(stream, header, tensors, order)


def tensors_to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The same bytes that `write_tensors` writes."""
    stream = io.BytesIO()
    header, order = _header(tensors, "tensors in memory")
    _write(stream, header, tensors, order)
    return stream.getvalue()


def _write(stream: BinaryIO, header: bytes, tensors: Mapping[str, Tensor], order: list[str]) -> None:
    stream.write(header)
    for name in order:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        stream.write(flat.view(torch.uint8).numpy().data)


def _header(tensors: Mapping[str, Tensor], location: str) -> tuple[bytes, list[str]]:
    """The bytes before the data, and the order of the data: the widest numbers first, so that each is aligned."""
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPE_NAMES or tensor.layout is not torch.strided or tensor.is_meta or name == METADATA:
            kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
            raise WeightsError(f"{location}: tensor {name!r} ({kind}) cannot be written as safetensors")
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {METADATA: {"format": "pt"}}  # what other readers expect to find
    begin = 0
    for name in order:
        tensor, end = tensors[name], begin + tensor_bytes(tensors[name])
        dtype, shape = DTYPE_NAMES[tensor.dtype], list(tensor.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order


def write_sharded(folder: Path, tensors: Mapping[str, Tensor], max_bytes: int = MAX_SHARD) -> None:
    """Write `model.safetensors`, or numbered files of at most `max_bytes` each and their index.

    A tensor larger than the limit has a file of its own. A folder that already holds weights is refused: shards
    replaced one by one could be seen half old, half new.
    """
    if any((folder / name).exists() for name in (WHOLE, INDEX)):
        raise FolderError(f"{folder} already holds weights; write into a new folder")
    shards: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, tensor in tensors.items():
        size = tensor_bytes(tensor)
        if shards[-1] and filled + size > max_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += size
    if len(shards) == 1:
        return write_tensors(folder / WHOLE, tensors)
    weight_map: dict[str, str] = {}
    for ordinal, shard in enumerate(shards, start=1):
        file = SHARD.format(ordinal, len(shards))
        write_tensors(folder / file, shard)
        weight_map |= dict.fromkeys(shard, file)
    metadata = {"total_size": sum(map(tensor_bytes, tensors.values()))}
    return write_json(folder / INDEX, {"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))})
