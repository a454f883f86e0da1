"""One trainer for every objective, indexed by step.

The batch and the randomness of step k are a pure function of (seed, k). So a run can be killed anywhere and go on from
its last checkpoint to the same weights, bit for bit (same machine, same number of threads and processes).
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol

import torch
from torch.distributed import ReduceOp

from kinfolk.data.batching import BatchSampler
from kinfolk.errors import FolderError, StopSignalError, TrainingError, shorten_list
from kinfolk.machine import HeapTrimmer
from kinfolk.objectives.objective import Sample, TrainingObjective
from kinfolk.training.distributed import load_weights, world
from kinfolk.training.optimizer import Trainable
from kinfolk.training.runs import Run, Snapshot
from kinfolk.training.schedule import rate_factor
from kinfolk.training.settings import TrainSettings
from kinfolk.training.sparse_embedding import restore_tables, train_only_rows
from kinfolk.training.step import Losses, TrainStep
from kinfolk.training.stopping import stopping
from kinfolk.training.timing import SECONDS_BETWEEN_SAVES, Costs, median_seconds, steps_that_fit, typical

WARMUP_STEPS, TIMED_STEPS = 2, 6
TIMED_AMONG = 200  # steps of which those of typical length are timed


@dataclass(frozen=True)
class Progress:
    """What a callback gets after each step."""

    step: int
    total: int
    loss: float
    epoch: int
    metrics: Mapping[str, float] | None = None
    learning_rate: float = 0.0  # the highest of all layers
    losses: Mapping[str, float] | None = None  # each by its name, where there are several


@dataclass(frozen=True)
class Trained:
    """A finished run: notes (damaged checkpoints, early stopping) and its log.

    `seconds` are None where an earlier process did a part of it.
    """

    notes: list[str]
    log: list[dict[str, Any]]
    seconds: float | None


class Plan(Protocol):
    """Which samples each batch has: a pure function of its index."""

    def batch(self, step: int) -> list[int]:
        """Indices of the samples of a batch."""

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, index of the batch in it)."""

    def steps(self, epochs: float) -> int:
        """The number of batches in some epochs."""


Evaluate = Callable[[Any], tuple[float, dict[str, float]]]  # selection score (higher is better), metrics


class Trainer:
    """Trains `model` on `samples` under `objective`, in the folder of `run`; the same in every process of a run."""

    def __init__(
        self,
        model: Trainable,
        objective: TrainingObjective,
        samples: Sequence[Sample],
        settings: TrainSettings,
        run: Run,
        evaluate: Evaluate,
        on_step: Callable[[Progress], None] = lambda progress: None,
        describe_row: Callable[[int], str] = "example {}".format,
        plan: Plan | None = None,
        timing_eval: Callable[[Any], object] | None = None,
    ):
        """`describe_row` names an example's row in messages; only process 0 calls `on_step`.

        `plan` says which samples make a batch; otherwise they are shuffled, neighbours alike in length. `timing_eval`
        is timed instead of `evaluate`, where an untrained model would take longer than later.
        """
        self.model, self.objective, self.samples = model, objective, samples
        self.settings, self.run, self.evaluate = settings, run, evaluate
        self.on_step, self.describe_row = on_step, describe_row
        self.timing_eval = timing_eval or evaluate
        self.world = world()
        self.plan: Plan = plan or BatchSampler(
            [len(sample) for sample in samples], settings.seed, settings.batch_size, settings.batch_tokens
        )
        if settings.optimizer.freeze == 0:
            train_only_rows(model, (sample.ids for sample in samples))  # type: ignore[arg-type]
        self.train_step = self._new_train_step(model)
        self.top = max(model.layer_ids().values())
        self.step = 0
        self.total = 0
        self.best: float | None = None
        self.best_step: int | None = None
        self.without_improvement = 0  # evaluations since the best
        self.last_evaluation: tuple[int, float | None] = (0, None)  # its step and selection score
        self.saved = 0.0  # when the last checkpoint was written

    def _new_train_step(self, model: Trainable) -> TrainStep:
        settings = self.settings
        optimizer, norm = settings.optimizer, settings.max_grad_norm
        return TrainStep(model, self.objective, optimizer, norm, self.world, settings.fsdp, settings.precision)

    def train(self) -> list[str]:
        """Run to the end, or resume from the last checkpoint; notes on damaged checkpoints."""
        notes = self._resume()
        if self.step:
            notes.append(f"resumed after step {self.step:,}")
        due, self.saved, heap = self._evaluation_steps(), time.monotonic(), HeapTrimmer()
        with stopping() as stop:
            while self.step < self.total and self.without_improvement < (self.settings.patience or math.inf):
                losses = self._one_step(self.step)
                self.step += 1
                improved, metrics = self._evaluate() if self.step in due else (False, None)
                self._log(losses, metrics)
                # The signal that any of the processes received, and the time since the last checkpoint.
                signal, age = self.world.all_reduce([stop.signal, time.monotonic() - self.saved], ReduceOp.MAX)
                if self.step in due or signal or age > SECONDS_BETWEEN_SAVES:
                    self._save(improved)
                if signal:
                    raise StopSignalError(int(signal))
                heap.step()
        return notes

    def complete(self) -> Trained:
        """As `train`; then the model has its best weights."""
        begun, start = bool(self.run.steps()), time.monotonic()
        notes = self.train()
        seconds = None if begun else time.monotonic() - start
        if self.step < self.total:
            notes.append(f"stopped at step {self.step:,} of {self.total:,}, early: no improvement")
        notes += self.load_best()
        if self.settings.weight_averaging and self.step <= self._averaged_from():
            notes.append(f"stopped at step {self.step:,}, before the part of the run whose weights are averaged")
        return Trained(notes, self.run.entries(), seconds)

    def _save(self, improved: bool = False) -> None:
        snapshot = self._snapshot()
        self.world.on_main(lambda: self.run.save(snapshot, improved))
        self.saved = time.monotonic()

    def _log(self, losses: Losses, metrics: Mapping[str, float] | None) -> None:
        if not self.world.is_main:
            return
        epoch = self.plan.locate((self.step - 1) * self.settings.gradient_accumulation)[0]
        rate, parts = self.train_step.learning_rate, losses.parts if len(losses.parts) > 1 else None
        entry: dict[str, Any] = {"step": self.step, "loss": losses.total, "learning_rate": rate, "epoch": epoch}
        entry |= {} if parts is None else {"losses": parts}
        entry |= {} if metrics is None else {"metrics": metrics, "selection_score": self.last_evaluation[1]}
        self.run.log(entry)
        self.on_step(Progress(self.step, self.total, losses.total, epoch, metrics, rate, parts))

    def _one_step(self, step: int) -> Losses:
        torch.manual_seed(_mixed(self.settings.seed, step * self.world.size + self.world.rank))
        # Gradual unfreezing: the heads first, then layer by layer downwards.
        span = self.settings.gradual_unfreezing * self.total
        self.train_step.unfreeze(0 if span == 0 else max(0, self.top - int(step / span * (self.top + 1))))
        self.train_step.schedule(step, self.total)
        factor = rate_factor(self.settings.schedule, step, self.total, round(self.settings.warmup * self.total))
        losses = self.train_step.step(self._batches(step), factor)
        if losses is None:
            self._refuse(step)
        if self.settings.weight_averaging and step >= self._averaged_from():
            self.train_step.average(step - self._averaged_from())
        return losses

    def _batches(self, step: int) -> list[list[Sample]]:
        first = step * self.settings.gradient_accumulation
        batches = [self.plan.batch(first + index) for index in range(self.settings.gradient_accumulation)]
        return [[self.samples[index] for index in batch] for batch in batches]

    def _refuse(self, step: int) -> NoReturn:
        """A loss or gradient that is not finite: nothing was applied, the last good state is kept."""
        if self.step:
            self._save()
        rows = sorted({sample.example for batch in self._batches(step) for sample in batch})
        shown = ", ".join(self.describe_row(row) for row in rows[:20]) + (" …" if len(rows) > 20 else "")
        raise TrainingError(
            f"step {step + 1}: the loss or its gradient is not a finite number; the batch held {shown}; "
            "lower the learning rate or look at these rows"
        )

    def _averaged_from(self) -> int:
        return min(round((1 - self.settings.weight_averaging) * self.total), self.total - 1)

    def load_best(self) -> list[str]:
        """Put the weights of the best evaluation into the model; notes on damaged checkpoints."""
        best, notes = self.world.on_main(self.run.best) or (None, [])
        snapshot = self._shared(best)
        if snapshot is None:
            raise FolderError(shorten_list(notes))
        load_weights(self.model, snapshot.tensors.get("averaged", snapshot.tensors["weights"]))
        restore_tables(self.model)  # type: ignore[arg-type]
        self.model.eval()
        return notes

    def _evaluate(self) -> tuple[bool, dict[str, float]]:
        """Every process evaluates, which takes no longer than waiting for one; the result of process 0 counts."""
        with self.train_step.evaluation(), torch.inference_mode():
            selection_score, metrics = self.world.broadcast(self.evaluate(self.model))
        self.last_evaluation = self.step, selection_score
        improved = self.best is None or selection_score > self.best
        if improved:
            self.best, self.best_step = selection_score, self.step
        self.without_improvement = 0 if improved else self.without_improvement + 1
        return improved, metrics

    def _evaluation_steps(self) -> set[int]:
        if self.settings.evaluate_every is not None:
            return {*range(self.settings.evaluate_every, self.total, self.settings.evaluate_every), self.total}
        count = min(self.settings.evaluations, self.total)
        return {round(self.total * (index + 1) / count) for index in range(count)}

    def _snapshot(self) -> Snapshot:
        step, score = self.last_evaluation
        counters = {
            "total": self.total,
            "best": self.best,
            "best_step": self.best_step,
            "without_improvement": self.without_improvement,
            "selection_score": score if step == self.step else None,
        }
        return Snapshot(self.step, self.train_step.state(), counters)

    def _shared(self, snapshot: Snapshot | None) -> Snapshot | None:
        """The snapshot of process 0, on every process."""
        if self.world.size == 1:
            return snapshot
        message = self.world.broadcast(snapshot and [snapshot.step, dict(snapshot.counters), list(snapshot.tensors)])
        if message is None:
            return None
        step, counters, groups = message
        own = {} if snapshot is None else snapshot.tensors
        return Snapshot(step, {group: self.world.broadcast_tensors(own.get(group, {})) for group in groups}, counters)

    def _resume(self) -> list[str]:
        snapshot, notes = self.world.on_main(self.run.newest) or (None, [])
        snapshot = self._shared(snapshot)
        if snapshot is None:
            self.total = self._planned()
        else:
            self.train_step.restore(snapshot.tensors)
            self.step, self.total = snapshot.step, int(snapshot.counters["total"])
            self.best, self.best_step = snapshot.counters["best"], snapshot.counters["best_step"]
            self.without_improvement = int(snapshot.counters["without_improvement"])
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
        train_step = self._new_train_step(model)
        train_step.unfreeze(0)
        train_step.schedule(1, 2)  # the middle of the run
        lengths = [sum(len(sample) for batch in self._batches(step) for sample in batch) for step in range(TIMED_AMONG)]
        chosen = typical(lengths, WARMUP_STEPS + TIMED_STEPS)
        steps = [partial(train_step.step, self._batches(index), factor=0.0) for index in chosen]
        for warmup in steps[:WARMUP_STEPS]:
            warmup()
        step = median_seconds(steps[WARMUP_STEPS:])
        with train_step.evaluation(), torch.inference_mode():
            evaluation = median_seconds([partial(self.timing_eval, model)])
        snapshot = Snapshot(0, train_step.state(), {})
        save = self.world.on_main(lambda: self.run.seconds_to_save(snapshot))
        return Costs(step, evaluation, save or 0.0)


def _mixed(seed: int, step: int) -> int:
    """A different stream of random numbers for every (seed, step): the finaliser of SplitMix64."""
    value = (seed * 0x9E3779B97F4A7C15 + step + 1) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)
