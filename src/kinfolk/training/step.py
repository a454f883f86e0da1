"""One training step, by one process or by several.

    loss = sum over losses of  weight * sum over the samples of a step / count over the samples of a step

Each process takes its share of every batch. torch's engines wrap a module whose forward gives the losses:
DistributedDataParallel adds up gradients while backward still runs; fully_shard (FSDP) shards weights, gradients and
optimizer state. Both take the mean over processes, so each multiplies its loss by their number first.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from kinfolk.errors import InputError
from kinfolk.nn.fast.precision import check_precision, products_in
from kinfolk.objectives.objective import Batch, Sample, Scheduled, Stateful, TrainingObjective, Weighted
from kinfolk.training.distributed import World, contact, gather, load_weights, shard, shard_like
from kinfolk.training.optimizer import Trainable, build_optimizer, optimizer_tensors, restore_optimizer, set_trainable
from kinfolk.training.settings import OptimizerSettings

EPSILON = 1e-6  # that torch adds to the length of a gradient which it clips


@dataclass(frozen=True)
class Losses:
    """The mean losses of a step by name, and their weighted sum."""

    total: float
    parts: Mapping[str, float]


class Loss(nn.Module):
    """A model under its objective."""

    def __init__(self, model: Trainable, objective: TrainingObjective):
        super().__init__()
        self.model, self.objective = cast(nn.Module, model), objective

    def forward(self, batch: Batch, state: Any) -> tuple[dict[str, Tensor], Any]:
        """The sums of the losses, and what an objective carries to the next batch."""
        if isinstance(self.objective, Stateful):
            return self.objective.carry(self.model, batch, state)
        return self.objective.losses(self.model, batch), None


def validate_hardware(precision: str, fsdp: bool, device: torch.device, world: World) -> None:
    """Refuse what this machine, or a single process, cannot do; to be called before anything is written."""
    check_precision(precision, device)
    if fsdp and world.size == 1:
        raise InputError("fsdp shards a model among processes, but there is only one; start more with torchrun")


class TrainStep:
    """The weights of `model`, their optimizer and their running average; `model` itself is always whole.

    With `fsdp` a copy of the model is trained, sharded among the processes.
    """

    def __init__(
        self,
        model: Trainable,
        objective: TrainingObjective,
        settings: OptimizerSettings,
        max_grad_norm: float | None,
        world: World,
        fsdp: bool = False,
        precision: str = "fp32",
    ):
        validate_hardware(precision, fsdp, model.device, world)
        if isinstance(objective, Stateful) and world.size > 1:
            raise InputError("this objective carries its state from batch to batch; train it in one process")
        self.whole, self.objective, self.settings = model, objective, settings
        self.max_grad_norm, self.world = max_grad_norm, world
        self.sharded, self.precision = fsdp, precision
        self.model = copy.deepcopy(model) if fsdp else model
        self._loss: Any = Loss(self.model, objective)
        if fsdp:
            shard(self._loss, model.device, world.size)
        self.optimizer = build_optimizer(self.model, settings)
        # Can the optimizer itself scale gradients, and as exactly? It takes the factor in float32.
        single = all(weight.dtype == torch.float32 for weight in self.model.parameters())
        self._optimizer_clips = single and bool(self.optimizer.defaults["fused"]) and not fsdp
        self.averaged: dict[str, Tensor] = {}
        self._engine: nn.Module = self._loss
        self._unfrozen: int | None = None
        self._carried: tuple[Tensor, ...] | None = None  # from batch to batch, where the objective asks for it

    def schedule(self, step: int, total: int) -> None:
        """Set the step of an objective that changes over a run."""
        if isinstance(self.objective, Scheduled):
            self._loss.objective = self.objective.at(step, total)

    def unfreeze(self, depth: int) -> None:
        """Train everything from `depth` on. DDP knows only what was trainable when it was made, so it is made anew."""
        if depth == self._unfrozen:
            return
        self._unfrozen = depth
        set_trainable(self.model, self.settings, depth)
        if self.world.size > 1 and not self.sharded:
            with contact():
                # Some heads leave a part of the model out, and which part may depend on the batch. Where all parts are
                # used, torch would print a warning to say so: a weight that is never used keeps it quiet.
                self._loss.idle = nn.Parameter(torch.zeros(1, device=self.model.device))
                self._engine = DistributedDataParallel(
                    self._loss, find_unused_parameters=True, gradient_as_bucket_view=True
                )

    def step(self, batches: Sequence[Sequence[Sample]], factor: float) -> Losses | None:
        """One update from the batches as if they were one; their mean losses, over all of them and all processes.

        None when the loss or its gradient is not finite: nothing was applied then.
        """
        if not self.model.training:
            self.model.train()
        shares = [self._share(samples) for samples in batches]
        counts = self._counts(shares)
        sums, carried = dict.fromkeys(counts, 0.0), self._carried
        for index, (batch, counted) in enumerate(shares):
            with contact(), self._synchronizing(index == len(shares) - 1):
                with products_in(self.precision):
                    losses, carried = self._engine(batch, carried)
                means = {name: losses[name] / (count / self.world.size) for name, count in counts.items()}
                loss = self._total(means)
                loss = loss if counted else loss * 0.0
                loss.backward()
            for name, mean in means.items():
                sums[name] += float(mean.detach()) if counted else 0.0
        reduced = self.world.all_reduce([value / self.world.size for value in sums.values()])
        parts = dict(zip(sums, reduced, strict=True))
        total = self._total(parts)
        finite = math.isfinite(total) and self._clip()
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            self.optimizer.step()
            self._carried = carried
        self.optimizer.zero_grad(set_to_none=True)
        return Losses(total, parts) if finite else None

    def _counts(self, shares: Sequence[tuple[Batch, bool]]) -> dict[str, float]:
        """What each loss is divided by: its targets in all batches and processes. Without any, its sum is zero."""
        names = list(shares[0][0].counts)
        here = [sum(batch.counts[name] for batch, counted in shares if counted) for name in names]
        return {name: count or 1.0 for name, count in zip(names, self.world.all_reduce(here), strict=True)}

    def _total(self, means: Mapping[str, Any]) -> Any:
        """The weighted sum of the losses."""
        weights = self.objective.weights if isinstance(self.objective, Weighted) else {}
        return reduce(add, (mean * weights[name] if name in weights else mean for name, mean in means.items()))

    def _share(self, batch: Sequence[Sample]) -> tuple[Batch, bool]:
        """What this process takes of a batch, and whether it counts: a process that gets nothing must still take part.

        Neighbours in a batch are alike in length, so every n-th sample makes equal shares.
        """
        share = batch[self.world.rank :: self.world.size]
        return self.objective.prepare(share or batch[:1], self.model.device), bool(share)

    def _synchronizing(self, last: bool) -> AbstractContextManager[None]:
        """Gradients of accumulated batches are exchanged with the last."""
        if self.sharded:
            self._loss.set_requires_gradient_sync(last)
        elif isinstance(self._engine, DistributedDataParallel) and not last:
            return self._engine.no_sync()
        return nullcontext()

    def _clip(self) -> bool:
        """Clip the gradient to its largest norm; False when it is not finite."""
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        norm = self._norm([weight.grad for weight in weights if weight.grad is not None])
        length = float(norm)
        excess = (length + EPSILON) / self.max_grad_norm if self.max_grad_norm else 1.0
        if self._optimizer_clips:
            # The fused optimizer divides gradients by this while it reads them, which spares a pass over them.
            scale = torch.tensor(excess, device=self.model.device) if excess > 1 else None
            self.optimizer.grad_scale = scale  # type: ignore[attr-defined]
        elif self.max_grad_norm and excess > 1:
            clip_grads_with_norm_(weights, self.max_grad_norm, norm)
        return math.isfinite(length)

    def _norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The length of all gradients together."""
        if self.sharded or self.model.device.type != "cpu":
            return gather(get_total_norm(gradients))
        # On a CPU the product of a gradient with itself is there in half the time of torch's norm.
        flat = (gradient.flatten() for gradient in gradients)
        return torch.stack([torch.dot(each, each) for each in flat]).sum().sqrt()

    @property
    def learning_rate(self) -> float:
        """The highest learning rate of the last step."""
        return max(float(group["lr"]) for group in self.optimizer.param_groups)

    @torch.no_grad()
    def average(self, seen: int) -> None:
        """Take the weights into the running average, which holds `seen` of them so far."""
        for name, weight in self.model.named_parameters():
            if seen == 0:
                self.averaged[name] = weight.detach().clone()
            else:
                self.averaged[name].lerp_(weight.detach(), 1 / (seen + 1))

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """The whole model in evaluation mode, with the averaged weights where there are any."""
        kept: dict[str, Tensor] = {}
        if self.averaged and not self.sharded:
            kept = {name: weight.detach().clone() for name, weight in self.whole.named_parameters()}
        if self.averaged or self.sharded:
            load_weights(self.whole, self.averaged or dict(self.model.named_parameters()))
        self.whole.eval()
        try:
            yield
        finally:
            if kept:
                load_weights(self.whole, kept)

    def state(self) -> dict[str, Mapping[str, Tensor]]:
        """All that a checkpoint must hold; whole, whatever the number of processes. Only process 0 keeps it."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "weights": {name: weight.detach() for name, weight in self.model.named_parameters()},
            "optimizer": optimizer_tensors(self.model, self.optimizer),
            "averaged": self.averaged,
            "carried": {str(index): piece for index, piece in enumerate(self._carried or ())},
        }
        groups = {group: tensors for group, tensors in groups.items() if tensors}
        if not self.sharded:
            return groups
        kept: dict[str, dict[str, Tensor]] = {group: {} for group in groups}
        for group, tensors in groups.items():
            for name, tensor in tensors.items():
                gathered = gather(tensor)  # all must take part, also those that do not keep it
                if self.world.is_main:
                    kept[group][name] = gathered.cpu()
        return dict(kept)

    def restore(self, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put back what `state` gave."""
        load_weights(self.model, groups["weights"])
        weights = dict(self.model.named_parameters())
        state = {key: self._on_device(weights, key, value) for key, value in groups["optimizer"].items()}
        restore_optimizer(self.model, self.optimizer, state)
        averaged = groups.get("averaged", {})
        self.averaged = {name: shard_like(weights[name], tensor) for name, tensor in averaged.items()}
        carried = groups.get("carried", {})
        self._carried = tuple(carried[str(index)].to(self.model.device) for index in range(len(carried))) or None

    def _on_device(self, weights: Mapping[str, Tensor], key: str, value: Tensor) -> Tensor:
        name, part = key.rsplit("|", 1)
        if part != "step":
            return shard_like(weights[name], value)
        # The number of steps is never sharded, and only the fused optimizer keeps it beside the weight.
        fused = self.optimizer.defaults["fused"]
        return value.to(weights[name].device if fused else value.device, copy=True)
