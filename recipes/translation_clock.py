"""How long translators take: the timing that fixes their steps, and the clock that runs while they are trained."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import torch

from kinfolk.api.experiment import Callbacks
from kinfolk.api.train_translator import train_translator
from kinfolk.files import read_object, write_json
from kinfolk.training.runs import Progress

THREADS = 2  # that steps are timed on


class PlannedError(Exception):
    """Ends a run that was begun for its plan only."""


def steps_in(minutes: float, arguments: dict[str, Any]) -> int:
    """How many steps a run of so many minutes plans here and now; nothing is left of it."""
    planned: list[int] = []

    def enough(seed: int, progress: Progress) -> None:
        planned.append(progress.total)
        raise PlannedError

    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        with TemporaryDirectory() as folder:
            callbacks = Callbacks(step=enough)
            train_translator(Path(folder) / "run", **arguments, minutes=minutes, device="cpu", callbacks=callbacks)
    except PlannedError:
        return planned[0]
    finally:
        torch.set_num_threads(threads)
    raise AssertionError("a run has at least one step")


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
