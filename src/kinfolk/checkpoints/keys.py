"""Our tensor names and the public ones, both ways, from one table per family.

A table entry maps a module of ours to a module of theirs; `{}` stands for a layer's index, the longest entry that fits
a name wins, and what is left of the name (`.weight`) is kept; an entry for "" lets all other names stay as they are.
`Joined` entries stack several of their tensors into one of ours, a `Row` entry drops a leading dimension, `Transposed`
ones exchange the two of a matrix. The inverse is computed, never typed.

`fill` reads a public file into a module that was built on the meta device. Every name and shape is compared with the
file's header before memory is taken. Nothing is left out in silence: a tensor that is missing, has another shape or is
not explained by the tables is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.checkpoints.weights import TensorSource
from kinfolk.errors import WeightsError, shorten_list
from kinfolk.models.family import Family, Joined, Keys, Row, Transposed


@dataclass(frozen=True)
class Source:
    """Where one of our tensors lies in a public file: one name, or several to be joined; and in which form."""

    names: tuple[str, ...]
    row: bool = False
    transposed: bool = False

    def join(self, parts: list[Tensor]) -> Tensor:
        """Their tensors -> ours."""
        if self.row:
            return parts[0].squeeze(0)
        if self.transposed and parts[0].ndim == 2:
            return parts[0].t().contiguous()
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def divide(self, tensor: Tensor) -> dict[str, Tensor]:
        """Our tensor -> theirs."""
        if self.row:
            return {self.names[0]: tensor.unsqueeze(0)}
        if self.transposed and tensor.ndim == 2:
            return {self.names[0]: tensor.t().contiguous()}
        parts = tensor.chunk(len(self.names)) if len(self.names) > 1 else (tensor,)
        return dict(zip(self.names, parts, strict=True))

    def part(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of each of their tensors for one of ours."""
        if self.row:
            return (1, *shape)
        if self.transposed and len(shape) == 2:
            return shape[::-1]
        return (shape[0] // len(self.names), *shape[1:]) if len(self.names) > 1 else shape


def translate(name: str, keys: Keys) -> Source:
    """Their name or names for one of ours.

    >>> from kinfolk.models.family import Joined
    >>> translate("blocks.3.qkv.bias", {"blocks.{}.qkv": Joined(("layer.{}.q", "layer.{}.k"))}).names
    ('layer.3.q.bias', 'layer.3.k.bias')
    """
    for pattern in sorted(filter(None, keys), key=len, reverse=True):
        match = re.match(re.escape(pattern).replace(r"\{\}", r"(\d+)") + r"(?=\.|$)", name)
        if match:
            theirs, rest = keys[pattern], name[match.end() :]
            if isinstance(theirs, Joined):
                targets = theirs.names
            else:
                targets = (theirs if isinstance(theirs, str) else theirs.name,)
            names = tuple(target.format(*match.groups()) + rest for target in targets)
            return Source(names, isinstance(theirs, Row), isinstance(theirs, Transposed))
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


def modern(name: str) -> str:
    """Early checkpoints call a norm's weight and bias gamma and beta."""
    if name.endswith(".gamma"):
        return name.removesuffix("gamma") + "weight"
    if name.endswith(".beta"):
        return name.removesuffix("beta") + "bias"
    return name


def divide(tensors: Mapping[str, Tensor], located: Mapping[str, Source]) -> dict[str, Tensor]:
    """All our tensors under their public names."""
    return {theirs: part for name, source in located.items() for theirs, part in source.divide(tensors[name]).items()}


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
        raise WeightsError(f"{tensors.location}: missing {len(missing)} tensors: {shorten_list(missing)}")
    extra = sorted(set(names) - used - explained)
    if extra:
        raise WeightsError(f"{tensors.location}: {len(extra)} tensors that {title} lacks: {shorten_list(extra)}")
    state = model.state_dict()
    for name, source in located.items():
        part = source.part(tuple(state[name].shape))
        for theirs in source.names:
            shape = tensors.shape(names[theirs])
            if shape != part:
                raise WeightsError(f"{tensors.location}: {theirs} has shape {shape}, the settings ask for {part}")
    weights = {name: read_source(source, tensors, names) for name, source in located.items()}
    model.load_state_dict(weights, assign=True)


def read_source(source: Source, tensors: TensorSource, names: Mapping[str, str]) -> Tensor:
    """Our tensor, copied into memory of its own: a file that changes later must not change the model."""
    parts = {theirs: tensors.read(names[theirs]) for theirs in source.names}
    for theirs, part in parts.items():
        if not part.dtype.is_floating_point:
            raise WeightsError(f"{tensors.location}: {theirs} holds {part.dtype}, not floating-point numbers")
        # The sum is finite in all but broken files, and ten times as fast as looking at every number.
        if not torch.isfinite(part.sum(dtype=torch.float32)) and not torch.isfinite(part).all():
            raise WeightsError(f"{tensors.location}: {theirs} holds NaN or infinite numbers")
    joined = source.join([part.float() for part in parts.values()])
    return joined.clone() if len(parts) == 1 else joined
