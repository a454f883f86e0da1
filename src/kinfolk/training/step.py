"""One training step, by one process or by several.

    loss = sum over losses of  weight * sum over the samples of a step / count over the samples of a step

Each process takes its share of every batch. torch's engines wrap a module whose forward gives the losses:
DistributedDataParallel adds up gradients while backward still runs; fully_shard (FSDP) shards weights, gradients and
optimizer state. Both take the mean over processes, so each multiplies its loss by their number first.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from kinfolk.errors import InputError
from kinfolk.models.family import Model
from kinfolk.nn.fast.linear import check_precision, products_in
from kinfolk.objectives.objective import Batch, Objective, Sample
from kinfolk.training.distributed import World, contact, gather, load_weights, shard, shard_like
from kinfolk.training.optimizer import build_optimizer, optimizer_tensors, set_trainable
from kinfolk.training.settings import TrainSettings

EPSILON = 1e-6  # that torch adds to the length of a gradient which it clips


@dataclass(frozen=True)
class Losses:
    total: float
    parts: Mapping[str, float]


class Loss(nn.Module):
    def __init__(self, model: Model, objective: Objective):
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Batch, state: Any) -> tuple[dict[str, Tensor], Any]:
        return self.objective.carry(self.model, batch, state)


def validate_hardware(precision: str, fsdp: bool, device: torch.device, world: World) -> None:
    """Refuse what this machine, or a single process, cannot do; to be called before anything is written."""
    check_precision(precision, device)
    if fsdp and world.size == 1:
        raise InputError("fsdp shards a model among processes, but there is only one; start more with torchrun")


class TrainStep:
    """The weights of `model`, their optimizer and their running average; `model` itself is always whole. With `fsdp` a
    copy of the model is trained, sharded among the processes."""

    def __init__(self, model: Model, objective: Objective, settings: TrainSettings, world: World):
        validate_hardware(settings.precision, settings.fsdp, model.device, world)
        if objective.stateful and world.size > 1:
            raise InputError("this objective carries its state from batch to batch; train it in one process")
        self.whole, self.model = model, copy.deepcopy(model) if settings.fsdp else model
        self.objective, self.settings, self.world, self.sharded = objective, settings, world, settings.fsdp
        self._loss: Any = Loss(self.model, objective)
        if self.sharded:
            shard(self._loss, model.device, world.size)
        self.optimizer = build_optimizer(self.model, settings.optimization)
        # Can the optimizer itself scale gradients, and as exactly? It takes the factor in float32.
        single = all(weight.dtype == torch.float32 for weight in self.model.parameters())
        self._optimizer_clips = single and bool(self.optimizer.defaults["fused"]) and not self.sharded
        self.averaged: dict[str, Tensor] = {}
        self._engine: nn.Module = self._loss
        self._unfrozen: int | None = None
        self._carried: tuple[Tensor, ...] | None = None  # from batch to batch, where the objective asks for it

    def schedule(self, step: float, total: int) -> None:
        self._loss.objective = self.objective.at(step, total)

    def unfreeze(self, depth: int) -> None:
        """Train everything from `depth` on. DDP knows only what was trainable when it was made, so it is made anew."""
        if depth == self._unfrozen:
            return
        self._unfrozen = depth
        set_trainable(self.model, self.settings.optimization, depth)
        if self.world.size > 1 and not self.sharded:
            with contact():
                # Some heads leave a part of the model out, and which part may depend on the batch. Where all parts are
                # used, torch would print a warning to say so: a weight that is never used keeps it quiet.
                self._loss.idle = nn.Parameter(torch.zeros(1, device=self.model.device))
                self._engine = DistributedDataParallel(
                    self._loss, find_unused_parameters=True, gradient_as_bucket_view=True
                )

    def step(self, batches: Sequence[Sequence[Sample]], factor: float) -> Losses | None:
        """One update from the batches as if they were one; their mean losses, over all of them and all processes. None
        when the loss or its gradient is not finite: nothing was applied then."""
        if not self.model.training:
            self.model.train()
        shares = [self._share(samples) for samples in batches]
        # What each loss is divided by: its targets in all batches and processes. Without any, its sum is zero.
        names = list(shares[0][0].counts)
        here = [sum(batch.counts[name] for batch, counted in shares if counted) for name in names]
        counts = {name: count or 1.0 for name, count in zip(names, self.world.all_reduce(here), strict=True)}
        sums, carried = dict.fromkeys(counts, 0.0), self._carried
        for index, (batch, counted) in enumerate(shares):
            with contact(), self._synchronizing(index == len(shares) - 1):
                with products_in(self.settings.precision):
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

    def _total(self, means: Mapping[str, Any]) -> Any:
        weights = self.objective.weights
        return reduce(add, (mean * weights[name] if name in weights else mean for name, mean in means.items()))

    def _share(self, batch: Sequence[Sample]) -> tuple[Batch, bool]:
        """Every n-th sample of a batch, which this process takes, and whether they count: one that gets nothing must
        still take part."""
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
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        if self.sharded or self.model.device.type != "cpu":
            norm = gather(get_total_norm(gradients))
        else:  # on a CPU the product of a gradient with itself is there in half the time of torch's norm
            flat = (gradient.flatten() for gradient in gradients)
            norm = torch.stack([torch.dot(each, each) for each in flat]).sum().sqrt()
        length = float(norm)
        limit = self.settings.max_grad_norm
        excess = (length + EPSILON) / limit if limit else 1.0
        if self._optimizer_clips:
            # The fused optimizer divides gradients by this while it reads them, which spares a pass over them.
            scale = torch.tensor(excess, device=self.model.device) if excess > 1 else None
            self.optimizer.grad_scale = scale  # type: ignore[attr-defined]
        elif limit and excess > 1:
            clip_grads_with_norm_(weights, limit, norm)
        return math.isfinite(length)

    @property
    def learning_rate(self) -> float:
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
        keeps = self.world.is_main
        whole: dict[str, dict[str, Tensor]] = {group: {} for group in groups}
        for group, tensors in groups.items():
            for name, tensor in tensors.items():
                gathered = gather(tensor)  # all must take part, also those that do not keep it
                whole[group] |= {name: gathered.cpu()} if keeps else {}
        return dict(whole)

    def restore(self, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        load_weights(self.model, groups["weights"])
        weights, fused = dict(self.model.named_parameters()), self.optimizer.defaults["fused"]
        self.optimizer.state.clear()
        for key, value in groups["optimizer"].items():
            name, part = key.rsplit("|", 1)
            if part == "step":  # is never sharded, and only the fused optimizer keeps it beside the weight
                restored = value.to(weights[name].device if fused else value.device, copy=True)
            else:
                restored = shard_like(weights[name], value)
            self.optimizer.state[weights[name]][part] = restored
        averaged = groups.get("averaged", {})
        self.averaged = {name: shard_like(weights[name], tensor) for name, tensor in averaged.items()}
        carried = groups.get("carried", {})
        self._carried = tuple(carried[str(index)].to(self.model.device) for index in range(len(carried))) or None


class SparseEmbedding(nn.Module):
    """Row i of a table for id i, of which some rows learn: ids (tokens,) -> (tokens, width)."""

    def __init__(self, whole: nn.Embedding, rows: Tensor):
        super().__init__()
        self.__dict__["whole"] = whole  # aside: no weight of this module
        self.rows = rows
        self.weight = nn.Parameter(whole.weight.detach()[rows])
        self.indices = torch.full((whole.num_embeddings,), -1, device=rows.device)
        self.indices[rows] = torch.arange(len(rows), device=rows.device)

    def forward(self, ids: Tensor) -> Tensor:
        indices = self.indices[ids]
        if self.training:  # on texts whose rows are all here
            return F.embedding(indices, self.weight)
        trained = F.embedding(indices.clamp(min=0), self.weight)
        frozen = F.embedding(ids, self.__dict__["whole"].weight.detach())
        return torch.where((indices < 0).unsqueeze(1), frozen, trained)

    @torch.no_grad()
    def restored(self) -> nn.Embedding:
        whole: nn.Embedding = self.__dict__["whole"]
        whole.weight[self.rows] = self.weight
        return whole


def train_only_rows(model: Model, ids: Iterable[Iterable[int]]) -> None:
    """Let only those rows of the table of tokens learn that `ids` name, unless scores are read from it too. The others
    could only decay: a word that no example holds keeps the vector it was pre-trained with."""
    name = model.embedding_only_read()
    if name is None:
        return
    table = model.get_submodule(name)
    assert isinstance(table, nn.Embedding)
    rows = sorted({token for text in ids for token in text})
    if len(rows) < table.num_embeddings:
        sparse = SparseEmbedding(table, torch.tensor(rows, device=table.weight.device))
        model.set_submodule(name, sparse.train(table.training))


def restore_tables(model: nn.Module) -> None:
    for name, module in list(model.named_modules()):
        if isinstance(module, SparseEmbedding):
            model.set_submodule(name, module.restored())
