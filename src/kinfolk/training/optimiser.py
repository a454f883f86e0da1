"""AdamW with a rate per layer, and parts of the model that stay frozen or thaw one by one.

Every parameter has a depth: 0 for the embeddings, i for block i (counted from 1), one more than the number of layers
for heads and pooler. Its rate is `rate * layer_decay ** (top - depth)`; a head may have a rate of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kinfolk.errors import InputError
from kinfolk.models.model import Model

BLOCK = re.compile(r"\bblocks\.(\d+)\.")


@dataclass(frozen=True)
class OptimiserSettings:
    """What AdamW and the freezing want to know."""

    rate: float = 5e-5
    head_rate: float | None = None
    layer_decay: float = 1.0
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    freeze: int = 0  # depths below this never learn: 1 freezes the embeddings, layers + 1 the whole body

    def __post_init__(self) -> None:
        if not (self.rate > 0 and 0 < self.layer_decay <= 1 and self.weight_decay >= 0 and self.freeze >= 0):
            raise InputError("rate must be above 0, layer_decay from 0 to 1, weight_decay and freeze at least 0")


def depth_of(name: str, layers: int) -> int:
    """How far above the input a parameter of a Model stands.

    >>> depth_of("body.stack.blocks.3.attention.qkv.weight", layers=6), depth_of("heads.classify.output.bias", 6)
    (4, 7)
    """
    if not name.startswith("body.") or name.startswith("body.pooler."):
        return layers + 1
    found = BLOCK.search(name)
    return int(found[1]) + 1 if found else 0


def learning(model: Model, settings: OptimiserSettings, thawed: int) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that learn when everything from depth `thawed` on is free; sets requires_grad accordingly."""
    for name, weight in model.named_parameters():
        free = depth_of(name, model.config.layers) >= max(settings.freeze, thawed)
        weight.requires_grad_(free)
        if free:
            yield name, weight


def build_optimiser(model: Model, settings: OptimiserSettings) -> torch.optim.AdamW:
    """AdamW over all parameters that ever learn; biases and norms do not decay. Groups carry their own peak rate."""
    top = model.config.layers + 1
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, weight in learning(model, settings, thawed=0):
        depth = depth_of(name, model.config.layers)
        rate = settings.rate * settings.layer_decay ** (top - depth)
        if depth == top and settings.head_rate is not None:
            rate = settings.head_rate
        decay = settings.weight_decay if weight.ndim > 1 else 0.0
        groups.setdefault((rate, decay), []).append(weight)
    if not groups:
        raise InputError(f"freeze={settings.freeze} leaves nothing to learn")
    listed = [
        {"params": weights, "lr": rate, "peak": rate, "weight_decay": decay}
        for (rate, decay), weights in groups.items()
    ]
    fused = all(weight.dtype in (torch.float32, torch.float64) for weight in model.parameters())
    return torch.optim.AdamW(listed, betas=settings.betas, eps=settings.epsilon, fused=fused)


def optimiser_tensors(model: Model, optimiser: torch.optim.AdamW) -> dict[str, Tensor]:
    """The optimiser's memory by parameter name: `<name>|exp_avg` and its kin."""
    names = {weight: name for name, weight in model.named_parameters()}
    return {
        f"{names[weight]}|{part}": value  # type: ignore[index]
        for weight, state in optimiser.state.items()
        for part, value in state.items()
    }


def restore_optimiser(model: Model, optimiser: torch.optim.AdamW, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimiser_tensors` gave."""
    weights = dict(model.named_parameters())
    optimiser.state.clear()
    for key, value in tensors.items():
        name, part = key.rsplit("|", 1)
        weight = weights[name]
        placed = value.clone() if part == "step" else value.to(weight.device, copy=True)
        optimiser.state[weight][part] = placed
