"""AdamW, and Muon for the matrices of layers.

AdamW (Loshchilov and Hutter 2019) takes steps of about the learning rate in every direction. Muon makes the momentum of
a matrix orthogonal first, so that all of its singular values are about 1 and the rare directions count as much as the
common ones (Jordan et al. 2024); the factor makes the entries of a step as large as AdamW's (Liu et al. 2025, section
2.2), so that both have one learning rate:

    m = beta m + g          u = g + beta m          (r, c) = the shape of W
    W = W - rate (0.2 sqrt(max(r, c)) orthogonal(u) + decay W)

A matrix that serves several projections, such as queries, keys and values, is several matrices here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.errors import InputError
from kinfolk.models.family import Model
from kinfolk.training.settings import OptimizerSettings

MOMENTUM, AS_ADAMW = 0.95, 0.2
NEWTON_SCHULZ = ((3.4445, -4.7750, 2.0315),) * 5  # Jordan's coefficients: singular values end between 0.7 and 1.2
PROJECTIONS = {"qkv": 3, "keys_values": 2}  # in one matrix


class Muon(torch.optim.AdamW):
    """AdamW, but for the groups whose `orthogonal` is true: their matrices consist of `pieces` of equal shape."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        groups, scale = self.param_groups, getattr(self, "grad_scale", None)
        try:
            self.param_groups = [group for group in groups if not group["orthogonal"]]
            super().step(closure)
        finally:
            self.param_groups = groups
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor, dict[str, Any]]]] = {}
        for group in groups:
            for weight in group["params"] if group["orthogonal"] else ():
                if weight.grad is not None:
                    change = self._momentum(weight, weight.grad if scale is None else weight.grad / scale)
                    for part, own in zip(weight.chunk(group["pieces"]), change.chunk(group["pieces"]), strict=True):
                        by_shape.setdefault(part.shape, []).append((part, own, group))
        for shape, parts in by_shape.items():
            steps = orthogonal(torch.stack([change for _, change, _ in parts]))
            for (part, _, group), change in zip(parts, steps, strict=True):
                part.mul_(1 - group["lr"] * group["weight_decay"])
                part.add_(change, alpha=-AS_ADAMW * max(shape) ** 0.5 * group["lr"])

    def _momentum(self, weight: Tensor, gradient: Tensor) -> Tensor:
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        momentum: Tensor = state["momentum"].mul_(MOMENTUM).add_(gradient)
        return gradient.add(momentum, alpha=MOMENTUM)


def orthogonal(matrices: Tensor) -> Tensor:
    """U V' of each matrix U S V', about: (n, rows, columns) -> the same. Newton-Schulz, with X as wide as it is high or
    wider:

        A = X X'        X <- a X + (b A + c A²) X
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for a, b, c in NEWTON_SCHULZ:
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


def set_trainable(model: Model, settings: OptimizerSettings, unfrozen: int) -> None:
    """Let everything from depth `unfrozen` on learn, and nothing below it or below what is frozen for good."""
    layer_ids = model.layer_ids()
    for name, weight in model.named_parameters():
        weight.requires_grad_(layer_ids[name] >= max(settings.freeze, unfrozen))


def build_optimizer(model: Model, settings: OptimizerSettings) -> torch.optim.AdamW:
    """AdamW or Muon over all parameters that ever learn; biases and norms do not decay. Groups carry their own peak
    rate. It is learning_rate * layer_decay ** (top - depth); depth is 0 for the embeddings, i for layer i (from 1), and
    top, one more than the layers, for the heads."""
    set_trainable(model, settings, unfrozen=0)
    layer_ids, pieces = model.layer_ids(), _pieces(model) if settings.optimizer == "muon" else {}
    top, groups = max(layer_ids.values()), dict[Any, dict[str, Any]]()
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            rate = settings.learning_rate * settings.layer_decay ** (top - layer_ids[name])
            decay = settings.weight_decay if weight.ndim > 1 else 0.0
            inner = 0 < layer_ids[name] < top and weight.ndim == 2
            of_muon = {"orthogonal": name in pieces and inner, "pieces": pieces.get(name, 1)} if pieces else {}
            group = {"params": [], "lr": rate, "peak": rate, "weight_decay": decay, **of_muon}
            groups.setdefault((rate, decay, *of_muon.values()), group)["params"].append(weight)
    if not groups:
        raise InputError(f"freeze={settings.freeze} leaves nothing to learn")
    fused = all(weight.dtype in (torch.float32, torch.float64) for weight in model.parameters())
    kind = Muon if settings.optimizer == "muon" else torch.optim.AdamW
    return kind(list(groups.values()), betas=settings.betas, eps=settings.epsilon, fused=fused)


def _pieces(model: nn.Module) -> dict[str, int]:
    """Of how many projections each matrix consists: linear maps and recurrent layers, but no tables."""
    pieces = dict[str, int]()
    for path, module in model.named_modules():
        for name, weight in module.named_parameters(prefix=path, recurse=False):
            if isinstance(module, nn.RNNBase):
                pieces[name] = len(weight) // module.hidden_size
            elif isinstance(module, nn.Linear):
                pieces[name] = PROJECTIONS.get(path.rpartition(".")[2], 1)
    return pieces


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: `<name>|exp_avg` and its kin."""
    names = {weight: name for name, weight in model.named_parameters()}
    return {
        f"{names[weight]}|{part}": value  # type: ignore[index]
        for weight, state in optimizer.state.items()
        for part, value in state.items()
    }
