"""Weights divided among processes: torch's fully_shard (FSDP), and the way between pieces and whole tensors.

A divided tensor is a DTensor: each process holds some of its rows. Nothing here is imported before someone divides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.errors import FolderError
from kinfolk.training.optimizer import Trainable


def divide(loss: nn.Module, device: torch.device, processes: int) -> None:
    """Divide all parameters of `loss` in place; a layer is put together only while it computes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (processes,))
    lists = [module for module in loss.modules() if isinstance(module, nn.ModuleList)]
    for layers in reversed(lists):  # inner ones first, as fully_shard wants it
        for layer in layers:
            fully_shard(layer, mesh=mesh)
    fully_shard(loss, mesh=mesh)


def whole(tensor: Tensor) -> Tensor:
    """The tensor put together, on every process; all of them must ask. A tensor that is whole stays as it is."""
    divided: Any = tensor
    found: Tensor = divided.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach()


def like(weight: Tensor, tensor: Tensor) -> Tensor:
    """A fresh copy of a whole tensor where the weight is, and divided as the weight is."""
    divided: Any = weight
    if not hasattr(weight, "full_tensor"):
        return tensor.to(weight.device, copy=True)
    from torch.distributed.tensor import distribute_tensor

    # Every process has the whole tensor, so each takes its own rows and nothing is sent.
    placed = tensor.to(weight.device, copy=True)
    found: Tensor = distribute_tensor(placed, divided.device_mesh, divided.placements, src_data_rank=None)
    return found


@torch.no_grad()
def load(model: Trainable, tensors: Mapping[str, Tensor]) -> None:
    """Put weights, whole or divided, into a model, whole or divided."""
    for name, weight in model.named_parameters():
        given = tensors[name]
        if hasattr(given, "full_tensor") != hasattr(weight, "full_tensor"):
            given = like(weight, whole(given))
        if given.shape != weight.shape:
            raise FolderError(f"{name}: the checkpoint is of another version of kinfolk; begin anew in another folder")
        weight.copy_(given)
