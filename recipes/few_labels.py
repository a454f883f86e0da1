"""What a minute of fine-tuning teaches with 50, 200 and 1,000 labels, beside frozen features and TF-IDF.

`python recipes/few_labels.py` trains what is not noted yet below runs/few-labels (a run that was stopped resumes),
notes each figure in docs/results/few-labels.json as it comes and writes docs/results/few-labels.md; names such as
`sst2-50-0-finetune` (task, labels, seed, way) choose. Nothing else should run meanwhile. `--minutes 0.1` is a try below
runs/try-0.1, and nothing in docs.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from common import Course, RecipePaths, data_file, environment, start_by_minutes, table, write_result
from controls import tfidf

import kinfolk
from kinfolk.api.experiment import Callbacks
from kinfolk.cli.output import training_progress
from kinfolk.tasks.task import Columns, read_for

MINUTES, COUNTS, SEEDS, TEST_ROWS = 1.0, (50, 200, 1_000), (0, 1), 1_000
BEFORE: dict[str, Any] = {"learning_rate": 5e-5, "batch_size": 32, "min_steps": 0}  # what was usual for any data
WAYS = {
    "finetune": "fine-tuned",
    "before": "fine-tuned, settings as before",
    "frozen": "frozen features, logistic regression",
    "tfidf": "TF-IDF, logistic regression",
}


@dataclass(frozen=True)
class Labelled:
    """A task of text classification: the files to draw labels from and to measure by."""

    title: str
    train: str
    test: str
    columns: Columns = field(default_factory=Columns)


TASKS = {
    "sst2": Labelled("SST-2, sentences", "sst2/train.tsv", "sst2/test.tsv", Columns(header=["text", "label"])),
    "atis": Labelled("ATIS, intents", "atis/train/seq.in", "atis/test/seq.in"),
    "mrpc": Labelled(
        "MRPC, pairs of sentences", "glue/MRPC/train.tsv", "glue/MRPC/dev.tsv",
        Columns("#1 String", "#2 String", "Quality"),
    ),
}  # fmt: skip


@cache
def rows(task: str, train: bool) -> list[Any]:
    """All that are labelled, in an order of their own."""
    asked = TASKS[task]
    path = data_file(asked.train if train else asked.test)
    examples = read_for("classify", path.parent if path.suffix == ".in" else path, asked.columns).examples
    return random.Random(0).sample(examples, len(examples))


def sample(task: str, count: int, seed: int) -> list[Any]:
    """The labels that a run may see: with another seed others."""
    return random.Random(f"{task} {count} {seed}").sample(rows(task, train=True), count)


def accuracy(model: kinfolk.Encoder, test: list[Any]) -> float:
    texts = [example.text if example.pair is None else example.content for example in test]
    predictions: Any = model.classify(texts)
    return mean(prediction.label == example.label for prediction, example in zip(predictions, test, strict=True))


def trained(way: str, learned: list[Any], seed: int, minutes: float, folder: Path) -> dict[str, Any]:
    """Fine-tune, or solve a head on frozen features: steps and examples seen."""
    if not (folder / "model").exists():
        own: dict[str, Any] = {"frozen": "logistic"} if way == "frozen" else {"minutes": minutes}
        with training_progress() as step:
            own |= {"callbacks": Callbacks(step=step), **(BEFORE if way == "before" else {})}
            kinfolk.finetune("demo", learned, folder, task="classify", seed=seed, device="cpu", **own)
    if way == "frozen":
        return {}
    course = Course.of(folder)
    return {"steps": course.steps, "batch_size": course.batch_size, "examples": course.steps * course.batch_size}


def run(name: str, minutes: float | None, paths: RecipePaths) -> None:
    """One row, if it is not noted already."""
    if name in paths.notes:
        return
    task, count, seed, way = name.split("-")
    learned, test, folder = sample(task, int(count), int(seed)), rows(task, train=False)[:TEST_ROWS], paths.runs / name
    start, resumed, found = time.monotonic(), folder.exists(), dict[str, Any]()
    if way == "tfidf":
        reached, seconds = tfidf(learned, test)["accuracy"], time.monotonic() - start
    else:
        found = trained(way, learned, int(seed), minutes or MINUTES, folder)
        seconds = time.monotonic() - start
        reached = accuracy(kinfolk.load_encoder(folder / "model", "cpu"), test)
    found |= {"accuracy": reached, "seconds": None if resumed else round(seconds, 1), "tested": len(test)}
    with paths.noting() as notes:
        notes[name] = environment() | found
    print(name, found, file=sys.stderr)


def lines(notes: dict[str, Any], task: str) -> list[list[str]]:
    """The table of a task: a row for each number of labels and way, with the mean over the seeds that are noted."""
    found = []
    for count in COUNTS:
        for way, title in WAYS.items():
            noted = [notes[name] for seed in SEEDS if (name := f"{task}-{count}-{seed}-{way}") in notes]
            if not noted:
                continue
            each = ", ".join(f"{note['accuracy']:.1%}" for note in noted)
            steps, examples = (
                " / ".join(f"{note[what]:,}" for note in noted if what in note) for what in ("steps", "examples")
            )
            seconds = " / ".join("" if note["seconds"] is None else f"{note['seconds']:.0f}" for note in noted)
            reached = f"{mean(note['accuracy'] for note in noted):.1%}"
            found.append([f"{count:,}", title, f"**{reached}**", each, steps, examples, seconds])
    return found


def write(minutes: float, paths: RecipePaths) -> None:
    """The page, from the figures that are noted."""
    notes = paths.notes
    before = ", ".join(f"{name}={value:g}" for name, value in BEFORE.items())
    parts = [
        f"Accuracy of all-MiniLM-L6-v2 on at most {TEST_ROWS:,} rows of a file that no run reads, after {minutes:g} "
        "minute of `kinfolk finetune` with no other option: mean, and one figure per seed, each of which draws labels "
        f"of its own. Settings as before: `{before}`; batches are drawn at random in both, and the clock is the same. "
        "Frozen features are those of `--frozen logistic`. What kinfolk trains holds a tenth of the labels out to "
        "choose by, TF-IDF (words and pairs of words) learns from all. Examples seen are steps times batch. Seconds "
        "are those from the first read to the saved model, with the labels in memory.",
        f"`kinfolk finetune --model demo --train labels.csv --minutes {minutes:g} --output run`",
    ]
    header = ["labels", "", "accuracy", "per seed", "steps", "examples seen", "s"]
    for task, asked in TASKS.items():
        if found := lines(notes, task):
            parts += [f"## {asked.title}", table(header, found)]
    title = "A minute of fine-tuning with few labels"
    write_result("few-labels", "few_labels.py", "demo", title, parts, ["scikit-learn"], folder=paths.results)


def main() -> None:
    names = [f"{task}-{count}-{seed}-{way}" for task in TASKS for count in COUNTS for seed in SEEDS for way in WAYS]
    start_by_minutes(
        __doc__.partition("\n")[0], "few-labels", names, run, lambda minutes, paths: write(minutes or MINUTES, paths)
    )


if __name__ == "__main__":
    main()
