"""What there is to tell of a fine-tuned model, and the tables that tell it: for its card and for the run's report."""

from __future__ import annotations

import dataclasses
import datetime
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from kinfolk import __version__
from kinfolk.api.frozen import FrozenHeadConfig
from kinfolk.api.markdown import table
from kinfolk.data.summary import DataSummary
from kinfolk.data.tagging import has_spans
from kinfolk.errors import KinfolkError, shorten_list
from kinfolk.models.family import Model
from kinfolk.tasks.task import EvalResult, Task
from kinfolk.training.runs import Entries, best_entry
from kinfolk.training.settings import TrainSettings
from kinfolk.training.trainer import Trained

MOST_LABELS = 50  # in the list of labels
MOST_COLUMNS = 20  # of a confusion matrix; beyond, its largest numbers are listed
MOST_CONFUSIONS = 20
LONGEST_SETTING = 400


Rows = list[tuple[str, object]]  # of a table: a name and what it is


@dataclass(frozen=True)
class RunSummary:
    """What there is to tell of a fine-tuned model."""

    name: str
    base: str  # what the user called the model that it began with
    model: Model
    task: Task
    survey: DataSummary
    train: str  # names of files, without folders
    dev: str
    settings: TrainSettings
    judged: EvalResult  # on the dev set
    by_seed: Mapping[int, Mapping[str, float]]
    best: int  # seed
    logs: Mapping[int, Entries]
    seconds: float | None  # None where a part of the run was done by an earlier process
    reading: FrozenHeadConfig | None = None  # of a frozen encoder


def over_seeds(by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over the seeds, by metric."""
    names = next(iter(by_seed.values()), {})
    columns = {name: [found[name] for found in by_seed.values()] for name in names}
    return {name: (mean(values), stdev(values) if len(values) > 1 else 0.0) for name, values in columns.items()}


def labels_told(survey: DataSummary) -> str:
    """Labels with their numbers in the training data."""
    if survey.numbers is not None:
        smallest, median, largest = survey.numbers
        return f"Numbers from {smallest:g} to {largest:g}, median {median:g}."
    found = []
    for title, counts in (("label", survey.labels), ("tag", survey.tags)):
        more = f"\n\nand {len(counts) - MOST_LABELS:,} more" if len(counts) > MOST_LABELS else ""
        if counts:
            found.append(table((title, "in the training data"), counts[:MOST_LABELS]) + more)
    return "\n\n".join(found) or "None."


def training_told(account: RunSummary) -> str:
    """Data, steps, settings, machine."""
    survey, seeds = account.survey, sorted(account.logs)
    steps = sum(entries[-1]["step"] for entries in account.logs.values() if entries)
    best = best_entry(account.logs[account.best])
    took = "" if account.seconds is None else f", {account.seconds / 60:.1f} minutes"
    rows: Rows = [
        ("training data", f"{survey.examples:,} examples ({account.train})"),
        ("dev data", f"{survey.dev_examples:,} examples ({account.dev})" if survey.dev_examples else "none"),
        ("steps", f"{steps:,}{took}" + (" in all" if len(seeds) > 1 else "")),
        ("seeds", ", ".join(map(str, seeds))),
        *([("kept", f"seed {account.best}, step {best['step']:,}")] if best else []),
        *_reading_told(account.reading),
        *(
            settings_told(account.settings).items()
            if account.reading is None or not account.reading.closed_form
            else []
        ),
        *_task_told(account.task).items(),
        *made_on(account.model.device),
    ]
    return table(("", ""), rows, LONGEST_SETTING)


def run_told(trained: Trained, seed: int, settings: Mapping[str, str], device: torch.device) -> Rows:
    """Rows on a run of one seed: how many steps it took and how long, which of them was kept, settings, machine."""
    best = best_entry(trained.log)
    took = "" if trained.seconds is None else f", {trained.seconds / 60:.1f} minutes"
    return [
        ("steps", f"{trained.log[-1]['step'] if trained.log else 0:,}{took}"),
        ("seed", seed),
        *([("kept", f"step {best['step']:,}")] if best else []),
        *settings.items(),
        *made_on(device),
    ]


def made_on(device: torch.device) -> Rows:
    """Rows on the machine, the versions and the date."""
    return [
        ("machine", _machine_told(device)),
        ("versions", f"kinfolk {__version__}, torch {torch.__version__}, Python {platform.python_version()}"),
        ("date", datetime.datetime.now(datetime.UTC).date().isoformat()),
    ]


def draw_loss(folder: Path, seed: int, log: Entries) -> list[str]:
    """loss.png of a run; a note where it cannot be drawn: hours of training must not end in a fault about pictures."""
    try:
        from kinfolk.training.pictures import loss_curve
    except KinfolkError as error:
        return [f"no pictures were drawn: {error}"]
    loss_curve({f"seed {seed}": log}, folder / "loss.png")
    return []


def settings_told(settings: TrainSettings) -> dict[str, str]:
    """Settings that were on, in words; the seed and the number of steps are told elsewhere."""
    found: dict[str, Any] = dataclasses.asdict(settings)
    found |= found.pop("optimizer")
    hidden = ["seed", "steps", *(["epochs"] if settings.minutes is not None or settings.steps is not None else [])]
    shown = {name: value for name, value in found.items() if name not in hidden and value not in (None, 0, False)}
    told = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in shown.items()}
    return {name.replace("_", " "): value for name, value in told.items()}


def _reading_told(reading: FrozenHeadConfig | None) -> Rows:
    """What learned, where the encoder did not."""
    if reading is None:
        return []
    layers = reading.layers if isinstance(reading.layers, str) else ", ".join(map(str, reading.layers))
    head = f"{reading.head}, solved, not trained" if reading.closed_form else reading.head
    return [("encoder", "frozen"), ("head", head), ("layers", layers)]


def _task_told(task: Task) -> dict[str, str]:
    """What was asked of the task beyond its kind."""
    weights = getattr(task, "weights", None)  # of classes and tags only
    named = zip(task.labels, weights, strict=True) if weights else ()
    told = shorten_list((f"{label} {weight:.3g}" for label, weight in named), 12)
    return {"class weights": told} if told else {}


def _machine_told(device: torch.device) -> str:
    """What it ran on; no name by which the machine is known to others."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}), threads: {torch.get_num_threads()}"


def metrics_told(account: RunSummary) -> str:
    """Metrics on the dev set, and over the seeds where there are several."""
    if not account.judged.metrics:
        return "Not measured: there was no dev set."
    header, rows = ["on the dev set", "value"], {name: [value] for name, value in account.judged.metrics.items()}
    if len(account.by_seed) > 1:
        header += [f"mean of {len(account.by_seed)} seeds", "deviation"]
        summary = over_seeds(account.by_seed)
        rows = {name: [*values, *summary[name]] for name, values in rows.items()}
    chosen = "The best checkpoint was selected by the first of them, so they are slightly optimistic."
    limits = [name for name in ("thresholds", "null_threshold") if getattr(account.task, name, None) is not None]
    if limits:
        chosen = "The checkpoint and its thresholds were selected on the same data, so they are optimistic."
    if account.task.kind == "classify" and "f1" in rows:
        chosen += f" f1 is that of “{account.task.labels[1]}”, macro f1 the mean of both."
    if account.task.kind == "tag" and has_spans(account.task.labels):
        chosen += " f1, precision and recall are those of whole entities, accuracy that of words."
    return table(header, [(name.replace("_", " "), *values) for name, values in rows.items()]) + f"\n\n{chosen}"


def confusion_told(account: RunSummary) -> str:
    """The confusion matrix, or with many labels its largest numbers; nothing where there are no classes."""
    matrix, labels = account.judged.confusion, account.task.labels
    if matrix is None:
        return ""
    if len(labels) <= MOST_COLUMNS:
        rows = [(name, *row) for name, row in zip(labels, matrix, strict=True)]
        return "Confusion matrix: rows are true labels, columns predicted labels.\n\n" + table(("", *labels), rows)
    pairs = [
        (labels[truth], labels[guess], count)
        for truth, row in enumerate(matrix)
        for guess, count in enumerate(row)
        if truth != guess and count
    ]
    listed = sorted(pairs, key=lambda pair: -pair[2])[:MOST_CONFUSIONS]
    return "The most frequent confusions.\n\n" + table(("true label", "predicted label", "count"), listed)
