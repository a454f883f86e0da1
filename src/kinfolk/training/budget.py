"""How long a run is: a number of steps, or minutes, within which the number of steps is planned and planned again.

Minutes are those of the clock, from the first read of the data to the saved model. The first plan follows from a few
steps that are rehearsed; while the run goes on, what steps, evaluations and checkpoints really take corrects it. Each
plan is written down before it is used, so a run that is killed replays its plans and comes to the same weights.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from kinfolk.errors import FolderError
from kinfolk.training.settings import Horizon

SECONDS_BETWEEN_SAVES = 300  # besides those after evaluations: no crash costs more
REHEARSAL = 0.05  # of the minutes, at most; but two steps
EVALUATING = 0.1  # of the minutes, at most; but one evaluation at least
LOOK_EVERY = 1 / 30  # of the minutes: how often the plan is looked at
WORTH_A_PLAN = 0.005  # of the minutes: smaller corrections wait for the next look
APART = 0.5  # of a part of the run, at least: how soon an evaluation may follow a new plan
FORWARD = 1 / 3  # of the time of a training step: its forward pass
FEW_STEPS = 30  # with fewer a run learns little, whatever the model
WRITTEN_PER_SECOND = 2e8  # bytes of a checkpoint, before one was timed


class Clock:
    """Seconds that a run has taken, with those of processes that were killed, up to their last plan or checkpoint."""

    def __init__(self) -> None:
        self._start, self.earlier = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start + self.earlier


@dataclass(frozen=True)
class Costs:
    """Seconds of a step, an evaluation, a checkpoint, and of what follows the last step: as many evaluations as
    `finish`, and `rest`."""

    step: float
    evaluation: float
    save: float
    finish: float = 1.0
    rest: float = 0.0

    def run(self, steps: int, evaluations: int) -> float:
        """Seconds of a run, or of what is left of one."""
        evaluated = min(evaluations, steps)
        between = steps * self.step // SECONDS_BETWEEN_SAVES
        finishing = self.finish * self.evaluation + self.rest
        return steps * self.step + evaluated * self.evaluation + (evaluated + between) * self.save + finishing

    def evaluations_that_pay(self, seconds: float, wanted: int, least: int) -> int:
        """As many as are wanted, but no more than a tenth of the time allows."""
        return min(wanted, max(least, int(EVALUATING * seconds / max(self.evaluation + self.save, 1e-9))))


def steps_that_fit(seconds: float, costs: Costs, evaluations: int) -> int:
    """The largest number of steps, at least one, whose run takes no longer."""
    upper = int(seconds / costs.step) + 1 if seconds > 0 else 1
    return max(1, bisect_right(range(1, upper + 1), seconds, key=lambda steps: costs.run(steps, evaluations)))


@dataclass(frozen=True)
class TimeLimit:
    """Seconds that a run may take, since `began` on a clock that runs already. What follows the last step takes as long
    as `finish` evaluations and `rest` seconds; one evaluation reads `evaluated` tokens, which says what it takes until
    one was timed."""

    seconds: float
    clock: Clock
    began: float = 0.0
    finish: float = 1.0
    rest: float = 0.0
    evaluated: float = 0.0


@dataclass
class Budget:
    """What a run learns about its own costs, and the plans that follow."""

    limit: TimeLimit
    evaluations: int
    every: int | None  # steps between evaluations, where the user fixed them
    costs: Costs
    looked: float = field(init=False)  # after how many seconds of the run
    _steps: list[float] = field(default_factory=list)  # seconds of each since
    least: int = 2  # evaluations: one half-way that is timed, or the last one could be a surprise; then one

    def __post_init__(self) -> None:
        self.looked = self.used

    @property
    def used(self) -> float:
        return self.limit.clock.seconds - self.limit.began

    @property
    def due(self) -> bool:
        return self.used - self.looked > LOOK_EVERY * self.limit.seconds

    def took(self, what: str, seconds: float) -> None:
        """Learn what a step, an evaluation or a checkpoint took."""
        if what == "step":
            self._steps.append(seconds)
        else:
            self._learn_steps()
            self.costs = replace(self.costs, **{what: seconds})
            self.least = 1 if what == "evaluation" else self.least

    @property
    def steps(self) -> int:
        """How many fit into the time that is left."""
        return self._fitting(self.limit.seconds - self.used, self.evaluations, self.costs)[0]

    def first(self) -> Horizon:
        """The first plan. It has two steps at least: after the first of them it is known whether there is time for
        more."""
        steps, evaluations = self._fitting(self.limit.seconds - self.used, self.evaluations, self.costs)
        return Horizon(((0, max(2, steps), evaluations),))

    def describe(self, horizon: Horizon, batch: str) -> str:
        """A first plan in words; `batch` says of what size batches are."""
        left = max(0.0, self.limit.seconds - self.used)
        plan = (
            f"plan        {horizon.total:,} steps of {self.costs.step:.2g} s in the {left:,.0f} seconds that are left"
        )
        few = "; warning: too few to learn much: give more minutes, or choose a smaller model"
        return plan + f", {batch}" * bool(batch) + few * (horizon.total < FEW_STEPS)

    def look(self, horizon: Horizon, step: int) -> Horizon:
        """The same plan, or a new one from this step on where the time that is left fits another number of steps."""
        self.looked = self.used
        self._learn_steps()
        if step >= horizon.total:
            return horizon
        wanted, progress = self.evaluations, horizon.progress(step)
        if self.every is None:
            wanted = self.costs.evaluations_that_pay(self.limit.seconds, wanted, self.least)
        while wanted not in (1, horizon.evaluations) and horizon.parts(step, wanted) + 1 - progress * wanted < APART:
            wanted -= 1  # the last one, of the plan before, is only just over
        ahead = wanted - horizon.parts(step, wanted)
        steps, _ = self._fitting(self.limit.seconds - self.looked, ahead, self.costs)
        change = abs(step + steps - horizon.total) * self.costs.step
        if change < WORTH_A_PLAN * self.limit.seconds and wanted == horizon.evaluations:
            return horizon
        return horizon.planned_anew(step, step + steps, wanted)

    def _learn_steps(self) -> None:
        if self._steps:
            # What was slow for a moment need not stay so, unless little time is left for it to change. No machine is
            # faster for a moment: it was slow when it was timed before.
            seconds = mean(self._steps)
            recent = min(1.0, max(0.5, self.used / self.limit.seconds)) if 2 * seconds > self.costs.step else 1.0
            step_seconds = (1 - recent) * self.costs.step + recent * seconds
            slower = step_seconds / self.costs.step  # so will be what was not timed since
            self.costs = replace(self.costs, step=step_seconds, evaluation=slower * self.costs.evaluation)
            self._steps.clear()

    def _fitting(self, seconds: float, evaluations: int, costs: Costs) -> tuple[int, int]:
        if self.every is not None:
            spread = costs.step + (costs.evaluation + costs.save) / self.every
            return steps_that_fit(seconds, replace(costs, step=spread), 1), evaluations
        pay = costs.evaluations_that_pay(self.limit.seconds, evaluations, min(self.least, evaluations))
        return steps_that_fit(seconds, costs, pay), pay


def check_plan(stored: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What plan.json says, if a run can follow it: nothing, or plans that each begin before the one before ends."""
    if not stored:
        return stored
    try:
        plans, share, seconds = stored["plans"], stored["share"], [stored["seconds"], *stored["costs"].values()]
        ends = [0, *(total for _, total, _ in plans)]
        whole = all(type(number) is int for plan in plans for number in plan)
        ordered = all(0 <= start < total and evaluations > 0 for start, total, evaluations in plans)
        nested = all(start < end for (start, _, _), end in zip(plans[1:], ends[1:], strict=False))
        rising = [start for start, _, _ in plans] == sorted({start for start, _, _ in plans})
        timed = all(type(each) in (int, float) and 0 <= each < math.inf for each in seconds)
        possible = whole and ordered and nested and rising and timed and plans[0][0] == 0 and 0 < share <= 1
        if possible and Costs(**stored["costs"]).step > 0:
            return stored
    except (TypeError, ValueError, LookupError, AttributeError):
        pass
    raise FolderError(f"{folder / 'plan.json'}: not the plan of a run; choose a new folder")


def typical(tokens: Sequence[int]) -> list[int]:
    """Indices from those nearest the mean on: steps differ by their length, and a short one says little of the run."""
    middle = mean(tokens)
    return sorted(range(len(tokens)), key=lambda index: abs(tokens[index] - middle))
