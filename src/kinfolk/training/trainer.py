"""One trainer for every objective, indexed by step.

The batch and the randomness of step k are a pure function of (seed, k). So a run can be killed anywhere and go on from
its last checkpoint to the same weights, bit for bit (same machine, same number of threads).
"""

from __future__ import annotations

import copy
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from kinfolk.data.batching import StepPlan
from kinfolk.errors import InputError, StopSignalError, TrainingError, choose
from kinfolk.objectives.objective import Item, Objective, Prepared
from kinfolk.training.optimiser import (
    OptimiserSettings,
    Trainable,
    build_optimiser,
    optimiser_tensors,
    restore_optimiser,
    set_free,
)
from kinfolk.training.runs import Run, Snapshot
from kinfolk.training.schedules import SCHEDULES, rate_factor

TIMED_STEPS = 6
SECONDS_BETWEEN_SAVES = 300  # besides those after evaluations: no crash costs more


@dataclass(frozen=True)
class TrainSettings:
    """How long, how fast, how often."""

    seed: int = 0
    epochs: float = 3.0
    minutes: float | None = None  # instead of epochs: as many steps as fit
    batch_size: int = 32
    batch_tokens: int | None = None
    accumulate: int = 1  # batches per step
    schedule: str = "linear"
    warmup: float = 0.1  # share of the run
    clip: float | None = 1.0
    evaluations: int = 4  # over the whole run; the last step is always evaluated
    patience: int | None = None  # evaluations without a better one before stopping
    average: float = 0.0  # share of the run, at its end, over which weights are averaged
    thaw: float = 0.0  # share of the run over which layers thaw from the top, one by one
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)

    def __post_init__(self) -> None:
        choose("schedule", self.schedule, SCHEDULES)
        if not (0 < self.epochs < 1e6) or self.batch_size < 1 or self.accumulate < 1 or self.evaluations < 1:
            raise InputError("epochs must be above 0; batch_size, accumulate and evaluations at least 1")
        if self.minutes is not None and not 0 < self.minutes < 1e6:
            raise InputError("minutes must be above 0")
        if self.patience is not None and self.patience < 1:
            raise InputError("patience must be at least 1")
        for name in ("warmup", "average", "thaw"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is a share of the run, from 0 to 1")


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after each step."""

    step: int
    total: int
    loss: float
    epoch: int
    metrics: Mapping[str, float] | None = None


Evaluate = Callable[[Any], tuple[float, dict[str, float]]]  # a figure of merit (higher is better), and all metrics


class Trainer:
    """Trains `model` on `items` under `objective`, in the folder of `run`."""

    def __init__(
        self,
        model: Trainable,
        objective: Objective,
        items: Sequence[Item],
        settings: TrainSettings,
        run: Run,
        evaluate: Evaluate,
        watch: Callable[[Progress], None] = lambda progress: None,
        where: Callable[[int], str] = "example {}".format,
    ):
        """`where` says where an example stands, for a message."""
        self.model, self.objective, self.items = model, objective, items
        self.settings, self.run, self.evaluate, self.watch, self.where = settings, run, evaluate, watch, where
        self.plan = StepPlan([len(item) for item in items], settings.seed, settings.batch_size, settings.batch_tokens)
        self.optimiser = build_optimiser(model, settings.optimiser)
        self.top = max(model.depths().values())
        self.step = 0
        self.total = 0
        self.best: float | None = None
        self.best_step: int | None = None
        self.waited = 0  # evaluations since the best
        self.averaged: dict[str, Tensor] = {}
        self.thawed = -1

    def train(self) -> list[str]:
        """Run to the end, or on from the last checkpoint; what there is to say about damaged checkpoints."""
        notes = self._resume()
        due, saved = self._evaluation_steps(), time.monotonic()
        with _stopping() as stop:
            while self.step < self.total and not self._out_of_patience():
                loss = self._one_step(self.step)
                self.step += 1
                entry: dict[str, Any] = {"step": self.step, "loss": loss, "epoch": self._epoch()}
                improved = False
                if self.step in due:
                    improved, metrics = self._evaluate()
                    entry["metrics"] = metrics
                self.run.log(entry)
                self.watch(Progress(self.step, self.total, loss, entry["epoch"], entry.get("metrics")))
                if self.step in due or stop.asked is not None or time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
                    self.run.save(self._snapshot(), improved)
                    saved = time.monotonic()
                if stop.asked is not None:
                    raise StopSignalError(stop.asked)
        return notes

    def _out_of_patience(self) -> bool:
        return self.settings.patience is not None and self.waited >= self.settings.patience

    def _epoch(self) -> int:
        return self.plan.place((self.step - 1) * self.settings.accumulate)[0]

    def _one_step(self, step: int) -> float:
        torch.manual_seed(_mixed(self.settings.seed, step))
        self.model.train()
        self._thaw(step)
        first = step * self.settings.accumulate
        batches = [self._prepared(self.plan.batch(first + number)) for number in range(self.settings.accumulate)]
        count = sum(batch.count for batch in batches)
        total = 0.0
        for batch in batches:
            loss = self.objective.loss(self.model, batch) / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        weights = [weight for group in self.optimiser.param_groups for weight in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(weights, self.settings.clip or float("inf"))
        if not (torch.isfinite(norm) and total == total and abs(total) != float("inf")):
            self._refuse(step, batches)
        factor = rate_factor(self.settings.schedule, step, self.total, round(self.settings.warmup * self.total))
        for group in self.optimiser.param_groups:
            group["lr"] = group["peak"] * factor
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self._average(step)
        return total

    def _prepared(self, numbers: list[int]) -> Prepared:
        return self.objective.prepare([self.items[number] for number in numbers], self.model.device)

    def _refuse(self, step: int, batches: list[Prepared]) -> None:
        """A loss or gradient that is not finite: nothing is applied, the last good state is kept."""
        self.optimiser.zero_grad(set_to_none=True)
        if self.step:
            self.run.save(self._snapshot())
        rows = sorted({example for batch in batches for example in batch.examples})
        shown = ", ".join(self.where(row) for row in rows[:20]) + (" …" if len(rows) > 20 else "")
        raise TrainingError(
            f"step {step + 1}: the loss or its gradient is not a finite number; the batch held {shown}; "
            "lower the rate or look at these rows"
        )

    def _thaw(self, step: int) -> None:
        """Gradual unfreezing: the heads learn at once, each layer below a little later."""
        top = self.top
        span = self.settings.thaw * self.total
        depth = 0 if span == 0 else max(0, top - int(step / span * (top + 1)))
        if depth != self.thawed:
            self.thawed = depth
            set_free(self.model, self.settings.optimiser, depth)

    def _average(self, step: int) -> None:
        start = round((1 - self.settings.average) * self.total)
        if self.settings.average == 0 or step < start:
            return
        seen = step - start
        for name, weight in self.model.named_parameters():
            if seen == 0:
                self.averaged[name] = weight.detach().clone()
            else:
                self.averaged[name].lerp_(weight.detach(), 1 / (seen + 1))

    @contextmanager
    def with_averaged_weights(self) -> Iterator[None]:
        """The averaged weights in the model's place, where there are any."""
        if not self.averaged:
            yield
            return
        own = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        _load(self.model, self.averaged)
        try:
            yield
        finally:
            _load(self.model, own)

    def load_best(self) -> None:
        """Put the weights of the best evaluation into the model."""
        snapshot = self.run.best()
        assert snapshot is not None, "a run ends with an evaluation"
        _load(self.model, snapshot.tensors.get("averaged", snapshot.tensors["weights"]))
        self.model.eval()

    def _evaluate(self) -> tuple[bool, dict[str, float]]:
        self.model.eval()
        with self.with_averaged_weights(), torch.inference_mode():
            merit, metrics = self.evaluate(self.model)
        improved = self.best is None or merit > self.best
        if improved:
            self.best, self.best_step = merit, self.step
        self.waited = 0 if improved else self.waited + 1
        return improved, metrics

    def _evaluation_steps(self) -> set[int]:
        count = min(self.settings.evaluations, self.total)
        return {round(self.total * (number + 1) / count) for number in range(count)}

    def _snapshot(self) -> Snapshot:
        tensors: dict[str, Mapping[str, Tensor]] = {
            "weights": {name: weight.detach() for name, weight in self.model.named_parameters()},
            "optimiser": optimiser_tensors(self.model, self.optimiser),
        }
        if self.averaged:
            tensors["averaged"] = self.averaged
        counters = {"total": self.total, "best": self.best, "best_step": self.best_step, "waited": self.waited}
        return Snapshot(self.step, tensors, counters)

    def _resume(self) -> list[str]:
        snapshot, notes = self.run.newest()
        if snapshot is None:
            self.total = self._steps()
            self.run.rewind(0, None)
            return notes
        _load(self.model, snapshot.tensors["weights"])
        restore_optimiser(self.model, self.optimiser, dict(snapshot.tensors["optimiser"]))
        self.averaged = {name: tensor.clone() for name, tensor in snapshot.tensors.get("averaged", {}).items()}
        self.step, self.total = snapshot.step, int(snapshot.counters["total"])
        self.best, self.waited = snapshot.counters["best"], int(snapshot.counters["waited"])
        self.best_step = snapshot.counters["best_step"]
        self.run.rewind(self.step, self.best_step)
        return notes

    def _steps(self) -> int:
        if self.settings.minutes is None:
            return max(1, self.plan.steps(self.settings.epochs) // self.settings.accumulate)
        return max(1, int(self.settings.minutes * 60 / self._seconds_per_step()))

    def _seconds_per_step(self) -> float:
        """Time a few steps on a copy that is thrown away; from then on only the number of steps counts."""
        model, optimiser, self.total = self.model, self.optimiser, 10**6
        self.model = copy.deepcopy(model)
        self.optimiser = build_optimiser(self.model, self.settings.optimiser)
        try:
            self._one_step(0)
            start = time.perf_counter()
            for step in range(1, TIMED_STEPS):
                self._one_step(step)
            return (time.perf_counter() - start) / (TIMED_STEPS - 1)
        finally:
            self.model, self.optimiser, self.thawed, self.averaged = model, optimiser, -1, {}


@dataclass
class _Stop:
    asked: int | None = None


@contextmanager
def _stopping() -> Iterator[_Stop]:
    """The first SIGINT or SIGTERM lets the current step end; a second one stops at once."""
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.asked is not None:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
        stop.asked = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _load(model: Trainable, tensors: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(tensors[name])


def _mixed(seed: int, step: int) -> int:
    """A different stream of random numbers for every (seed, step): the finaliser of SplitMix64."""
    value = (seed * 0x9E3779B97F4A7C15 + step + 1) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)
