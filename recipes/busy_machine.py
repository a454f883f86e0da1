"""How well `--minutes` is kept while another process takes half the machine: fine-tuning and a translator.

`python recipes/busy_machine.py` makes the runs that are not noted yet below runs/busy-machine (one that was stopped
begins again), notes the figures in docs/results/busy-machine.json and writes docs/results/busy-machine.md; names such
as `finetune-3` choose. Nothing but its own other process should run meanwhile. `--minutes 0.1` is a try of so many
minutes each, below runs/try-0.1, and nothing in docs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import few_labels
import structured_pairs
from common import Course, RecipePaths, environment, start_by_minutes, table, write_result

import kinfolk
from kinfolk.api.experiment import Callbacks
from kinfolk.cli.output import training_progress

KINDS = {
    "finetune": "`finetune` of all-MiniLM-L6-v2 on 1,000 sentences of SST-2",
    "translator": "`train-translator --kind attention` on 12,000 dates in words",
}
MINUTES, ROWS = (1, 3, 10), 1_000
HALF = max(1, (os.cpu_count() or 1) // 2)  # threads
BURN = """
import os, sys, torch
parent, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
matrix = torch.randn(1024, 1024)
while os.getppid() == parent:  # or until the recipe is gone, however it ended
    matrix @ matrix
"""


@contextmanager
def half_taken() -> Iterator[subprocess.Popen[bytes]]:
    """Another process multiplies matrices on half the cores."""
    with subprocess.Popen([sys.executable, "-c", BURN, str(os.getpid()), str(HALF)]) as process:
        try:
            yield process
        finally:
            process.kill()


def run(name: str, minutes: float | None, paths: RecipePaths) -> None:
    """One row, if it is not noted already."""
    if name in paths.notes:
        return
    (kind, usual), folder = name.split("-"), paths.runs / name
    minutes = minutes or float(usual)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped: seconds in parts say nothing
    rows = few_labels.sample("sst2", ROWS, 0) if kind == "finetune" else structured_pairs.pairs("dates")
    with half_taken(), training_progress() as step:
        common: dict[str, Any] = {"minutes": minutes, "device": "cpu", "callbacks": Callbacks(step=step)}
        start = time.monotonic()
        if kind == "finetune":
            kinfolk.finetune("demo", rows, folder, task="classify", **common)
        else:
            kinfolk.train_translator(folder, rows, kind="attention", **common)
        taken = time.monotonic() - start
    course = Course.of(folder)
    found = {"asked": 60 * minutes, "taken": round(taken, 1), "steps": course.steps, "plans": course.plans}
    with paths.noting() as notes:
        notes[name] = environment() | found
    print(name, found, file=sys.stderr)


def write(paths: RecipePaths) -> None:
    """The page, from the figures that are noted."""
    notes, lines = paths.notes, []
    for kind, title in KINDS.items():
        for note in (notes[name] for minutes in MINUTES if (name := f"{kind}-{minutes}") in notes):
            overrun = f"{note['taken'] / note['asked'] - 1:+.1%}"
            figures = f"{note['taken']:.1f}", overrun, f"{note['steps']:,}", str(note["plans"])
            lines.append([title, f"{note['asked']:g}", *figures])
    parts = [
        "Runs with `--minutes` and no other option that the length depends on, while another process multiplies "
        f"matrices on {HALF} of the machine's {os.cpu_count()} cores from before the first read until the model is "
        "saved. Seconds are those from the first read to the saved model, report included; plans are how often the "
        "number of steps was fixed, the first time included.",
        table(["run", "seconds asked", "taken", "overrun", "steps", "plans"], lines),
    ]
    title = "Minutes on a busy machine"
    write_result("busy-machine", "busy_machine.py", "demo", title, parts, [], folder=paths.results)


def main() -> None:
    names = [f"{kind}-{minutes}" for kind in KINDS for minutes in MINUTES]
    start_by_minutes(__doc__.partition("\n")[0], "busy-machine", names, run, lambda _, paths: write(paths))


if __name__ == "__main__":
    main()
