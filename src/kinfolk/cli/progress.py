"""How far a long command is: a bar with rate and time left on a terminal, one closing line everywhere.

Off a terminal nothing moves: a log gets the closing line only.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kinfolk.cli.output import log_line


@dataclass
class Work:
    """Texts done so far, and since when."""

    done: int = 0
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    @property
    def rate(self) -> str:
        return f"{self.done / max(self.seconds, 1e-9):,.0f} texts/s"

    def add(self, count: int) -> None:
        """Note that `count` more texts are done."""
        self.done += count

    def close(self, width: int) -> None:
        """The one line at the end."""
        log_line(f"{self.done:,} texts, {width:,} numbers each, {self.seconds:.1f} s, {self.rate}")


@contextlib.contextmanager
def working(total: int | None) -> Iterator[tuple[Work, Callable[[int], None]]]:
    """The work, and what to call when texts are done; `total` is None where the end is not known."""
    work = Work()
    if not sys.stderr.isatty():
        yield work, work.add
        return
    with _bar() as bar:
        task = bar.add_task("", total=total, told="")

        def report(count: int) -> None:
            work.add(count)
            bar.update(task, advance=count, told=work.rate)

        yield work, report


def _bar() -> Any:
    """How much is done, what there is to tell, and the time left; it goes when the work ends."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextlib.contextmanager
def training() -> Iterator[Callable[[int, Any], None]]:
    """What to call after each training step: a bar with the loss on a terminal, a line per evaluation everywhere."""
    if not sys.stderr.isatty():
        yield tell_evaluation
        return
    with _bar() as bar:
        tasks: dict[int, Any] = {}

        def step(seed: int, progress: Any) -> None:
            if seed not in tasks:
                tasks[seed] = bar.add_task("", total=progress.total, completed=progress.step - 1, told="")
            bar.update(tasks[seed], advance=1, told=f"loss {progress.loss:.3f}")
            tell_evaluation(seed, progress)

        yield step


def tell_evaluation(seed: int, progress: Any) -> None:
    """`step 40 of 160, loss 0.412, accuracy 0.871 …`, when there was one."""
    if progress.metrics is not None:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in progress.metrics.items())
        log_line(f"seed {seed}, step {progress.step:,} of {progress.total:,}, loss {progress.loss:.3f}, {figures}")
