"""Predictions for a file: every row kept with its columns, and what the model says beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kinfolk.api.classify import CHUNK_TEXTS, classify, text_task
from kinfolk.api.loaded import Encoder
from kinfolk.api.tables import Inputs, Row, write_judged
from kinfolk.tasks.text import Prediction
from kinfolk.tasks.windows import CutCount
from kinfolk.text.tokenizer import Text


@dataclass(frozen=True)
class Predicted:
    """How many rows were written, and how many bad ones left out."""

    rows: int
    bad: int


def predict_file(
    encoder: Encoder,
    source: str | Path,
    output: str | Path,
    text: str | None = None,
    pair: str | None = None,
    header: Sequence[str] | None = None,
    max_bad_rows: int = 0,
    report: Callable[[int], None] = lambda done: None,
) -> Predicted:
    """Write every row of `source` with the columns label and probability (labels and probabilities, or value) added."""
    text_task(encoder)  # a model without one is refused before the file is looked through
    inputs = Inputs(source, _placed, text, pair, header, max_bad_rows=max_bad_rows)
    cut = CutCount()

    def judge(batch: Sequence[tuple[Text, str]]) -> Iterable[Row]:
        found = classify(encoder, [text for text, _ in batch], lambda number: batch[number][1], cut)
        return map(_added, found)

    rows = write_judged(inputs, output, judge, CHUNK_TEXTS, report)
    cut.report()
    return Predicted(rows, inputs.bad)


def read_inputs(source: str | Path, text: str | None, pair: str | None, header: Sequence[str] | None) -> Inputs[Text]:
    """The rows of a table, or the lines of a text, each with what the model reads of it."""
    return Inputs(source, lambda given, place: given, text, pair, header)


def _placed(given: Text, place: str) -> tuple[Text, str]:
    return given, place


def _added(found: Prediction) -> Row:
    """The new columns."""
    if found.value is not None:
        return {"value": round(found.value, 6)}
    if found.labels is not None:
        chances = found.probabilities or {}
        return {
            "labels": "|".join(found.labels),
            "probabilities": "|".join(f"{chances[label]:.6g}" for label in found.labels),
        }
    return {"label": found.label, "probability": round(found.probability or 0.0, 6)}
