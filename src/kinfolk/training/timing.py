"""How many steps fit into the minutes that a user gives: everything is timed once, from then on only steps count."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median

SECONDS_BETWEEN_SAVES = 300  # besides those after evaluations: no crash costs more


@dataclass(frozen=True)
class Costs:
    """Seconds that a step, an evaluation and a checkpoint take."""

    step: float
    evaluation: float
    save: float

    def run(self, steps: int, evaluations: int) -> float:
        """Seconds of a run: steps, evaluations and checkpoints, and the last evaluation of the model that is kept."""
        evaluated = min(evaluations, steps)
        between = steps * self.step // SECONDS_BETWEEN_SAVES
        return steps * self.step + (evaluated + 1) * self.evaluation + (evaluated + between) * self.save


def steps_that_fit(seconds: float, costs: Costs, evaluations: int) -> int:
    """The largest number of steps, at least one, whose run takes no longer.

    >>> steps_that_fit(100, Costs(step=1, evaluation=5, save=1), evaluations=4)
    71
    """
    upper = int(seconds / costs.step) + 1 if seconds > 0 else 1
    return max(1, bisect_right(range(1, upper + 1), seconds, key=lambda steps: costs.run(steps, evaluations)))


def typical(tokens: Sequence[int], count: int) -> list[int]:
    """The indices of those nearest the mean: steps differ by their length, and a short one says little of the run."""
    middle = mean(tokens)
    return sorted(range(len(tokens)), key=lambda index: abs(tokens[index] - middle))[:count]


def median_seconds(actions: Sequence[Callable[[], object]]) -> float:
    """The median time of some actions."""
    seconds = []
    for action in actions:
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return median(seconds)
