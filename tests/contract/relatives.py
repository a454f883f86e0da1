"""A tiny random model of every family, and the eyes that its promises are checked with."""

from __future__ import annotations

import dataclasses
from typing import Any

import gated
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from kinfolk.models.family import Family, Model, all_families
from support.tiny import randomise

FAMILIES = [*all_families(), gated.FAMILY]
ENCODERS = [family for family in FAMILIES if not family.is_conditional]
GENERATING = [family for family in FAMILIES if "next_token" in family.heads]
few = settings(max_examples=15, deadline=None, derandomize=True)
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
every_encoder = pytest.mark.parametrize("family", ENCODERS, ids=lambda family: family.name)
some_lengths = st.sampled_from([1, 1, 2, 5, 5, 6, 7, 20, 60])
SIZES = {  # each config takes those that it knows
    "vocabulary_size": 40,
    "width": 16,
    "hidden": 16,
    "layers": 3,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "positions": 66,
    "heads": 4,
    "inner_width": 24,
    "embedding_width": 6,
    "groups": 2,
}
FRAME = {"pad_id": 0, "start_id": 1, "end_id": 2}  # what stands around a target


def tiny_config(family: Family) -> Any:
    """Small settings."""
    known = {field.name for field in dataclasses.fields(family.config)}
    sizes = SIZES | (FRAME if family.is_conditional else {})
    return family.config.make(**{name: size for name, size in sizes.items() if name in known})


def tiny_model(family: Family, heads: list[str] | None = None, seed: int = 0) -> Model:
    """A random model with the given heads, or with all of them."""
    labels = dict.fromkeys(family.heads if heads is None else heads, 3)
    return randomise(Model(family, tiny_config(family), labels, family.has_pooler), seed).eval()  # type: ignore[no-any-return]


def host_work(model: nn.Module) -> set[str]:
    """Operations that may leave the model's device: torch's recurrent kernels want the sizes of their steps on the
    host, where these are made of numpy's and the first is read off."""
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    return {"aten.lift_fresh.default", "aten.select.int"} if recurrent else set()


def rows_through(model: nn.Module) -> list[tuple[str, int]]:
    """The list grows with every call of a linear or recurrent layer: its name and the rows that it was given."""
    seen: list[tuple[str, int]] = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.RNNBase):
            module.register_forward_hook(
                # a batch of the recurrent kernels holds its rows as `data`, as every tensor does
                lambda module, given, found, name=name: seen.append((name, given[0].data.shape[:-1].numel()))
            )
    return seen


class Elsewhere(TorchDispatchMode):
    """Notes every operation whose result is not on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for result in results if isinstance(results, tuple | list) else (results,):
            if isinstance(result, Tensor) and result.device.type != "meta":
                self.found.append(str(func))
        return results
