"""One trainer for every objective, indexed by step.

The batch and the randomness of step k are a pure function of (seed, k). So a run can be killed anywhere and go on from
its last checkpoint to the same weights, bit for bit (same machine, same number of threads and processes).
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol

import torch

from kinfolk.data.batching import BatchSampler
from kinfolk.errors import FolderError, StopSignalError, TrainingError, shorten_list
from kinfolk.machine import HeapTrimmer
from kinfolk.objectives.objective import Sample, TrainingObjective
from kinfolk.training.distributed import world
from kinfolk.training.fsdp import load
from kinfolk.training.optimizer import Trainable
from kinfolk.training.runs import Run, Snapshot
from kinfolk.training.schedule import rate_factor
from kinfolk.training.settings import TrainSettings
from kinfolk.training.sparse_embedding import narrow, widen
from kinfolk.training.step import Losses, TrainStep
from kinfolk.training.stopping import Stop, stopping
from kinfolk.training.timing import (
    LOOKED_AT,
    SECONDS_BETWEEN_SAVES,
    TIMED_STEPS,
    WARM_STEPS,
    Costs,
    seconds_of,
    steps_that_fit,
    typical,
)


@dataclass(frozen=True)
class Progress:
    """What a callbacks is told after each step."""

    step: int
    total: int
    loss: float
    epoch: int
    metrics: Mapping[str, float] | None = None
    learning_rate: float = 0.0  # of what learns fastest
    losses: Mapping[str, float] | None = None  # each by its name, where there are several


@dataclass(frozen=True)
class Trained:
    """A run that came to its end: what there is to say of damaged checkpoints, and its log.

    `seconds` are None where an earlier process did a part of it.
    """

    notes: list[str]
    log: list[dict[str, Any]]
    seconds: float | None


class Plan(Protocol):
    """Which items each batch holds: a pure function of its number."""

    def batch(self, step: int) -> list[int]:
        """Numbers of the items of one batch."""

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, number of the batch in it)."""

    def steps(self, epochs: float) -> int:
        """How many batches so many epochs have."""


Evaluate = Callable[[Any], tuple[float, dict[str, float]]]  # a figure of merit (higher is better), and all metrics


class Trainer:
    """Trains `model` on `items` under `objective`, in the folder of `run`; in every process of a run alike."""

    def __init__(
        self,
        model: Trainable,
        objective: TrainingObjective,
        items: Sequence[Sample],
        settings: TrainSettings,
        run: Run,
        evaluate: Evaluate,
        watch: Callable[[Progress], None] = lambda progress: None,
        where: Callable[[int], str] = "example {}".format,
        plan: Plan | None = None,
        timing_eval: Callable[[Any], object] | None = None,
    ):
        """`where` says where an example stands, for a message; only the first process calls `watch`.

        `plan` says which items make a batch; otherwise they are shuffled, neighbours alike in length. `timing_eval` is
        what is timed instead of `evaluate`, where a model that has learned nothing yet would take longer than later.
        """
        self.model, self.objective, self.items = model, objective, items
        self.settings, self.run, self.evaluate, self.watch, self.where = settings, run, evaluate, watch, where
        self.timing_eval = timing_eval or evaluate
        self.world = world()
        self.plan: Plan = plan or BatchSampler(
            [len(item) for item in items], settings.seed, settings.batch_size, settings.batch_tokens
        )
        if settings.optimizer.freeze == 0:
            narrow(model, (item.ids for item in items))  # type: ignore[arg-type]
        self.learner = self._new_learner(model)
        self.top = max(model.layer_ids().values())
        self.step = 0
        self.total = 0
        self.best: float | None = None
        self.best_step: int | None = None
        self.waited = 0  # evaluations since the best
        self.judged: tuple[int, float | None] = (0, None)  # the step of the last evaluation, and what it found
        self.saved = 0.0  # when the last checkpoint was written

    def _new_learner(self, model: Trainable) -> TrainStep:
        settings = self.settings
        return TrainStep(
            model,
            self.objective,
            settings.optimizer,
            settings.max_grad_norm,
            self.world,
            settings.fsdp,
            settings.precision,
        )

    def train(self) -> list[str]:
        """Run to the end, or on from the last checkpoint; what there is to say about damaged checkpoints."""
        notes = self._resume()
        if self.step:
            notes.append(f"went on after step {self.step:,}")
        due, self.saved, heap = self._evaluation_steps(), time.monotonic(), HeapTrimmer()
        with stopping() as stop:
            while self.step < self.total and not self._out_of_patience():
                losses = self._one_step(self.step)
                self.step += 1
                improved, metrics = self._evaluate() if self.step in due else (False, None)
                self._tell(losses, metrics)
                asked, late = self._agreed(stop)
                if self.step in due or asked or late:
                    self._save(improved)
                if asked:
                    raise StopSignalError(asked)
                heap.step()
        return notes

    def complete(self) -> Trained:
        """As `train`; then the model has its best weights."""
        begun, start = bool(self.run.steps()), time.monotonic()
        notes = self.train()
        seconds = None if begun else time.monotonic() - start
        if self.step < self.total:
            notes.append(f"stopped at step {self.step:,} of {self.total:,}, for want of a better evaluation")
        notes += self.load_best()
        if self.settings.weight_averaging and self.step <= self._averaged_from():
            notes.append(f"stopped at step {self.step:,}, before the part of the run whose weights are averaged")
        return Trained(notes, self.run.entries(), seconds)

    def _agreed(self, stop: Stop) -> tuple[int, bool]:
        """The signal that asked any of the processes to stop, and whether it is time for a checkpoint."""
        asked, age = self.world.all_reduce_max([stop.asked, time.monotonic() - self.saved])
        return int(asked), age > SECONDS_BETWEEN_SAVES

    def _save(self, improved: bool = False) -> None:
        snapshot = self._snapshot()
        self.world.on_main(lambda: self.run.save(snapshot, improved))
        self.saved = time.monotonic()

    def _tell(self, losses: Losses, metrics: Mapping[str, float] | None) -> None:
        if not self.world.is_main:
            return
        epoch, learning_rate = (
            self.plan.locate((self.step - 1) * self.settings.gradient_accumulation)[0],
            self.learner.learning_rate,
        )
        entry: dict[str, Any] = {
            "step": self.step,
            "loss": losses.total,
            "learning_rate": learning_rate,
            "epoch": epoch,
        }
        parts = losses.parts if len(losses.parts) > 1 else None
        entry |= {} if parts is None else {"losses": parts}
        self.run.log(entry if metrics is None else entry | {"metrics": metrics, "merit": self.judged[1]})
        self.watch(Progress(self.step, self.total, losses.total, epoch, metrics, learning_rate, parts))

    def _out_of_patience(self) -> bool:
        return self.settings.patience is not None and self.waited >= self.settings.patience

    def _one_step(self, step: int) -> Losses:
        torch.manual_seed(_mixed(self.settings.seed, step * self.world.size + self.world.rank))
        self._unfreeze(step)
        self.learner.pace(step, self.total)
        factor = rate_factor(self.settings.schedule, step, self.total, round(self.settings.warmup * self.total))
        losses = self.learner.step(self._batches(step), factor)
        if losses is None:
            self._refuse(step)
        self._average(step)
        return losses

    def _batches(self, step: int) -> list[list[Sample]]:
        first = step * self.settings.gradient_accumulation
        numbers = [self.plan.batch(first + number) for number in range(self.settings.gradient_accumulation)]
        return [[self.items[number] for number in batch] for batch in numbers]

    def _refuse(self, step: int) -> NoReturn:
        """A loss or gradient that is not finite: nothing was applied, the last good state is kept."""
        if self.step:
            self._save()
        rows = sorted({item.example for batch in self._batches(step) for item in batch})
        shown = ", ".join(self.where(row) for row in rows[:20]) + (" …" if len(rows) > 20 else "")
        raise TrainingError(
            f"step {step + 1}: the loss or its gradient is not a finite number; the batch held {shown}; "
            "lower the rate or look at these rows"
        )

    def _unfreeze(self, step: int) -> None:
        """Gradual unfreezing: the heads learn at once, each layer below a little later."""
        span = self.settings.gradual_unfreezing * self.total
        self.learner.unfreeze(0 if span == 0 else max(0, self.top - int(step / span * (self.top + 1))))

    def _averaged_from(self) -> int:
        return min(round((1 - self.settings.weight_averaging) * self.total), self.total - 1)

    def _average(self, step: int) -> None:
        start = self._averaged_from()
        if self.settings.weight_averaging and step >= start:
            self.learner.average(step - start)

    def load_best(self) -> list[str]:
        """Put the weights of the best evaluation into the model; what there is to say about damaged checkpoints."""
        found, notes = self.world.on_main(self.run.best) or (None, [])
        snapshot = self._shared(found)
        if snapshot is None:
            raise FolderError(shorten_list(notes))
        load(self.model, snapshot.tensors.get("averaged", snapshot.tensors["weights"]))
        widen(self.model)  # type: ignore[arg-type]
        self.model.eval()
        return notes

    def _evaluate(self) -> tuple[bool, dict[str, float]]:
        """Every process evaluates, which takes no longer than waiting for one; what process 0 found counts."""
        with self.learner.judged(), torch.inference_mode():
            selection_score, metrics = self.world.broadcast(self.evaluate(self.model))
        self.judged = self.step, selection_score
        improved = self.best is None or selection_score > self.best
        if improved:
            self.best, self.best_step = selection_score, self.step
        self.waited = 0 if improved else self.waited + 1
        return improved, metrics

    def _evaluation_steps(self) -> set[int]:
        if self.settings.evaluate_every is not None:
            return {*range(self.settings.evaluate_every, self.total, self.settings.evaluate_every), self.total}
        count = min(self.settings.evaluations, self.total)
        return {round(self.total * (number + 1) / count) for number in range(count)}

    def _snapshot(self) -> Snapshot:
        counters = {"total": self.total, "best": self.best, "best_step": self.best_step, "waited": self.waited}
        counters["merit"] = self.judged[1] if self.judged[0] == self.step else None
        return Snapshot(self.step, self.learner.state(), counters)

    def _shared(self, snapshot: Snapshot | None) -> Snapshot | None:
        """What process 0 read, on every process."""
        if self.world.size == 1:
            return snapshot
        told = self.world.broadcast(snapshot and [snapshot.step, dict(snapshot.counters), list(snapshot.tensors)])
        if told is None:
            return None
        step, counters, groups = told
        held = {} if snapshot is None else snapshot.tensors
        return Snapshot(step, {group: self.world.broadcast_tensors(held.get(group, {})) for group in groups}, counters)

    def _resume(self) -> list[str]:
        snapshot, notes = self.world.on_main(self.run.newest) or (None, [])
        snapshot = self._shared(snapshot)
        if snapshot is None:
            self.total = self._planned()
        else:
            self.learner.restore(snapshot.tensors)
            self.step, self.total = snapshot.step, int(snapshot.counters["total"])
            self.best, self.waited = snapshot.counters["best"], int(snapshot.counters["waited"])
            self.best_step = snapshot.counters["best_step"]
        self.world.on_main(lambda: self.run.rewind(self.step, self.best_step))
        return notes

    def _planned(self) -> int:
        """The number of steps of a run that begins."""
        if self.settings.steps is not None:
            return self.settings.steps
        if self.settings.minutes is None:
            return max(1, self.plan.steps(self.settings.epochs) // self.settings.gradient_accumulation)
        planned = self.world.broadcast(self.world.on_main(self.run.plan))
        if planned is None:
            start = time.monotonic()
            costs = self._costs()
            left = self.settings.minutes * 60 - (time.monotonic() - start)
            planned = self.world.broadcast(self._fitting(left, costs))
            self.world.on_main(lambda: self.run.keep_plan(planned))
        return int(planned)

    def _fitting(self, seconds: float, costs: Costs) -> int:
        every = self.settings.evaluate_every
        if every is None:
            return steps_that_fit(seconds, costs, self.settings.evaluations)
        spread = costs.step + (costs.evaluation + costs.save) / every
        return steps_that_fit(seconds, dataclasses.replace(costs, step=spread), evaluations=1)

    def _costs(self) -> Costs:
        """Time steps of typical length, an evaluation and a checkpoint, on a copy that is thrown away."""
        model = copy.deepcopy(self.model)
        learner = self._new_learner(model)
        learner.unfreeze(0)
        learner.pace(1, 2)  # the middle of the run
        tokens = [sum(len(item) for batch in self._batches(step) for item in batch) for step in range(LOOKED_AT)]
        chosen = typical(tokens, WARM_STEPS + TIMED_STEPS)
        steps = [partial(learner.step, self._batches(number), factor=0.0) for number in chosen]
        for warm in steps[:WARM_STEPS]:
            warm()
        step = seconds_of(steps[WARM_STEPS:])
        with learner.judged(), torch.inference_mode():
            evaluation = seconds_of([partial(self.timing_eval, model)])
        snapshot = Snapshot(0, learner.state(), {})
        save = self.world.on_main(lambda: self.run.seconds_to_save(snapshot))
        return Costs(step, evaluation, save or 0.0)


def _mixed(seed: int, step: int) -> int:
    """A different stream of random numbers for every (seed, step): the finaliser of SplitMix64."""
    value = (seed * 0x9E3779B97F4A7C15 + step + 1) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)
