"""The learning rate over a run, as a factor of its peak: f(step) with step from 0 to total - 1.

constant             1 after the warm-up
linear               falls to 0 in a straight line                      (BERT)
cosine               falls to 0 along half a cosine
inverse_sqrt         sqrt(warmup / step)                                (Transformer)
one_cycle            rises for 30 % of the run, falls along a cosine    (Smith 2018)
slanted_triangular   rises for 10 %, falls to 1/32                      (ULMFiT)
"""

from __future__ import annotations

import math
from collections.abc import Callable

Shape = Callable[[int, int, int], float]  # step after the warm-up, steps after it, warm-up steps


def _inverse_sqrt(step: int, rest: int, warmup: int) -> float:
    start = max(warmup, 1)
    return math.sqrt(start / (start + step))


AFTER_WARMUP: dict[str, Shape] = {
    "constant": lambda step, rest, warmup: 1.0,
    "linear": lambda step, rest, warmup: 1.0 - step / rest,
    "cosine": lambda step, rest, warmup: 0.5 * (1.0 + math.cos(math.pi * step / rest)),
    "inverse_sqrt": _inverse_sqrt,
}
SHARES = {"one_cycle": 0.3, "slanted_triangular": 0.1}  # of the run, spent rising
SCHEDULES = (*AFTER_WARMUP, *SHARES)
ONE_CYCLE_START, SLANTED_RATIO = 25.0, 32.0


def rate_factor(schedule: str, step: int, total: int, warmup: int) -> float:
    """The factor for one step.

    >>> [round(rate_factor("linear", step, total=6, warmup=2), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if schedule in SHARES:
        rising = max(1, round(SHARES[schedule] * total))
        return _one_cycle(step, total, rising) if schedule == "one_cycle" else _slanted(step, total, rising)
    if step < warmup:
        return (step + 1) / warmup
    return AFTER_WARMUP[schedule](step - warmup, max(total - warmup, 1), warmup)


def _one_cycle(step: int, total: int, rising: int) -> float:
    if step < rising:
        share = 0.5 * (1.0 - math.cos(math.pi * (step + 1) / rising))
        return 1 / ONE_CYCLE_START + (1 - 1 / ONE_CYCLE_START) * share
    return 0.5 * (1.0 + math.cos(math.pi * (step - rising + 1) / max(total - rising, 1)))


def _slanted(step: int, total: int, rising: int) -> float:
    share = (step + 1) / rising if step < rising else 1 - (step + 1 - rising) / max(total - rising, 1)
    return (1 + share * (SLANTED_RATIO - 1)) / SLANTED_RATIO
