"""Weights of a public file into a module that was built on the meta device, and back into a folder.

Every name and shape is compared with the file's header before memory is taken. Nothing is left out in silence: a tensor
that is missing, has another shape or is not explained by the tables is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from kinfolk.checkpoints.keys import Source, read_source
from kinfolk.checkpoints.tensors import TensorSource, write_sharded
from kinfolk.errors import WeightsError, shorten_list
from kinfolk.files import write_json


def fill(
    model: nn.Module,
    title: str,
    places: Mapping[str, Source],
    explained: set[str],
    tensors: TensorSource,
    names: Mapping[str, str],
) -> None:
    """Read what `places` says into the model; `explained` are public tensors that may be there and are not read.

    `names` maps the public names to the file's own, which may be old-fashioned.
    """
    used = {theirs for source in places.values() for theirs in source.names}
    missing = [theirs for source in places.values() for theirs in source.names if theirs not in names]
    if missing:
        raise WeightsError(f"{tensors.where}: missing {len(missing)} tensors: {shorten_list(missing)}")
    extra = sorted(set(names) - used - explained)
    if extra:
        raise WeightsError(f"{tensors.where}: {len(extra)} tensors that {title} lacks: {shorten_list(extra)}")
    state = model.state_dict()
    for name, source in places.items():
        part = source.part(tuple(state[name].shape))
        for theirs in source.names:
            shape = tensors.shape(names[theirs])
            if shape != part:
                raise WeightsError(f"{tensors.where}: {theirs} has shape {shape}, config.json asks for {part}")
    read = {name: read_source(source, tensors, names) for name, source in places.items()}
    model.load_state_dict(read, assign=True)


def write_model(
    folder: Path, tensors: Mapping[str, Tensor], settings: Mapping[str, Any], model_type: str, architecture: str
) -> None:
    """config.json and model.safetensors (in shards above 5 GB), as transformers writes them."""
    write_sharded(folder, tensors)
    found = dict(settings) | {"model_type": model_type, "architectures": [architecture]}
    found.pop("torch_dtype", None)  # the old name; a stale one would make readers round the weights
    found["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    write_json(folder / "config.json", dict(sorted(found.items())))
