"""One trainer for every objective, indexed by step.

The batch and the randomness of step k are a pure function of (seed, k). So a run can be killed anywhere and go on from
its last checkpoint to the same weights, bit for bit (same machine, same number of threads and processes).
"""

from __future__ import annotations

import copy
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from statistics import median, median_low
from types import FrameType
from typing import Any

import torch
from torch.distributed import ReduceOp

from kinfolk.data.batching import BatchSampler, Plan
from kinfolk.errors import FolderError, StopSignalError, TrainingError, shorten_list
from kinfolk.machine import HeapTrimmer
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.training.budget import (
    FORWARD,
    REHEARSAL,
    SECONDS_BETWEEN_SAVES,
    WRITTEN_PER_SECOND,
    Budget,
    Clock,
    Costs,
    TimeLimit,
    check_plan,
    typical,
)
from kinfolk.training.distributed import load_weights, world
from kinfolk.training.runs import NO_CALLBACKS, Callbacks, Progress, Run, Snapshot
from kinfolk.training.settings import Horizon, TrainSettings, rate_factor
from kinfolk.training.step import Losses, TrainStep, restore_tables, train_only_rows

REHEARSED_AMONG = 40  # steps, of which those of typical length are rehearsed
STRETCH = 10  # batches by tokens are cut from so many that are sorted by length
SHARES = 0.125, 0.25, 0.5, 1.0  # of a batch, where smaller ones make more steps
COUNTERS = ("best", "best_step", "without_improvement")  # of a checkpoint


Evaluate = Callable[[Model], tuple[float, dict[str, float]]]  # selection score (higher is better), metrics


class Trainer:
    """Trains `model` on `samples` under `objective`, in the folder of `run`; the same in every process of a run.
    Samples that are no plan of their own are shuffled. `describe_row` names an example's row in messages; only process
    0 calls `callbacks`. With a `limit`, as many steps are made as fit into its seconds."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        samples: Sequence[Sample],
        settings: TrainSettings,
        run: Run,
        evaluate: Evaluate,
        callbacks: Callbacks = NO_CALLBACKS,
        describe_row: Callable[[int], str] = "example {}".format,
        limit: TimeLimit | None = None,
    ):
        self.model, self.objective, self.samples, self.settings = model, objective, samples, settings
        self.run, self.evaluate, self.callbacks, self.limit = run, evaluate, callbacks, limit
        self.describe_row, self.world = describe_row, world()
        self.share = 1.0  # of the batch size
        self.plan = self._sampler()
        if settings.optimization.freeze == 0:
            train_only_rows(model, (sample.ids for sample in samples))
        self.train_step = TrainStep(model, objective, settings, self.world)
        self.top = max(model.layer_ids().values())
        self.step = 0
        self.horizon = Horizon(((0, 1, 1),))
        self.budget: Budget | None = None  # of process 0, while the clock decides how long the run is
        self.best: float | None = None
        self.best_step: int | None = None
        self.without_improvement = 0  # evaluations since the best
        self.last_evaluation: tuple[int, float | None] = (0, None)  # its step and selection score
        self.saved = 0.0  # when the last checkpoint was written

    def train(self) -> list[str]:
        """Run to the end, or resume from the last checkpoint; notes on damaged checkpoints."""
        notes = self._resume()
        notes += [f"resumed after step {self.step:,}"] if self.step else []
        self.saved, heap = time.monotonic(), HeapTrimmer()
        with stopping() as signals:
            while self.step < self.total and self.without_improvement < (self.settings.patience or math.inf):
                losses = self._timed("step", partial(self._one_step, self.step))
                self.step += 1
                due = self._is_evaluated(self.step)
                improved, metrics = self._timed("evaluation", self._evaluate) if due else (False, None)
                self._log(losses, metrics)
                # The signal that any of the processes received, the time since the last checkpoint, whether to look.
                here = [max(signals, default=0), time.monotonic() - self.saved, self._wants_look(due)]
                received, age, look = self.world.all_reduce(here, ReduceOp.MAX)
                if due or received or age > SECONDS_BETWEEN_SAVES:
                    self._timed("save", partial(self._save, improved))
                if received:
                    raise StopSignalError(int(received))
                if look:
                    self._use(None if self.budget is None else self.budget.look(self.horizon, self.step))
                heap.step()
        if self.limit is not None:
            self.world.on_main(lambda: None if self.budget is None else self._keep_plan())
        return notes

    @property
    def total(self) -> int:
        return self.horizon.total

    def _timed(self, what: str, action: Callable[[], Any]) -> Any:
        if self.budget is None:
            return action()
        start = self.budget.used
        result = action()
        self.budget.took(what, self.budget.used - start)
        return result

    def complete(self) -> tuple[list[str], float | None]:
        """As `train`; then the model has its best weights. Notes, and seconds unless an earlier process did a part."""
        begun, start = bool(self.run.steps()), time.monotonic()
        notes = self.train()
        seconds = None if begun else time.monotonic() - start
        if self.step < self.total:
            notes.append(f"stopped at step {self.step:,} of {self.total:,}, early: no improvement")
        notes += self.load_best()
        if self.settings.weight_averaging and self.step <= self._averaged_from(self.horizon):
            notes.append(f"stopped at step {self.step:,}, before the part of the run whose weights are averaged")
        return notes, seconds

    def _save(self, improved: bool = False) -> None:
        step, score = self.last_evaluation
        counters = {name: getattr(self, name) for name in COUNTERS}
        counters["selection_score"] = score if step == self.step else None
        counters["seconds"] = None if self.budget is None else self.budget.used
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
        progress = Progress(self.step, self.total, losses.total, epoch, metrics, rate, parts)
        self.callbacks.step(self.settings.seed, progress)

    def _one_step(self, step: int) -> Losses:
        torch.manual_seed(_mixed(self.settings.seed, step * self.world.size + self.world.rank))
        # Gradual unfreezing: the heads first, then layer by layer downwards.
        horizon = self.horizon.known(step)
        position, total = horizon.position(step), horizon.total
        span = self.settings.gradual_unfreezing * total
        self.train_step.unfreeze(0 if span == 0 else max(0, self.top - int(position / span * (self.top + 1))))
        self.train_step.schedule(position, total)
        factor = rate_factor(self.settings.schedule, position, total, round(self.settings.warmup * total))
        losses = self.train_step.step(self._batches(step), factor)
        if losses is None:
            raise self._not_finite(step)
        averaged = step - self._averaged_from(horizon)
        if self.settings.weight_averaging and averaged >= 0:
            self.train_step.average(averaged)
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

    def _averaged_from(self, horizon: Horizon) -> int:
        return horizon.first_step(1 - self.settings.weight_averaging)

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

    def _is_evaluated(self, step: int) -> bool:
        every = self.settings.evaluate_every
        if every is not None:
            return step % every == 0 or step >= self.total
        return self.horizon.is_evaluated(step)

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
        if snapshot is not None:
            self.train_step.restore(snapshot.tensors)
            self.step = snapshot.step
            for name in COUNTERS:
                setattr(self, name, snapshot.counters[name])
        self.world.on_main(lambda: self.run.rewind(self.step, self.best_step))
        if self.limit is None:
            for share in reversed(self._shares()):
                self._take(share)
                steps = self.settings.steps or self._steps_of_epochs()
                if steps >= self.settings.min_steps:
                    break
            self.horizon = Horizon(((0, steps, min(self.settings.evaluations, steps)),))
            if self.share < 1 and self.world.is_main:
                self.callbacks.plan(f"plan        {steps:,} steps, {self._batch_size()}")
        else:
            self._plan(self.limit, 0.0 if snapshot is None else snapshot.counters["seconds"])
        return notes + [f"{self._batch_size()}, so that there are more steps"] * (self.share < 1)

    def _steps_of_epochs(self) -> int:
        return max(1, self.plan.steps(self.settings.epochs) // self.settings.gradient_accumulation)

    def _sampler(self, share: float = 1.0) -> Plan:
        """Batches of this share of their size."""
        if isinstance(self.samples, Plan):
            return self.samples
        tokens, stretch = self.settings.batch_tokens, STRETCH if self.objective.sorts_by_length else 1
        sizes = _part(share, self.settings.batch_size), None if tokens is None else _part(share, tokens)
        return BatchSampler(list(map(len, self.samples)), self.settings.seed, *sizes, stretch)

    def _batch_size(self) -> str:
        if isinstance(self.samples, Plan):
            return ""
        if self.settings.batch_tokens is None:
            return f"batches of {_part(self.share, self.settings.batch_size):,} examples"
        return f"batches of {_part(self.share, self.settings.batch_tokens):,} tokens"

    def _shares(self) -> tuple[float, ...]:
        """Of a batch, from the smallest that may be taken."""
        fixed = not self.settings.min_steps or self.settings.steps is not None or isinstance(self.samples, Plan)
        return (1.0,) if fixed else SHARES

    def _take(self, share: float) -> None:
        self.share, self.plan = share, self._sampler(share)

    def _plan(self, limit: TimeLimit, used: float | None) -> None:
        """The plans that are written down already, or a first one; process 0 decides."""
        written = self.world.broadcast(self.world.on_main(self._written_plan)) or {}
        limit.clock.earlier += max(used or 0.0, written.get("seconds", 0.0))
        share, costs = (written["share"], Costs(**written["costs"])) if written else self._rehearsed(limit)
        self._take(share)
        if self.world.is_main and not written.get("ended"):
            self.budget = self._budget(limit, costs)
        if written:
            self.horizon = Horizon(tuple(map(tuple, written["plans"])))
            if self.budget is not None and self.best_step is not None:
                self.budget.least = 1  # an evaluation was timed already
            return
        self._use(None if self.budget is None else self.budget.first())
        if self.budget is not None:
            self.callbacks.plan(self.budget.describe(self.horizon, self._batch_size()))

    def _budget(self, limit: TimeLimit, costs: Costs) -> Budget:
        return Budget(limit, self.settings.evaluations, self.settings.evaluate_every, costs)

    def _written_plan(self) -> dict[str, Any]:
        plan = check_plan(self.run.plan(), self.run.folder)
        if self.step and not plan:
            raise FolderError(f"{self.run.folder}: plan.json is gone, but there are checkpoints; choose a new folder")
        return plan

    def _use(self, horizon: Horizon | None) -> None:
        """The plans of process 0 everywhere; new ones are written down first."""
        plans = self.world.broadcast(None if horizon is None else horizon.plans)
        known, self.horizon = self.horizon, Horizon(tuple(map(tuple, plans)))
        if self.horizon != known:
            self.world.on_main(self._keep_plan)

    def _keep_plan(self) -> None:
        assert self.budget is not None
        plan = {"plans": self.horizon.plans, "share": self.share, "costs": asdict(self.budget.costs)}
        self.run.keep_plan(plan | {"seconds": self.budget.used, "ended": self.step >= self.total})

    def _wants_look(self, evaluated: bool) -> float:
        replayed = self.step <= self.horizon.plans[-1][0]  # the last plan was made here, or is still to come
        return float(self.budget is not None and not replayed and (evaluated or self.budget.due))

    def _rehearsed(self, limit: TimeLimit) -> tuple[float, Costs]:
        """The share of a batch to take and what steps cost then, from steps on a copy that is thrown away. Batches grow
        as long as enough of them fit; what is not timed is taken for as much dearer as it is larger."""
        train_step = TrainStep(copy.deepcopy(self.model), self.objective, self.settings, self.world)
        train_step.unfreeze(0)
        train_step.schedule(1, 2)  # the middle of the run
        shares, start, chosen = self._shares(), limit.clock.seconds, list[Any]()
        for count, share in enumerate(shares, 1):
            until = start + REHEARSAL * limit.seconds * count / len(shares)
            self._take(share)
            step, tokens = self._timed_steps(train_step, limit.clock, until)
            save = Snapshot(0, train_step.state(), {}).size / WRITTEN_PER_SECOND
            costs = Costs(step, FORWARD * step * limit.evaluated / tokens, save, limit.finish, limit.rest)
            late = limit.clock.seconds + step > until
            for larger in shares[count - 1 :] if late else (share,):
                scaled = replace(costs, step=step * larger / share)
                enough = self._budget(limit, scaled).steps >= self.settings.min_steps
                chosen = [larger, asdict(scaled)] if enough or not chosen else chosen
            chosen, ended = self.world.broadcast([chosen, late or not enough])
            if ended:
                break
        return chosen[0], Costs(**chosen[1])

    def _timed_steps(self, train_step: TrainStep, clock: Clock, until: float) -> tuple[float, float]:
        """Seconds of a step, and its tokens; steps of typical length come first, and the first one only warms up."""
        lengths = [sum(map(len, chain(*self._batches(step)))) for step in range(REHEARSED_AMONG)]
        seconds = list[float]()
        for index in typical(lengths):
            begun = clock.seconds
            train_step.step(self._batches(index), factor=0.0)
            seconds.append(clock.seconds - begun)
            if self.world.broadcast(len(seconds) > 1 and clock.seconds + seconds[-1] > until):
                break
        return median_low(seconds[1:]), max(1.0, median(lengths))


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


def _part(share: float, whole: int) -> int:
    return max(1, round(share * whole))


def _mixed(seed: int, step: int) -> int:
    """A different stream of random numbers for every (seed, step): the finaliser of SplitMix64."""
    value = (seed * 0x9E3779B97F4A7C15 + step + 1) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 31)) & (2**63 - 1)
