"""How good a trained model is on labelled texts, and where it is surest and wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kinfolk.data.labelled import read_examples
from kinfolk.errors import InputError
from kinfolk.jobs.classify import score_texts, text_task
from kinfolk.jobs.finetune import texts_of
from kinfolk.jobs.loaded import Encoder
from kinfolk.training.chances import softmax


@dataclass(frozen=True)
class Mistake:
    """A text that was given the wrong class, and how sure the model was."""

    where: str
    text: str
    truth: str
    guess: str
    probability: float


@dataclass(frozen=True)
class Evaluation:
    """Metrics; for classes also who was taken for whom, (truth, guess), and the most confident mistakes."""

    examples: int
    bad: int  # rows that were left out
    metrics: Mapping[str, float]
    labels: Sequence[str]
    confusion: list[list[int]] | None
    mistakes: list[Mistake]


def evaluate(
    encoder: Encoder,
    source: str | Path,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    max_bad_rows: int = 0,
    mistakes: int = 10,
) -> Evaluation:
    """Score the rows of a labelled file."""
    task = text_task(encoder)
    read = read_examples(source, task.kind, text, pair, label, header, max_bad_rows=max_bad_rows)
    examples = read.examples
    if not examples:
        raise InputError(f"{source}: no examples to evaluate on")
    targets = task.targets(examples)
    scores = np.concatenate(list(score_texts(encoder, texts_of(examples))))
    _, found = task.merit(scores, targets)
    if task.kind != "classify":
        return Evaluation(len(examples), read.bad, found, task.labels, None, [])
    guesses = scores.argmax(1)
    confusion = np.zeros((len(task.labels), len(task.labels)), dtype=int)
    np.add.at(confusion, (np.array(targets), guesses), 1)
    sure = softmax(scores).max(1)
    wrong = sorted(np.flatnonzero(guesses != np.array(targets)), key=lambda number: -sure[number])[:mistakes]
    listed = [
        Mistake(
            examples[number].where,
            " | ".join(examples[number].content),
            task.labels[targets[number]],
            task.labels[guesses[number]],
            float(sure[number]),
        )
        for number in wrong
    ]
    return Evaluation(len(examples), read.bad, found, task.labels, confusion.tolist(), listed)
