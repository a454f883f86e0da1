"""Results on stdout, as a table for a reader or as JSON for a script; everything else, progress too, on stderr.

On a terminal long work has a bar with rate and time left; elsewhere nothing moves, and a log gets whole lines only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO


def log_line(line: str) -> None:
    """One line that is not a result; where stderr is closed or full, the exit code remains."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Nobody can read this any more: what is left in it must not trouble Python when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(content: Any) -> None:
    """The result for a script, one document."""
    print(json.dumps(content, ensure_ascii=False, indent=2))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns below their names: numbers to the right, text to the left; wide letters count twice."""
    from rich.cells import cell_len, set_cell_size

    body = [list(row) for row in rows]
    lines = [list(header), *([visible(cell) for cell in row] for row in body)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    numeric = [all(isinstance(cell, int | float | None) for cell in column) for column in zip(*body, strict=True)]
    numeric = numeric or [False] * len(header)
    for line in lines:
        cells = [
            " " * (width - cell_len(cell)) + cell if right else set_cell_size(cell, width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(cells).rstrip())


def visible(cell: object) -> str:
    """A value as it can stand in a line: four decimals, control characters escaped."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}"
    text = str(cell)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


@dataclass
class Work:
    """Texts done so far, and since when."""

    done: int = 0
    started: float = field(default_factory=time.perf_counter)

    @property
    def rate(self) -> str:
        return f"{self.done / max(time.perf_counter() - self.started, 1e-9):,.0f} texts/s"

    def add(self, count: int) -> None:
        """Note that `count` more texts are done."""
        self.done += count

    def close(self, *facts: str) -> None:
        """The one line at the end: `3 texts, 384 dimensions, 0.1 s, 30 texts/s`."""
        log_line(f"{self.done:,} {', '.join(facts)}, {time.perf_counter() - self.started:.1f} s, {self.rate}")


@contextlib.contextmanager
def working(total: int | None) -> Iterator[tuple[Work, Callable[[int], None]]]:
    """The work, and what to call when texts are done; `total` is None where the end is not known."""
    work = Work()
    if not sys.stderr.isatty():
        yield work, work.add
        return
    with _bar() as bar:
        task = bar.add_task("", total=total, message="")

        def report(count: int) -> None:
            work.add(count)
            bar.update(task, advance=count, message=work.rate)

        yield work, report


@contextlib.contextmanager
def training_progress() -> Iterator[Callable[[int, Any], None]]:
    """What to call after each training step: a bar with the loss on a terminal, a line per evaluation everywhere."""
    if not sys.stderr.isatty():
        yield log_evaluation
        return
    with _bar() as bar:
        tasks: dict[int, Any] = {}

        def step(seed: int, progress: Any) -> None:
            if seed not in tasks:
                tasks[seed] = bar.add_task("", total=progress.total, completed=progress.step - 1, message="")
            bar.update(tasks[seed], advance=1, message=f"loss {progress.loss:.3f}")
            log_evaluation(seed, progress)

        yield step


def log_evaluation(seed: int, progress: Any) -> None:
    """`seed 0, step 40 of 160, loss 0.412, dev accuracy 0.871 …`, when there was an evaluation."""
    if progress.metrics is not None:
        metrics = "".join(f", dev {name} {value:.4f}" for name, value in progress.metrics.items())
        log_line(f"seed {seed}, step {progress.step:,} of {progress.total:,}, loss {progress.loss:.3f}{metrics}")


def _bar() -> Any:
    """How much is done, a message, and the time left; it goes when the work ends."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[message]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
