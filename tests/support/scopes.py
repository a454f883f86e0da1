"""Scopes that no relative has: they try masks that differ by sequence, and queries that see nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kinfolk.nn.scopes import Scope


@dataclass(frozen=True)
class Prefix(Scope):
    """The first `prefix[i]` tokens of sequence i are seen by all; the rest is causal (UniLM, prefix LMs)."""

    prefix: tuple[int, ...] = ()

    def allowed(self, queries: Tensor, keys: Tensor, sequences: Tensor) -> Tensor | None:
        ends = torch.tensor(self.prefix, device=keys.device)[sequences].view(-1, 1, 1)
        return (keys.unsqueeze(1) < ends) | (keys.unsqueeze(1) <= queries.unsqueeze(2))


@dataclass(frozen=True)
class Window(Scope):
    """A token sees those at most `radius` positions away."""

    radius: int = 0

    def allowed(self, queries: Tensor, keys: Tensor, sequences: Tensor) -> Tensor | None:
        return (keys.unsqueeze(1) - queries.unsqueeze(2)).abs() <= self.radius
