"""Tensors of a model folder, by name: which files hold them, and the one way to read and to write them.

Order of preference when reading: `model.safetensors`, its sharded index, then PyTorch's pickles, which need a flag.
The format is checked in header.py, one file is read and written in safetensors_file.py, many in shards.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from kinfolk.checkpoints.pickled import PickledTensors
from kinfolk.checkpoints.safetensors_file import (
    SafetensorsBuffer,
    SafetensorsFile,
    TensorSource,
    tensors_to_bytes,
    write_tensors,
)
from kinfolk.checkpoints.shards import INDEX, WHOLE, ShardedTensors, write_sharded
from kinfolk.errors import WeightsError
from kinfolk.files import inside, reading

__all__ = [
    "PickledTensors",
    "SafetensorsBuffer",
    "SafetensorsFile",
    "ShardedTensors",
    "TensorSource",
    "open_tensors",
    "tensors_to_bytes",
    "write_sharded",
    "write_tensors",
]

PICKLES = ("pytorch_model.bin", "pytorch_model.pt")
PICKLE_INDEX = "pytorch_model.bin.index.json"


def open_tensors(folder: Path, allow_pickle: bool = False) -> TensorSource:
    """The weights of a folder, checked as far as possible without reading them."""
    open_pickle = partial(PickledTensors, allow_pickle=allow_pickle)
    openers: dict[str, Callable[[Path], TensorSource]] = {
        WHOLE: SafetensorsFile,
        INDEX: ShardedTensors,
        **dict.fromkeys(PICKLES, open_pickle),
        PICKLE_INDEX: partial(ShardedTensors, open_shard=open_pickle),
    }
    for name, opener in openers.items():
        path = inside(folder, name)
        with reading(folder):
            found = path.exists()
        if found:
            return opener(path)
    hint = "" if allow_pickle else "; from the hub, pickles are fetched only with allow_pickle=True (--allow-pickle)"
    raise WeightsError(f"{folder}: no weights; looked for {', '.join(openers)}{hint}")
