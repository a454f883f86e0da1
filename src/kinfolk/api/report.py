"""The report of a run, beside its log: what a person wants to see after training.

    report.md       metrics, pictures, mistakes, data, settings, notes
    loss.png        loss, metric and learning rate over the steps
    confusion.png   who was taken for whom, where there are classes and not too many of them
    mistakes.jsonl  the most confident errors on the dev set, of numbers the farthest

It quotes the user's texts and places, so it stays in the run's folder; the model's own README.md (card.py) does not.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from kinfolk.api.markdown import escaped, indented, page, table
from kinfolk.api.summary import RunSummary, confusion_told, labels_told, metrics_told, training_told
from kinfolk.errors import KinfolkError
from kinfolk.files import write_bytes
from kinfolk.tasks.task import Mistake

SHOWN_MISTAKES = 20
LONGEST_TEXT = 200


def write_report(folder: Path, account: RunSummary, notes: Sequence[str] = ()) -> list[str]:
    """Write the files above; what could not be drawn is said in a note and in the report, and is no fault."""
    mistakes = account.judged.mistakes
    if mistakes:
        rows = (json.dumps(dataclasses.asdict(mistake), ensure_ascii=False) + "\n" for mistake in mistakes)
        write_bytes(folder / "mistakes.jsonl", "".join(rows).encode("utf-8", "replace"))
    drawn, missing = _draw(folder, account)
    text = _told(account, drawn, [*notes, *missing])
    write_bytes(folder / "report.md", text.encode("utf-8", "replace"))
    return missing


def _draw(folder: Path, account: RunSummary) -> tuple[list[str], list[str]]:
    """The pictures that there are, and notes on those that there are not."""
    try:
        from kinfolk.training.pictures import confusion_picture, loss_curve
    except KinfolkError as error:  # hours of training must not end in a fault about pictures
        return [], [f"no pictures were drawn: {error}"]
    loss_curve({f"seed {seed}": entries for seed, entries in account.logs.items()}, folder / "loss.png")
    drawn, matrix = ["loss.png"], account.judged.confusion
    if matrix is not None and confusion_picture(account.task.labels, matrix, folder / "confusion.png"):
        drawn.append("confusion.png")
    return drawn, []


def _told(account: RunSummary, drawn: Sequence[str], notes: Sequence[str]) -> str:
    sections = {
        "How good it is": metrics_told(account),
        "By seed": _by_seed(account),
        "Notes": "\n".join(f"- {escaped(note, 1000)}" for note in notes),
        "Pictures": "\n\n".join(f"![{name.removesuffix('.png')}]({name})" for name in drawn),
        "Who is taken for whom": confusion_told(account),
        "Most confident errors": _mistakes(account.judged.mistakes),
        "Training": training_told(account),
        "Data": indented(str(account.survey)),
        "Labels": labels_told(account.survey),
    }
    return page(f"Report on {escaped(account.name)}", sections)


def _by_seed(account: RunSummary) -> str:
    if len(account.by_seed) < 2:
        return ""
    names = list(account.judged.metrics)
    rows = [(str(seed), *(found[name] for name in names)) for seed, found in account.by_seed.items()]
    return table(("seed", *(name.replace("_", " ") for name in names)), rows)


def _mistakes(mistakes: Sequence[Mistake]) -> str:
    if not mistakes:
        return ""
    shown = mistakes[:SHOWN_MISTAKES]
    if shown[0].probability is None:
        numbers = [(item.truth, item.guess, item.where, item.text) for item in shown]
        return table(("truth", "the model says", "where", "text"), numbers, LONGEST_TEXT)
    rows = [(item.probability, item.truth, item.guess, item.where, item.text) for item in shown]
    return table(("probability", "truth", "the model says", "where", "text"), rows, LONGEST_TEXT)
