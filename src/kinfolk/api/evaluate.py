"""How good a trained model is on labelled examples, and where it is surest and wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kinfolk.checkpoints.text_model import TextModel
from kinfolk.errors import InputError, shorten_list, warn
from kinfolk.tasks.reading import Columns, read_for
from kinfolk.tasks.registry import saved_task
from kinfolk.tasks.task import Mistake


class UnseenWarning(UserWarning):
    """Examples have labels that the model does not know, and so can never give."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics; for classes also who was taken for whom, (truth, guess), and the most confident mistakes."""

    examples: int
    bad: int  # rows that were left out
    metrics: Mapping[str, float]
    labels: Sequence[str]
    confusion: list[list[int]] | None
    mistakes: Sequence[Mistake]


def evaluate(
    encoder: TextModel,
    source: str | Path,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    max_bad_rows: int = 0,
) -> Evaluation:
    """Judge a trained model by the examples of a labelled file."""
    task = saved_task(encoder)
    read = read_for(task.kind, source, Columns(text, pair, label, header), max_bad_rows)
    if not read.examples:
        raise InputError(f"{source}: no examples to evaluate on")
    unseen = task.unseen_labels(read.examples)
    if unseen:
        warn(UnseenWarning(f"training did not see {shorten_list(unseen)}: these count as misses"))
    judged = task.evaluate(encoder.model, task.dataset(encoder.tokenizer, read.examples, encoder.context))
    return Evaluation(len(read.examples), read.bad, judged.metrics, task.labels, judged.confusion, judged.mistakes)
