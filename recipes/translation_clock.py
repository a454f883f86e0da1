"""How long translators take: the timing that fixes their steps, and the clock that runs while they are trained."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NoReturn, Self
from unittest.mock import patch

import torch

from kinfolk.files import read_object, write_json
from kinfolk.jobs import translate
from kinfolk.jobs.train_translator import train_translator
from kinfolk.training import trainer
from kinfolk.training.timing import Costs
from kinfolk.training.trainer import Progress

THREADS = 2  # that steps are timed on
TIMED_STEPS = 24  # four times as many as a run with `minutes` times: these steps hold for ever


class TimedError(Exception):
    """Ends a run that was begun for its timing only."""


def timed(arguments: dict[str, Any]) -> Costs:
    """Seconds of a step, an evaluation and a checkpoint, by the timing that the trainer does when minutes are given."""
    found: list[Costs] = []

    def caught(seconds: float, costs: Costs, evaluations: int) -> NoReturn:
        found.append(costs)
        raise TimedError

    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    with (
        TemporaryDirectory() as folder,
        patch.multiple(trainer, steps_that_fit=caught, TIMED_STEPS=TIMED_STEPS),
        # A fresh model does not end its texts; one that has learned writes about as much as it reads.
        patch.multiple(translate, LONGER=1, MORE=2),
        suppress(TimedError),
    ):
        train_translator(Path(folder) / "run", **arguments, minutes=1.0, device="cpu")
    torch.set_num_threads(threads)
    return found[0]


class Clock:
    """Seconds of a run, over all processes that worked at it; kept in its folder, a file that is written now and then.

    Steps are counted without those that paid for an evaluation or for the checkpoint after one.
    """

    def __init__(self, path: Path):
        kept = read_object(path) if path.exists() else {}
        self.path = path
        self.seconds: float = kept.get("seconds", 0.0)
        self.steps: int = kept.get("steps", 0)
        self.step_seconds: float = kept.get("step_seconds", 0.0)
        self.threads: int = kept.get("threads", torch.get_num_threads())
        self._kept = self._before = time.monotonic()
        self._plain = False  # was the step before this one without an evaluation?

    def __enter__(self) -> Self:
        self.threads = torch.get_num_threads()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path.parent.exists():  # not where nothing could begin
            self.keep()

    def keep(self) -> None:
        """Write down the time so far."""
        now = time.monotonic()
        self.seconds, self._kept = self.seconds + now - self._kept, now
        kept = {"seconds": self.seconds, "steps": self.steps, "step_seconds": self.step_seconds}
        write_json(self.path, kept | {"threads": self.threads})

    def watch(self, progress: Progress) -> None:
        """To be called after each step."""
        now, plain = time.monotonic(), progress.metrics is None
        if plain and self._plain:
            self.steps += 1
            self.step_seconds += now - self._before
        if not plain:
            self.keep()
        self._before, self._plain = now, plain

    @property
    def minutes(self) -> float:
        return self.seconds / 60

    @property
    def steps_per_second(self) -> float:
        """0 where no step was timed."""
        return self.steps / self.step_seconds if self.step_seconds else 0.0
