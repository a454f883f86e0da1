"""Classes, labels or numbers for texts, from a model that was trained for them; streamed, so that memory stays flat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from kinfolk.data.batching import chunks
from kinfolk.errors import MissingHeadError
from kinfolk.jobs.loaded import Encoder
from kinfolk.jobs.scoring import score, text_items
from kinfolk.jobs.text_task import Prediction, TextTask
from kinfolk.text.tokenizer import Text

CHUNK_TEXTS = 2048


def text_task(encoder: Encoder) -> TextTask:
    """The task that a loaded model was trained for."""
    if "classify" not in encoder.model.heads:
        raise MissingHeadError("this checkpoint has no classifier; train one with `kinfolk finetune`")
    labels: int = encoder.model.heads["classify"].output.out_features  # type: ignore[union-attr, assignment]
    return TextTask.from_public(encoder.public, labels)


def score_texts(encoder: Encoder, texts: Iterable[Text]) -> Iterator[np.ndarray]:
    """Scores of a chunk of texts at a time, (texts, labels)."""
    task = text_task(encoder)
    objective = task.objective(encoder.model)
    unknown: Any = [] if task.kind == "multilabel" else 0
    for chunk in chunks(texts, CHUNK_TEXTS):
        size, stride = task.windows.size(encoder.context), task.windows.stride
        items = text_items(encoder.tokenizer, chunk, [unknown] * len(chunk), size, stride)
        yield score(encoder.model, objective, items)


def classify(encoder: Encoder, texts: Iterable[Text]) -> Iterator[Prediction]:
    """What the model says of each text."""
    task = text_task(encoder)
    for scores in score_texts(encoder, texts):
        yield from task.predictions(scores)
