"""Our tensor names and the public ones, both ways, from one table per family.

A table entry maps a module of ours to a module of theirs; `{}` stands for a layer's index, the longest entry that fits
a name wins, and what is left of the name (`.weight`) is kept; an entry for "" lets all other names stay as they are.
`Joined` entries stack several of their tensors into one of ours, a `Row` entry drops a leading dimension, `Transposed`
ones exchange the two of a matrix. The inverse is computed, never typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kinfolk.models.family import Family, Keys, Row, Transposed


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
            targets = (theirs,) if isinstance(theirs, str) else theirs.names
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
