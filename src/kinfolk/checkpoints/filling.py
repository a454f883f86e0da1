"""Weights of a public file into a module that was built on the meta device.

Every name and shape is compared with the file's header before memory is taken. Nothing is left out in silence: a tensor
that is missing, has another shape or is not explained by the tables is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from kinfolk.checkpoints.keys import Source
from kinfolk.checkpoints.tensors import TensorSource
from kinfolk.errors import WeightsError, shorten_list


def fill(
    model: nn.Module,
    title: str,
    located: Mapping[str, Source],
    explained: set[str],
    tensors: TensorSource,
    names: Mapping[str, str],
) -> None:
    """Read what `located` says into the model; `explained` are public tensors that may be there and are not read.

    `names` maps the public names to the file's own, which may be old-fashioned.
    """
    used = {theirs for source in located.values() for theirs in source.names}
    missing = [theirs for source in located.values() for theirs in source.names if theirs not in names]
    if missing:
        raise WeightsError(f"{tensors.where}: missing {len(missing)} tensors: {shorten_list(missing)}")
    extra = sorted(set(names) - used - explained)
    if extra:
        raise WeightsError(f"{tensors.where}: {len(extra)} tensors that {title} lacks: {shorten_list(extra)}")
    state = model.state_dict()
    for name, source in located.items():
        part = source.part(tuple(state[name].shape))
        for theirs in source.names:
            shape = tensors.shape(names[theirs])
            if shape != part:
                raise WeightsError(f"{tensors.where}: {theirs} has shape {shape}, the settings ask for {part}")
    weights = {name: read_source(source, tensors, names) for name, source in located.items()}
    model.load_state_dict(weights, assign=True)


def read_source(source: Source, tensors: TensorSource, names: Mapping[str, str]) -> Tensor:
    """Our tensor, copied into memory of its own: a file that changes later must not change the model."""
    parts = {theirs: tensors.read(names[theirs]) for theirs in source.names}
    for theirs, part in parts.items():
        if not part.dtype.is_floating_point:
            raise WeightsError(f"{tensors.where}: {theirs} holds {part.dtype}, not floating-point numbers")
        # The sum is finite in all but broken files, and ten times as fast as looking at every number.
        if not torch.isfinite(part.sum(dtype=torch.float32)) and not torch.isfinite(part).all():
            raise WeightsError(f"{tensors.where}: {theirs} holds NaN or infinite numbers")
    joined = source.join([part.float() for part in parts.values()])
    return joined.clone() if len(parts) == 1 else joined
