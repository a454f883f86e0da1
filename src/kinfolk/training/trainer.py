"""One trainer for every objective, indexed by step.

The batch and the randomness of step k are a pure function of (seed, k). So a run can be killed anywhere and go on from
its last checkpoint to the same weights, bit for bit (same machine, same number of threads and processes).
"""

from __future__ import annotations

import copy
import dataclasses
import math
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import mean, median
from types import FrameType
from typing import Any

import torch
from torch.distributed import ReduceOp

from kinfolk.data.batching import BatchSampler, Plan
from kinfolk.errors import FolderError, StopSignalError, TrainingError, shorten_list
from kinfolk.machine import HeapTrimmer
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.training.distributed import load_weights, world
from kinfolk.training.runs import Progress, Run, Snapshot
from kinfolk.training.settings import TrainSettings, rate_factor
from kinfolk.training.step import Losses, TrainStep, restore_tables, train_only_rows

SECONDS_BETWEEN_SAVES = 300  # besides those after evaluations: no crash costs more
WARMUP_STEPS, TIMED_STEPS = 2, 6
TIMED_AMONG = 200  # steps of which those of typical length are timed
COUNTERS = ("total", "best", "best_step", "without_improvement")  # of a checkpoint


Evaluate = Callable[[Model], tuple[float, dict[str, float]]]  # selection score (higher is better), metrics


class Trainer:
    """Trains `model` on `samples` under `objective`, in the folder of `run`; the same in every process of a run.
    Samples that are no plan of their own are shuffled, neighbours alike in length. `describe_row` names an example's
    row in messages; only process 0 calls `on_step`. `timing_eval` is timed instead of `evaluate`, where an untrained
    model would take longer than later."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        samples: Sequence[Sample],
        settings: TrainSettings,
        run: Run,
        evaluate: Evaluate,
        on_step: Callable[[Progress], None] = lambda progress: None,
        describe_row: Callable[[int], str] = "example {}".format,
        timing_eval: Callable[[Any], object] | None = None,
    ):
        self.model, self.objective, self.samples, self.settings = model, objective, samples, settings
        self.run, self.evaluate, self.timing_eval = run, evaluate, timing_eval or evaluate
        self.on_step, self.describe_row, self.world = on_step, describe_row, world()
        sizes = settings.seed, settings.batch_size, settings.batch_tokens
        self.plan = samples if isinstance(samples, Plan) else BatchSampler(list(map(len, samples)), *sizes)
        if settings.optimizer.freeze == 0:
            train_only_rows(model, (sample.ids for sample in samples))
        self.train_step = TrainStep(model, objective, settings, self.world)
        self.top = max(model.layer_ids().values())
        self.step = self.total = 0
        self.best: float | None = None
        self.best_step: int | None = None
        self.without_improvement = 0  # evaluations since the best
        self.last_evaluation: tuple[int, float | None] = (0, None)  # its step and selection score
        self.saved = 0.0  # when the last checkpoint was written

    def train(self) -> list[str]:
        """Run to the end, or resume from the last checkpoint; notes on damaged checkpoints."""
        notes = self._resume()
        notes += [f"resumed after step {self.step:,}"] if self.step else []
        due, self.saved, heap = self._evaluation_steps(), time.monotonic(), HeapTrimmer()
        with stopping() as signals:
            while self.step < self.total and self.without_improvement < (self.settings.patience or math.inf):
                losses = self._one_step(self.step)
                self.step += 1
                improved, metrics = self._evaluate() if self.step in due else (False, None)
                self._log(losses, metrics)
                # The signal that any of the processes received, and the time since the last checkpoint.
                here = [max(signals, default=0), time.monotonic() - self.saved]
                received, age = self.world.all_reduce(here, ReduceOp.MAX)
                if self.step in due or received or age > SECONDS_BETWEEN_SAVES:
                    self._save(improved)
                if received:
                    raise StopSignalError(int(received))
                heap.step()
        return notes

    def complete(self) -> tuple[list[str], float | None]:
        """As `train`; then the model has its best weights. Notes, and seconds unless an earlier process did a part."""
        begun, start = bool(self.run.steps()), time.monotonic()
        notes = self.train()
        seconds = None if begun else time.monotonic() - start
        if self.step < self.total:
            notes.append(f"stopped at step {self.step:,} of {self.total:,}, early: no improvement")
        notes += self.load_best()
        if self.settings.weight_averaging and self.step <= self._averaged_from():
            notes.append(f"stopped at step {self.step:,}, before the part of the run whose weights are averaged")
        return notes, seconds

    def _save(self, improved: bool = False) -> None:
        step, score = self.last_evaluation
        counters = {name: getattr(self, name) for name in COUNTERS}
        counters["selection_score"] = score if step == self.step else None
        snapshot = Snapshot(self.step, self.train_step.state(), counters)
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
            raise self._not_finite(step)
        if self.settings.weight_averaging and step >= self._averaged_from():
            self.train_step.average(step - self._averaged_from())
        return losses

    def _batches(self, step: int) -> list[list[Sample]]:
        first = step * self.settings.gradient_accumulation
        batches = [self.plan.batch(first + index) for index in range(self.settings.gradient_accumulation)]
        return [[self.samples[index] for index in batch] for batch in batches]

    def _not_finite(self, step: int) -> TrainingError:
        """About a loss or gradient: nothing was applied, the last good state is kept."""
        if self.step:
            self._save()
        rows = sorted({sample.example for batch in self._batches(step) for sample in batch})
        shown = shorten_list(map(self.describe_row, rows), 20)
        reason = f"the loss or its gradient is not a finite number; the batch held {shown}"
        return TrainingError(f"step {step + 1}: {reason}; lower the learning rate or look at these rows")

    def _averaged_from(self) -> int:
        return min(round((1 - self.settings.weight_averaging) * self.total), self.total - 1)

    def load_best(self) -> list[str]:
        """Put the weights of the best evaluation into the model; notes on damaged checkpoints."""
        best, notes = self.world.on_main(self.run.best) or (None, [])
        snapshot = self._shared(best)
        if snapshot is None:
            raise FolderError(shorten_list(notes))
        load_weights(self.model, snapshot.tensors.get("averaged", snapshot.tensors["weights"]))
        restore_tables(self.model)
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
        every, count = self.settings.evaluate_every, min(self.settings.evaluations, self.total)
        if every is not None:
            return {*range(every, self.total, every), self.total}
        return {round(self.total * (index + 1) / count) for index in range(count)}

    def _shared(self, snapshot: Snapshot | None) -> Snapshot | None:
        if self.world.size == 1:
            return snapshot
        message = self.world.broadcast(snapshot and [snapshot.step, dict(snapshot.counters), list(snapshot.tensors)])
        if message is None:
            return None
        own = {} if snapshot is None else snapshot.tensors
        groups = {group: self.world.broadcast_tensors(own.get(group, {})) for group in message[2]}
        return Snapshot(message[0], groups, message[1])

    def _resume(self) -> list[str]:
        snapshot, notes = self.world.on_main(self.run.newest) or (None, [])
        snapshot = self._shared(snapshot)
        if snapshot is None:
            self.total = self._planned_steps()
        else:
            self.train_step.restore(snapshot.tensors)
            self.step = snapshot.step
            for name in COUNTERS:
                setattr(self, name, snapshot.counters[name])
        self.world.on_main(lambda: self.run.rewind(self.step, self.best_step))
        return notes

    def _planned_steps(self) -> int:
        if self.settings.steps is not None:
            return self.settings.steps
        if self.settings.minutes is None:
            return max(1, self.plan.steps(self.settings.epochs) // self.settings.gradient_accumulation)
        planned = self.world.broadcast(self.world.on_main(self.run.plan))
        if planned is None:
            start, evaluations, every = time.monotonic(), self.settings.evaluations, self.settings.evaluate_every
            costs = self._costs()
            if every is not None:
                spread = costs.step + (costs.evaluation + costs.save) / every
                costs, evaluations = dataclasses.replace(costs, step=spread), 1
            left = self.settings.minutes * 60 - (time.monotonic() - start)
            planned = self.world.broadcast(steps_that_fit(left, costs, evaluations))
            self.world.on_main(lambda: self.run.keep_plan(planned))
        return int(planned)

    def _costs(self) -> Costs:
        """Time steps of typical length, an evaluation and a checkpoint, on a copy that is thrown away."""
        model = copy.deepcopy(self.model)
        train_step = TrainStep(model, self.objective, self.settings, self.world)
        train_step.unfreeze(0)
        train_step.schedule(1, 2)  # the middle of the run
        lengths = [sum(len(sample) for batch in self._batches(step) for sample in batch) for step in range(TIMED_AMONG)]
        chosen = typical(lengths, WARMUP_STEPS + TIMED_STEPS)
        seconds = [seconds_of(partial(train_step.step, self._batches(index), factor=0.0)) for index in chosen]
        with train_step.evaluation(), torch.inference_mode():
            evaluation = seconds_of(partial(self.timing_eval, model))
        snapshot = Snapshot(0, train_step.state(), {})
        save = self.world.on_main(lambda: self.run.seconds_to_save(snapshot))
        return Costs(median(seconds[WARMUP_STEPS:]), evaluation, save or 0.0)


@dataclass(frozen=True)
class Costs:
    step: float
    evaluation: float
    save: float

    def run(self, steps: int, evaluations: int) -> float:
        """Seconds of a run: steps, evaluations and checkpoints, and the last evaluation of the model that is kept."""
        evaluated = min(evaluations, steps)
        between = steps * self.step // SECONDS_BETWEEN_SAVES
        return steps * self.step + (evaluated + 1) * self.evaluation + (evaluated + between) * self.save


def steps_that_fit(seconds: float, costs: Costs, evaluations: int) -> int:
    """The largest number of steps, at least one, whose run takes no longer."""
    upper = int(seconds / costs.step) + 1 if seconds > 0 else 1
    return max(1, bisect_right(range(1, upper + 1), seconds, key=lambda steps: costs.run(steps, evaluations)))


def typical(tokens: Sequence[int], count: int) -> list[int]:
    """The indices of those nearest the mean: steps differ by their length, and a short one says little of the run."""
    middle = mean(tokens)
    return sorted(range(len(tokens)), key=lambda index: abs(tokens[index] - middle))[:count]


def seconds_of(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@contextmanager
def stopping() -> Iterator[list[int]]:
    """The signals received: a first SIGINT or SIGTERM lets the current step end, a second one stops at once."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        received.append(number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # nowhere else can one listen
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _mixed(seed: int, step: int) -> int:
    """A different stream of random numbers for every (seed, step): the finaliser of SplitMix64."""
    value = (seed * 0x9E3779B97F4A7C15 + step + 1) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)
