"""AdamW with layer-wise learning rates, and layers that stay frozen or are unfrozen one by one.

Every parameter has a depth, from its model: 0 for the embeddings, i for layer i (counted from 1), one more than
the number of layers for what stands on top. Its rate is `learning_rate * layer_decay ** (top - depth)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kinfolk.errors import InputError
from kinfolk.training.settings import OptimizerSettings


class Trainable(Protocol):
    """What the trainer wants of a model: a module of torch's that knows its device and the depth of its weights."""

    training: bool

    @property
    def device(self) -> torch.device:
        """Where the weights are."""

    def layer_ids(self) -> dict[str, int]:
        """How far above the input each parameter stands, by name; heads stand highest."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All that could learn."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """The same without names."""

    def train(self, mode: bool = True) -> Any:
        """Dropout on."""

    def eval(self) -> Any:
        """Dropout off."""


def set_trainable(model: Trainable, settings: OptimizerSettings, unfrozen: int) -> None:
    """Let everything from depth `unfrozen` on learn, and nothing below it or below what is frozen for good."""
    layer_ids = model.layer_ids()
    for name, weight in model.named_parameters():
        weight.requires_grad_(layer_ids[name] >= max(settings.freeze, unfrozen))


def build_optimizer(model: Trainable, settings: OptimizerSettings) -> torch.optim.AdamW:
    """AdamW over all parameters that ever learn; biases and norms do not decay. Groups carry their own peak rate."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    set_trainable(model, settings, unfrozen=0)
    layer_ids = model.layer_ids()
    top = max(layer_ids.values())
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        learning_rate = settings.learning_rate * settings.layer_decay ** (top - layer_ids[name])
        decay = settings.weight_decay if weight.ndim > 1 else 0.0
        groups.setdefault((learning_rate, decay), []).append(weight)
    if not groups:
        raise InputError(f"freeze={settings.freeze} leaves nothing to learn")
    group_list = [
        {"params": weights, "lr": learning_rate, "peak": learning_rate, "weight_decay": decay}
        for (learning_rate, decay), weights in groups.items()
    ]
    fused = all(weight.dtype in (torch.float32, torch.float64) for weight in model.parameters())
    return torch.optim.AdamW(group_list, betas=settings.betas, eps=settings.epsilon, fused=fused)


def optimizer_tensors(model: Trainable, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: `<name>|exp_avg` and its kin."""
    names = {weight: name for name, weight in model.named_parameters()}
    return {
        f"{names[weight]}|{part}": value  # type: ignore[index]
        for weight, state in optimizer.state.items()
        for part, value in state.items()
    }


def restore_optimizer(model: Trainable, optimizer: torch.optim.AdamW, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave; its tensors are taken over, not copied."""
    weights = dict(model.named_parameters())
    optimizer.state.clear()
    for key, value in tensors.items():
        name, part = key.rsplit("|", 1)
        optimizer.state[weights[name]][part] = value
