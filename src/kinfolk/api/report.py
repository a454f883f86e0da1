"""The report of a run and the card of its model, the same for every kind of training.

    report.md       metrics, notes, pictures, details, training, data
    loss.png        loss, metric and learning rate over the steps
    confusion.png   the confusion matrix, where there are classes and not too many of them
    mistakes.jsonl  the most confident errors on the dev set; of numbers the farthest

The report may quote the user's texts and locations, so it stays in the run's folder. The card, the model's README.md
with the header that the Hugging Face hub reads, quotes neither. In both, texts of users are escaped.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from kinfolk import __version__
from kinfolk.errors import KinfolkError
from kinfolk.files import write_bytes
from kinfolk.tasks.task import Mistake
from kinfolk.training.pictures import confusion_picture, loss_curve
from kinfolk.training.runs import Entries, best_entry
from kinfolk.training.settings import TrainSettings

MAX_CELL, MAX_SETTING = 80, 400  # characters
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~$&#@])")
Rows = list[tuple[str, object]]  # of a table: a name and its value
HEADER = "library_name: kinfolk\npipeline_tag: {}\ntags:\n- kinfolk\n"  # of a card
USE = """```python
import kinfolk

model = kinfolk.load("this-folder")
{}
```

{}"""


@dataclass(frozen=True)
class Report:
    """What a run has to say; texts are Markdown."""

    name: str
    header: str  # of the card, YAML
    description: str  # one or two sentences: what the model does, and where it comes from
    use: str
    metrics: str
    training: str
    data: str  # what was printed before training
    limits: Sequence[str]
    logs: Mapping[int, Entries]  # by seed
    details: Mapping[str, str] = field(default_factory=dict)  # sections of the report alone
    confusion: str = ""
    labels: str = ""
    matrix: tuple[Sequence[str], Sequence[Sequence[int]]] | None = None
    mistakes: Sequence[Mistake] = ()


def write_report(folder: Path, report: Report, notes: Sequence[str] = ()) -> list[str]:
    """Write the files above; what could not be drawn is said in a note and in the report, and is no fault."""
    if report.mistakes:
        rows = (json.dumps(dataclasses.asdict(mistake), ensure_ascii=False) + "\n" for mistake in report.mistakes)
        write_bytes(folder / "mistakes.jsonl", "".join(rows).encode("utf-8", "replace"))
    pictures, missing = list[str](), list[str]()
    try:
        loss_curve({f"seed {seed}": entries for seed, entries in report.logs.items()}, folder / "loss.png")
        pictures.append("loss.png")
        if report.matrix is not None and confusion_picture(*report.matrix, folder / "confusion.png"):
            pictures.append("confusion.png")
    except KinfolkError as error:  # hours of training must not end in a fault about pictures
        missing.append(f"no pictures were drawn: {error}")
    sections = {
        "Metrics": report.metrics,
        "Notes": "\n".join(f"- {escaped(note, 1000)}" for note in [*notes, *missing]),
        "Pictures": "\n\n".join(f"![{name.removesuffix('.png')}]({name})" for name in pictures),
        "Confusion matrix": report.confusion,
        **report.details,
        "Training": report.training,
        "Data": indented(report.data),
        "Labels": report.labels,
    }
    page = f"# Report on {escaped(report.name)}\n\n{_sections(sections)}"
    write_bytes(folder / "report.md", page.encode("utf-8", "replace"))
    return missing


def model_card(report: Report) -> str:
    sections = {
        "Use": report.use,
        "Metrics": report.metrics,
        "Confusion matrix": report.confusion,
        "Training": report.training,
        "Labels": report.labels,
        "Limits": "\n".join(f"- {limit}" for limit in report.limits),
    }
    return f"---\n{report.header}---\n\n# {escaped(report.name)}\n\n{report.description}\n\n{_sections(sections)}"


def _sections(sections: Mapping[str, str]) -> str:
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items() if text) + "\n"


def run_table(
    rows: Rows, logs: Mapping[int, Entries], best: int, seconds: float | None, settings: Mapping[str, str], device: Any
) -> str:
    """The table of a training: these rows, then steps, minutes, seeds, the checkpoint that was kept, settings and
    machine, without a name by which that is known to others."""
    steps = sum(entries[-1]["step"] for entries in logs.values() if entries)
    kept, several = best_entry(logs[best]), len(logs) > 1
    took = "" if seconds is None else f", {seconds / 60:.1f} minutes"
    machine = f"{device.type} ({platform.machine()}), threads: {torch.get_num_threads()}"
    rows = [
        *rows,
        ("steps", f"{steps:,}{took}" + " in all" * several),
        ("seeds" if several else "seed", ", ".join(map(str, sorted(logs)))),
        *([("kept", f"seed {best}, " * several + f"step {kept['step']:,}")] if kept else []),
        *settings.items(),
        ("machine", torch.cuda.get_device_name(device) if device.type == "cuda" else machine),
        ("versions", f"kinfolk {__version__}, torch {torch.__version__}, Python {platform.python_version()}"),
        ("date", datetime.datetime.now(datetime.UTC).date().isoformat()),
    ]
    return table(("", ""), rows, MAX_SETTING)


def data_rows(what: str, train: int, dev: int, names: tuple[str, str]) -> Rows:
    """How many examples were trained on and evaluated, and of which files."""
    dev_data = f"{dev:,} {what} ({names[1]})" if dev else "none"
    return [("training data", f"{train:,} {what} ({names[0]})"), ("dev data", dev_data)]


def over_seeds(by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over the seeds, by metric."""
    names = next(iter(by_seed.values()), {})
    columns = {name: [metrics[name] for metrics in by_seed.values()] for name in names}
    return {name: (mean(values), stdev(values) if len(values) > 1 else 0.0) for name, values in columns.items()}


def format_settings(settings: TrainSettings) -> dict[str, str]:
    """Settings that were on; the seed and the number of steps have rows of their own."""
    values: dict[str, Any] = dataclasses.asdict(settings)
    values |= values.pop("optimization")
    hidden = ["seed", "steps", *(["epochs"] if settings.minutes is not None or settings.steps is not None else [])]
    return {
        name.replace("_", " "): f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
        if name not in hidden and value not in (None, 0, False)
    }


def plain(text: str, limit: int = MAX_CELL) -> str:
    """One line of at most `limit` characters, without unprintable ones."""
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def escaped(text: str, limit: int = MAX_CELL) -> str:
    """As `plain`, with Markdown's special characters escaped."""
    return SPECIAL.sub(r"\\\1", plain(text, limit))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], limit: int = MAX_CELL) -> str:
    """A table; texts are escaped and cut, fractions have four digits, whole numbers thousands apart."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.4f}"
        return f"{value:,}" if isinstance(value, int) else escaped(str(value), limit)

    first, *others = [[cell(value) for value in row] for row in (header, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (first, ["---"] * len(first), *others))


def indented(text: str) -> str:
    lines = (re.sub(r"[^\S ]", " ", line) for line in text.splitlines())
    return "\n".join(f"    {line}" for line in lines).encode("utf-8", "replace").decode()
