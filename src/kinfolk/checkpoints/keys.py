"""Our tensor names and the public ones, both ways, from one table per family.

A table entry maps a module of ours to a module of theirs; `{}` stands for a layer's number, the longest entry that fits
a name wins, and what is left of the name (`.weight`) is kept. `Joined` entries stack several of their tensors into one
of ours, a `Row` entry drops a leading dimension of one. The inverse is computed, never typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfolk.checkpoints.safetensors_file import TensorSource
from kinfolk.errors import WeightsError
from kinfolk.models.model import Family, Joined, Keys, Row


@dataclass(frozen=True)
class Source:
    """Where one of our tensors lies in a public file: one name, or several to be joined; `row`: with a leading one."""

    names: tuple[str, ...]
    row: bool = False

    def join(self, parts: list[Tensor]) -> Tensor:
        """Their tensors -> ours."""
        if self.row:
            return parts[0].squeeze(0)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def divide(self, tensor: Tensor) -> dict[str, Tensor]:
        """Our tensor -> theirs."""
        if self.row:
            return {self.names[0]: tensor.unsqueeze(0)}
        return dict(zip(self.names, tensor.chunk(len(self.names)), strict=True))

    def part(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of each of their tensors for one of ours."""
        return (1, *shape) if self.row else (shape[0] // len(self.names), *shape[1:])


def translate(name: str, keys: Keys) -> Source:
    """Their name or names for one of ours.

    >>> translate("blocks.3.qkv.bias", {"blocks.{}.qkv": Joined(("layer.{}.q", "layer.{}.k"))}).names
    ('layer.3.q.bias', 'layer.3.k.bias')
    """
    for pattern in sorted(keys, key=len, reverse=True):
        match = re.match(re.escape(pattern).replace(r"\{\}", r"(\d+)") + r"(?=\.|$)", name)
        if match:
            theirs, rest = keys[pattern], name[match.end() :]
            if isinstance(theirs, Row):
                return Source((theirs.name.format(*match.groups()) + rest,), row=True)
            targets = theirs.parts if isinstance(theirs, Joined) else (theirs,)
            return Source(tuple(target.format(*match.groups()) + rest for target in targets))
    raise AssertionError(f"the table has no entry for our own tensor {name}")


def sources(family: Family, ours: Iterable[str], prefix: str) -> dict[str, Source]:
    """For each tensor of a Model (`body.…`, `heads.<name>.…`), where it lies in a public file."""
    found = {}
    for name in ours:
        room, rest = name.split(".", 1)
        if room == "body":
            source = translate(rest, family.keys)
            found[name] = Source(tuple(prefix + theirs for theirs in source.names))
        else:
            head, rest = rest.split(".", 1)
            found[name] = translate(rest, family.heads[head].keys)
    return found


def read_source(source: Source, tensors: TensorSource, names: Mapping[str, str]) -> Tensor:
    """Our tensor, copied into memory of its own: a file that changes later must not change the model.

    `names` are the file's own, which may be old-fashioned.
    """
    parts = {theirs: tensors.read(names[theirs]) for theirs in source.names}
    for theirs, part in parts.items():
        if not part.dtype.is_floating_point:
            raise WeightsError(f"{tensors.where}: {theirs} holds {part.dtype}, not floating-point numbers")
        # The sum is finite in all but broken files, and ten times as fast as looking at every number.
        if not torch.isfinite(part.sum(dtype=torch.float32)) and not torch.isfinite(part).all():
            raise WeightsError(f"{tensors.where}: {theirs} holds NaN or infinite numbers")
    joined = source.join([part.float() for part in parts.values()])
    return joined.clone() if len(parts) == 1 else joined


def modern(name: str) -> str:
    """Early checkpoints call a norm's weight and bias gamma and beta."""
    if name.endswith(".gamma"):
        return name.removesuffix("gamma") + "weight"
    if name.endswith(".beta"):
        return name.removesuffix("beta") + "bias"
    return name


def divide(tensors: Mapping[str, Tensor], places: Mapping[str, Source]) -> dict[str, Tensor]:
    """All our tensors under their public names."""
    return {theirs: part for name, source in places.items() for theirs, part in source.divide(tensors[name]).items()}
