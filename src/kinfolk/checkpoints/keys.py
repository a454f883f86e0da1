"""Our tensor names and the public ones, both ways, from one table per family.

A table entry maps a module of ours to a module of theirs; `{}` stands for a layer's index, the longest entry that fits
a name wins, and what is left of the name (`.weight`) is kept; an entry for "" lets all other names stay as they are.
A `Source` in the place of a name says that their tensors have another form. The inverse is computed, never typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.checkpoints.weights import TensorSource
from kinfolk.errors import WeightsError, shorten_list
from kinfolk.models.family import Family, Keys, Source


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
