"""Weights in several files with an index, as Hugging Face stores large models.

`model.safetensors.index.json` holds {"metadata": …, "weight_map": {tensor: file}}. The map and the files must agree
both ways: a tensor that only one of the two knows is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from torch import Tensor

from kinfolk.checkpoints.safetensors_file import SafetensorsFile, TensorSource, tensor_bytes, write_tensors
from kinfolk.errors import FolderError, WeightsError, did_you_mean, shorten_list
from kinfolk.files import inside, read_object, write_json

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = "model-{:05d}-of-{:05d}.safetensors"
MOST_BYTES = 5_000_000_000  # Hugging Face's own default was this for years


class ShardedTensors:
    """The tensors of all the files an index names; each file is opened once."""

    def __init__(self, index: Path, open_shard: Callable[[Path], TensorSource] = SafetensorsFile):
        self.where = str(index)
        weight_map = _weight_map(index)
        shards = {file: open_shard(inside(index.parent, file)) for file in dict.fromkeys(weight_map.values())}
        placed: dict[str, set[str]] = {file: set() for file in shards}
        for name, file in weight_map.items():
            placed[file].add(name)
        for file, shard in shards.items():
            _check_agreement(f"{index}: {file[:80]!r}", placed[file], set(shard.names()))
        self._shards = {name: shard for shard in shards.values() for name in shard.names()}

    def names(self) -> Iterable[str]:
        return self._shards.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shard(name).shape(name)

    def read(self, name: str) -> Tensor:
        return self._shard(name).read(name)

    def _shard(self, name: str) -> TensorSource:
        if name in self._shards:
            return self._shards[name]
        raise WeightsError(f"{self.where}: no tensor {name!r}{did_you_mean(name, self._shards)}")


def _weight_map(index: Path) -> dict[str, str]:
    found = read_object(index).get("weight_map")
    if not isinstance(found, dict) or not found or not all(isinstance(file, str) for file in found.values()):
        raise WeightsError(f'{index}: "weight_map" must be an object that gives each tensor the name of its file')
    return found


def _check_agreement(where: str, placed: set[str], held: set[str]) -> None:
    for names, fault in (
        (placed - held, "does not hold"),
        (held - placed, "holds, but the index does not place there,"),
    ):
        if names:
            raise WeightsError(f"{where} {fault} {shorten_list(repr(name[:80]) for name in sorted(names))}")


def write_sharded(folder: Path, tensors: Mapping[str, Tensor], most_bytes: int = MOST_BYTES) -> None:
    """Write `model.safetensors`, or numbered files of at most `most_bytes` each and their index.

    A tensor larger than the limit has a file of its own. A folder that already holds weights is refused: shards
    replaced one by one could be seen half old, half new.
    """
    if any((folder / name).exists() for name in (WHOLE, INDEX)):
        raise FolderError(f"{folder} already holds weights; write into a new folder")
    groups = _split(tensors, most_bytes)
    if len(groups) == 1:
        return write_tensors(folder / WHOLE, tensors)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(groups, start=1):
        file = SHARD.format(number, len(groups))
        write_tensors(folder / file, {name: tensors[name] for name in names})
        weight_map |= dict.fromkeys(names, file)
    total = sum(tensor_bytes(tensor) for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    return write_json(folder / INDEX, index)


def _split(tensors: Mapping[str, Tensor], most_bytes: int) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    filled = 0
    for name, tensor in tensors.items():
        size = tensor_bytes(tensor)
        if groups[-1] and filled + size > most_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups
