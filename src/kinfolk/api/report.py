"""The report of a run and the card of its model, the same for every kind of training.

    report.md       metrics, notes, pictures, details, training, data
    loss.png        loss, metric and learning rate over the steps
    confusion.png   the confusion matrix, where there are classes and not too many of them
    mistakes.jsonl  the most confident errors on the dev set; of numbers the farthest

The report may quote the user's texts and locations, so it stays in the run's folder. The card, README.md of the model's
folder with the header that the Hugging Face hub reads, goes where the model goes: it quotes neither.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kinfolk import __version__
from kinfolk.api.markdown import escaped, indented, page, table
from kinfolk.errors import KinfolkError
from kinfolk.files import write_bytes
from kinfolk.tasks.task import Mistake
from kinfolk.training.runs import Entries, best_entry
from kinfolk.training.settings import TrainSettings

MAX_SETTING = 400  # characters of a cell
Rows = list[tuple[str, object]]  # of a table: a name and its value


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
    pictures, missing = _draw(folder, report)
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
    write_bytes(folder / "report.md", page(f"Report on {escaped(report.name)}", sections).encode("utf-8", "replace"))
    return missing


def _draw(folder: Path, report: Report) -> tuple[list[str], list[str]]:
    """The pictures that there are, and notes on those that there are not."""
    try:
        from kinfolk.training.pictures import confusion_picture, loss_curve
    except KinfolkError as error:  # hours of training must not end in a fault about pictures
        return [], [f"no pictures were drawn: {error}"]
    loss_curve({f"seed {seed}": entries for seed, entries in report.logs.items()}, folder / "loss.png")
    pictures = ["loss.png"]
    if report.matrix is not None and confusion_picture(*report.matrix, folder / "confusion.png"):
        pictures.append("confusion.png")
    return pictures, []


def model_card(report: Report) -> str:
    """README.md of the model's folder."""
    sections = {
        "Use": report.use,
        "Metrics": report.metrics,
        "Confusion matrix": report.confusion,
        "Training": report.training,
        "Labels": report.labels,
        "Limits": "\n".join(f"- {limit}" for limit in report.limits),
    }
    card = page(escaped(report.name), {"": report.description} | sections).replace("## \n\n", "", 1)
    return f"---\n{report.header}---\n\n{card}"


def run_rows(
    logs: Mapping[int, Entries], best: int, seconds: float | None, settings: Mapping[str, str], device: torch.device
) -> Rows:
    """Rows of the training table: steps, minutes, seeds, the checkpoint that was kept, settings, machine."""
    steps = sum(entries[-1]["step"] for entries in logs.values() if entries)
    kept, several = best_entry(logs[best]), len(logs) > 1
    took = "" if seconds is None else f", {seconds / 60:.1f} minutes"
    seed = f"seed {best}, " if several else ""
    return [
        ("steps", f"{steps:,}{took}" + (" in all" if several else "")),
        ("seeds" if several else "seed", ", ".join(map(str, sorted(logs)))),
        *([("kept", f"{seed}step {kept['step']:,}")] if kept else []),
        *settings.items(),
        ("machine", _machine(device)),
        ("versions", f"kinfolk {__version__}, torch {torch.__version__}, Python {platform.python_version()}"),
        ("date", datetime.datetime.now(datetime.UTC).date().isoformat()),
    ]


def training_table(rows: Rows) -> str:
    """The training table of a report."""
    return table(("", ""), rows, MAX_SETTING)


def format_settings(settings: TrainSettings) -> dict[str, str]:
    """Settings that were on; the seed and the number of steps have rows of their own."""
    values: dict[str, Any] = dataclasses.asdict(settings)
    values |= values.pop("optimizer")
    hidden = ["seed", "steps", *(["epochs"] if settings.minutes is not None or settings.steps is not None else [])]
    shown = {name: value for name, value in values.items() if name not in hidden and value not in (None, 0, False)}
    texts = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in shown.items()}
    return {name.replace("_", " "): text for name, text in texts.items()}


def _machine(device: torch.device) -> str:
    """What it ran on; no name by which the machine is known to others."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}), threads: {torch.get_num_threads()}"
