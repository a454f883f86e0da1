"""Tensors of a model folder, by name: safetensors in one file or in shards, pickles behind a flag; one way to write.

Order of preference when reading: `model.safetensors`, its sharded index, then PyTorch's pickles. The safetensors
library checks and maps a file; what it lets pass is refused here before: names that occur twice, further fields, more
dimensions than torch knows. Files are written one tensor at a time, so that saving takes no second copy of a model.

Our names and the public ones come both ways from one table per family, whose entries map a module of ours to a module
of theirs; `{}` stands for a layer's index, the longest entry that fits a name wins, and what is left of the name
(`.weight`) is kept; an entry for "" lets all other names stay as they are. A `Source` in the place of a name says that
their tensors have another form. The inverse is computed, never typed.
"""

from __future__ import annotations

import io
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_bytes
from torch import Tensor, nn

from kinfolk.errors import FolderError, WeightsError, did_you_mean, shorten_list, type_name
from kinfolk.files import atomic_write, inside, parse_json, read_object, reading, require_file, write_json
from kinfolk.models.family import Family, Keys, Source

METADATA = "__metadata__"
MAX_HEADER = 100_000_000  # bytes, the limit of the safetensors library itself
MAX_DIMENSIONS = 64  # torch promises no more than this for its operations
LFS_POINTER = b"version "
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
NORM = {"gamma": "weight", "beta": "bias"}  # old name: new name
OLD_NORM = re.compile(r"(?<=\.)(gamma|beta)\Z")
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class TensorSource:
    """Named tensors on the CPU, in an order that is good to read in: `entries` has for each its shape and its reader.

    What is read may share memory with the source, so copy what you will change or keep.
    """

    def __init__(self, entries: Mapping[str, tuple[tuple[int, ...], Callable[[], Tensor]]], location: str):
        self.entries, self.location = entries, location

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], location: str) -> Self:
        """Tensors that are in memory already."""
        return cls({name: (tuple(tensor.shape), tensor.detach) for name, tensor in tensors.items()}, location)

    def names(self) -> KeysView[str]:
        return self.entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, known without reading it."""
        return self._entry(name)[0]

    def read(self, name: str) -> Tensor:
        return self._entry(name)[1]()

    def _entry(self, name: str) -> tuple[tuple[int, ...], Callable[[], Tensor]]:
        if name not in self.entries:
            raise WeightsError(f"{self.location}: no tensor {name!r}{did_you_mean(name, self.entries)}")
        return self.entries[name]


def open_safetensors(path: Path) -> TensorSource:
    """One `.safetensors` file, its header checked before any tensor exists; mapped as long as the source lives."""
    with reading(require_file(path, "weights file")), path.open("rb") as stream:
        shapes = _header_shapes(stream, str(path))
    with _library_errors(str(path)):
        file: Any = safe_open(path, framework="pt")

    def read(name: str) -> Tensor:
        with _library_errors(str(path)):
            tensor: Tensor = file.get_tensor(name)
        # A byte that is neither 0 nor 1 would be undefined behaviour as a bool.
        return tensor.view(torch.uint8).ne(0) if tensor.dtype is torch.bool else tensor

    return TensorSource({name: (shapes[name], partial(read, name)) for name in file.offset_keys()}, str(path))


def tensors_from_bytes(content: bytes, location: str) -> TensorSource:
    """The tensors of a whole safetensors file in memory."""
    _header_shapes(io.BytesIO(content), location)
    with _library_errors(location):
        return TensorSource.of(load_bytes(content), location)


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
    _refuse_pointer(start, location)
    if len(start) < 8 or length > MAX_HEADER:
        raise WeightsError(f"{location}: truncated, or not a safetensors file")
    try:
        header = parse_json(stream.read(length).decode("utf-8"), "JSON")
    except (UnicodeDecodeError, FolderError) as error:
        raise WeightsError(f"{location}: header: {error}") from None
    if not isinstance(header, dict):
        raise WeightsError(f"{location}: header: not a JSON object")
    header.pop(METADATA, None)
    for name, fields in header.items():
        valid = isinstance(fields, dict) and set(fields) == {"dtype", "shape", "data_offsets"}
        valid = valid and isinstance(fields["dtype"], str) and fields["dtype"] in DTYPES
        valid = valid and isinstance(fields["shape"], list) and len(fields["shape"]) <= MAX_DIMENSIONS
        valid = valid and all(type(size) is int and size >= 0 for size in fields["shape"])
        if not valid or math.prod(filter(None, fields["shape"])) >= 2**63:  # torch multiplies sizes even beside a zero
            raise WeightsError(f"{location}: tensor {name[:80]!r}: no dtype, shape and offsets: {str(fields)[:120]}")
    return {name: tuple(fields["shape"]) for name, fields in header.items()}


def _refuse_pointer(start: bytes, location: str) -> None:
    if start.startswith(LFS_POINTER):
        raise WeightsError(f"{location} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")


def _open_pickle(path: Path, allow_pickle: bool) -> TensorSource:
    """The tensors of one `.bin` or `.pt` file that holds a plain state dict.

    A pickle is a program. `torch.load(weights_only=True)` runs it on a machine that can build tensors and nothing else,
    so a hostile file fails instead of acting; that machine has had holes before, hence the flag as a second lock.
    """
    require_file(path, "weights file")
    if not allow_pickle:
        advice = "pass allow_pickle=True (--allow-pickle) if you trust it, or once `kinfolk convert --allow-pickle`"
        raise WeightsError(f"{path} is a pickle, which can run code when opened; {advice}")
    with reading(path), path.open("rb") as stream:
        start = stream.read(8)
    _refuse_pointer(start, str(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats; whoever opens such a file knows
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=start.startswith(ZIP_START))
    except Exception as error:  # a damaged or hostile pickle can fail in any way at all
        wanted = re.search(r"GLOBAL:? ([\w.]+)", str(error))  # torch's page of advice includes lowering the guard
        reason = f"it asks for {wanted[1]}" if wanted else f"it is damaged, or something else ({type(error).__name__})"
        raise WeightsError(f"{path}: refused: only plain tensors are read from a pickle, {reason}") from None
    for name, tensor in state.items() if isinstance(state, dict) else [("", state)]:
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            kind = type_name(tensor)
            raise WeightsError(f"{path}: expected a dictionary of tensors, found {kind} under {str(name)[:80]!r}")
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        # A stride of zero could turn four bytes into a petabyte.
        if not plain or tensor_bytes(tensor) > tensor.untyped_storage().nbytes():
            raise WeightsError(f"{path}: tensor {name[:80]!r} is not a plain tensor of numbers on the CPU")
    return TensorSource.of({name: tensor.detach() for name, tensor in state.items()}, str(path))


def open_shards(index: Path, open_shard: Callable[[Path], TensorSource] = open_safetensors) -> TensorSource:
    """The tensors of all files that an index names, {"weight_map": {tensor: file}}: Hugging Face's large models.

    Index and files must agree both ways: a tensor that only one of the two knows is named.
    """
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or {*map(type, weight_map.values())} != {str}:
        raise WeightsError(f'{index}: "weight_map" must be an object that gives each tensor the name of its file')
    entries: dict[str, Any] = {}
    for file in dict.fromkeys(weight_map.values()):
        shard = open_shard(inside(index.parent, file))
        listed, present = {name for name, other in weight_map.items() if other == file}, set(shard.names())
        if listed != present:
            fault = "does not hold" if listed - present else "holds, but the index does not place there,"
            names = sorted(listed - present or present - listed)
            raise WeightsError(f"{index}: {file[:80]!r} {fault} {shorten_list(repr(name[:80]) for name in names)}")
        entries |= shard.entries
    return TensorSource(entries, str(index))


def modern_names(tensors: TensorSource) -> TensorSource:
    """Early checkpoints call a norm's weight and bias gamma and beta."""
    entries = {OLD_NORM.sub(lambda old: NORM[old[0]], name): entry for name, entry in tensors.entries.items()}
    if len(entries) < len(tensors.entries):
        raise WeightsError(f"{tensors.location}: a norm's weight stands there under its old and its new name")
    return TensorSource(entries, tensors.location)


def open_tensors(folder: Path, allow_pickle: bool = False) -> TensorSource:
    """The weights of a folder, checked as far as possible without reading them."""
    pickle = partial(_open_pickle, allow_pickle=allow_pickle)
    openers: dict[str, Callable[[Path], TensorSource]] = {
        WHOLE: open_safetensors,
        INDEX: open_shards,
        **dict.fromkeys(PICKLES, pickle),
        PICKLE_INDEX: partial(open_shards, open_shard=pickle),
    }
    with reading(folder):
        present = [name for name in openers if inside(folder, name).exists()]
    if present:
        return openers[present[0]](folder / present[0])
    hint = "" if allow_pickle else "; from the hub, pickles are fetched only with allow_pickle=True (--allow-pickle)"
    raise WeightsError(f"{folder}: no weights; looked for {', '.join(openers)}{hint}")


def tensor_bytes(tensor: Tensor) -> int:
    """How many bytes a tensor takes in a file."""
    return tensor.numel() * tensor.dtype.itemsize


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Replace `path` by a safetensors file of these tensors; the same tensors always give the same bytes.

    One tensor at a time is brought to the CPU and made contiguous. Tensors that share memory are written once each.
    """
    with atomic_write(path, sum(map(tensor_bytes, tensors.values()))) as stream:
        _write(stream, tensors, str(path))


def tensors_to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The same bytes that `write_tensors` writes."""
    stream = io.BytesIO()
    _write(stream, tensors, "tensors in memory")
    return stream.getvalue()


def _write(stream: BinaryIO, tensors: Mapping[str, Tensor], location: str) -> None:
    header: dict[str, Any] = {METADATA: {"format": "pt"}}  # what other readers expect to find
    begin, order = 0, sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))  # so that all are aligned
    for name in order:
        tensor, end = tensors[name], begin + tensor_bytes(tensors[name])
        if tensor.dtype not in DTYPE_NAMES or tensor.layout is not torch.strided or tensor.is_meta or name == METADATA:
            kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
            raise WeightsError(f"{location}: tensor {name!r} ({kind}) cannot be written as safetensors")
        header[name] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        stream.write(tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def write_sharded(folder: Path, tensors: Mapping[str, Tensor], max_bytes: int = MAX_SHARD) -> None:
    """Write `model.safetensors`, or numbered files of at most `max_bytes` each and their index.

    A tensor larger than the limit has a file of its own. A folder that already holds weights is refused: shards
    replaced one by one could be seen half old, half new.
    """
    if any((folder / name).exists() for name in (WHOLE, INDEX)):
        raise FolderError(f"{folder} already holds weights; write into a new folder")
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in tensors.items():
        if shards[-1] and sum(map(tensor_bytes, (*shards[-1].values(), tensor))) > max_bytes:
            shards.append({})
        shards[-1][name] = tensor
    if len(shards) == 1:
        return write_tensors(folder / WHOLE, tensors)
    files = {SHARD.format(ordinal, len(shards)): shard for ordinal, shard in enumerate(shards, start=1)}
    for file, shard in files.items():
        write_tensors(folder / file, shard)
    weight_map = {name: file for file, shard in files.items() for name in shard}
    metadata = {"total_size": sum(map(tensor_bytes, tensors.values()))}
    return write_json(folder / INDEX, {"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))})


def translate(name: str, keys: Keys) -> Source:
    """Their name or names for one of ours.

    >>> translate("blocks.3.qkv.bias", {"blocks.{}.qkv": Source(("layer.{}.q", "layer.{}.k"))}).names
    ('layer.3.q.bias', 'layer.3.k.bias')
    """
    for pattern in sorted(filter(None, keys), key=len, reverse=True):
        match = re.match(re.escape(pattern).replace(r"\{\}", r"(\d+)") + r"(?=\.|$)", name)
        if match:
            entry, rest = keys[pattern], name[match.end() :]
            source = Source((entry,)) if isinstance(entry, str) else entry
            return replace(source, names=tuple(theirs.format(*match.groups()) + rest for theirs in source.names))
    assert "" in keys, f"the table has no entry for our own tensor {name}"
    return Source((name,))


def sources(family: Family, config: Any, ours: Iterable[str], prefix: str) -> dict[str, Source]:
    """For each tensor of a Model (`body.…`, `heads.<name>.…`), where it lies in a public file."""
    keys, located = family.body_keys(config), {}
    for name in ours:
        part, rest = name.split(".", 1)
        if part == "body":
            source = translate(rest, keys)
            located[name] = replace(source, names=tuple(prefix + theirs for theirs in source.names))
        else:
            head, rest = rest.split(".", 1)
            located[name] = translate(rest, family.heads[head].keys)
    return located


def divide(tensors: Mapping[str, Tensor], located: Mapping[str, Source]) -> dict[str, Tensor]:
    """All our tensors under their public names."""
    return {theirs: part for name, source in located.items() for theirs, part in source.divide(tensors[name]).items()}


def fill(
    model: nn.Module, title: str, located: Mapping[str, Source], tensors: TensorSource, explained: Iterable[str] = ()
) -> None:
    """Read a public file into a module of the meta device; every name and shape is compared before memory is taken.

    `located` says where our tensors lie, `explained` are public tensors that may be there and are not read; anything
    else that is missing, of another shape or left over is an error that names it.
    """
    wanted = [theirs for source in located.values() for theirs in source.names]
    missing = [theirs for theirs in wanted if theirs not in tensors.names()]
    if missing:
        raise WeightsError(f"{tensors.location}: missing {len(missing)} tensors: {shorten_list(missing)}")
    extra = sorted(tensors.names() - {*wanted, *explained})
    if extra:
        raise WeightsError(f"{tensors.location}: {len(extra)} tensors that {title} lacks: {shorten_list(extra)}")
    for theirs, part in divide(model.state_dict(), located).items():
        shape, expected = tensors.shape(theirs), tuple(part.shape)
        if shape != expected:
            raise WeightsError(f"{tensors.location}: {theirs} has shape {shape}, the settings ask for {expected}")
    model.load_state_dict({name: _read(source, tensors) for name, source in located.items()}, assign=True)


def _read(source: Source, tensors: TensorSource) -> Tensor:
    """Our tensor, copied into memory of its own: a file that changes later must not change the model."""
    parts = [tensors.read(theirs) for theirs in source.names]
    for theirs, part in zip(source.names, parts, strict=True):
        if not part.dtype.is_floating_point:
            raise WeightsError(f"{tensors.location}: {theirs} holds {part.dtype}, not floating-point numbers")
        # The sum is finite in all but broken files, and ten times as fast as looking at every number.
        if not torch.isfinite(part.sum(dtype=torch.float32)) and not torch.isfinite(part).all():
            raise WeightsError(f"{tensors.location}: {theirs} holds NaN or infinite numbers")
    joined = source.join([part.float() for part in parts])
    return joined.clone() if len(parts) == 1 else joined
