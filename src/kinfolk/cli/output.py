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
    print(json.dumps(content, ensure_ascii=False, indent=2))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns below their names: numbers to the right, text to the left; wide letters count twice."""
    from rich.cells import cell_len, set_cell_size

    body, columns = list(rows), []
    for index, name in enumerate(header):
        values = [row[index] for row in body]
        cells = [name, *map(visible, values)]
        width = max(map(cell_len, cells))
        if body and all(isinstance(value, int | float | None) for value in values):
            columns.append([" " * (width - cell_len(cell)) + cell for cell in cells])
        else:
            columns.append([set_cell_size(cell, width) for cell in cells])
    for line in zip(*columns, strict=True):
        print("  ".join(line).rstrip())


def visible(cell: object) -> str:
    """A value as it can stand in a line: four decimals, control characters escaped."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(cell))


class Work:
    """Texts done so far, and since when; `bar` is rich's, on a terminal."""

    def __init__(self, bar: Any):
        self.bar, self.done, self.started = bar, 0, time.perf_counter()

    def add(self, count: int) -> None:
        self.done += count
        if self.bar is not None:
            self.bar.update(0, advance=count, message=self._rates().partition(", ")[2])

    def _rates(self) -> str:
        seconds = time.perf_counter() - self.started
        return f"{seconds:.1f} s, {self.done / max(seconds, 1e-9):,.0f} texts/s"

    def close(self, *facts: str) -> None:
        """The one line at the end: `3 texts, 384 dimensions, 0.1 s, 30 texts/s`."""
        log_line(f"{self.done:,} {', '.join(facts)}, {self._rates()}")


@contextlib.contextmanager
def working(total: int | None) -> Iterator[Work]:
    """The work, whose `add` is called when texts are done; `total` is None where the end is not known."""
    with _bar() as bar:
        if bar is not None:
            bar.add_task("", total=total, message="")
        yield Work(bar)


@contextlib.contextmanager
def training_progress() -> Iterator[Callable[[int, Any], None]]:
    """What to call after each training step: a bar with the loss on a terminal, a line per evaluation everywhere."""
    with _bar() as bar:
        tasks: dict[int, Any] = {}

        def step(seed: int, progress: Any) -> None:
            if bar is not None:
                if seed not in tasks:
                    tasks[seed] = bar.add_task("", total=progress.total, completed=progress.step - 1, message="")
                bar.update(tasks[seed], advance=1, total=progress.total, message=f"loss {progress.loss:.3f}")
            if progress.metrics is not None:
                log_line(f"seed {seed}, {progress}")

        yield step


def run_training(train: Callable[..., Any], /, **arguments: Any) -> Any:
    """The result of a training with progress on stderr; None in all but one of several processes under torchrun."""
    from kinfolk.training.distributed import world
    from kinfolk.training.runs import Callbacks

    is_main = world().is_main
    with training_progress() if is_main else contextlib.nullcontext(lambda seed, progress: None) as step:
        result = train(**arguments, callbacks=Callbacks(show_data, step, plan=log_line))
    return result if is_main else None


def show_data(summary: Any, initialized: Sequence[str] = ()) -> None:
    log_line(str(summary))
    if initialized:
        log_line(f"newly initialised parameters: {', '.join(initialized)}")


def show_result(result: Any, json: bool, header: Sequence[str], rows: Sequence[Sequence[Any]], **more: Any) -> None:
    """Notes, then metrics on the dev set as a table or, with `more`, as JSON; and where the model is."""
    for note in result.notes:
        log_line(f"note: {note}")
    if json:
        print_json({"folder": str(result.folder), "metrics": dict(result.metrics), **more})
        return
    if rows:
        print_table(header, rows)
    log_line(f"the model is in {result.folder / 'model'}, its report in {result.folder / 'report.md'}")


def _bar() -> Any:
    """On a terminal how much is done, a message, and the time left; it goes when the work ends. Elsewhere None."""
    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[message]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
