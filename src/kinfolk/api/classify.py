"""Classes, labels or numbers for texts, from a model that was trained for them; streamed, so that memory stays flat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from kinfolk.api.embed import require_text
from kinfolk.api.loaded import Encoder
from kinfolk.data.batching import chunks
from kinfolk.errors import MissingHeadError
from kinfolk.tasks.scoring import score, text_items
from kinfolk.tasks.text import Prediction, TextTask
from kinfolk.tasks.windows import CutCount
from kinfolk.text.tokenizer import Text

CHUNK_TEXTS = 2048


def text_task(encoder: Encoder) -> TextTask:
    """The task that a loaded model was trained for."""
    if "classify" not in encoder.model.heads:
        raise MissingHeadError("this checkpoint has no classifier; train one with `kinfolk finetune`")
    labels: int = encoder.model.heads["classify"].output.out_features  # type: ignore[union-attr, assignment]
    return TextTask.from_hf(encoder.public, labels)


def score_texts(
    encoder: Encoder,
    texts: Iterable[Text],
    place: Callable[[int], str] = "text {}".format,
    cut: CutCount | None = None,
) -> Iterator[np.ndarray]:
    """Scores of a chunk of texts at a time, (texts, labels).

    `place` says where a text stands, for a message. What had to be cut is told by a CutWarning at the end, or counted
    in `cut` for the caller to report.
    """
    task = text_task(encoder)
    objective = task.objective(encoder.model)
    size, stride = task.windows.size(encoder.context, encoder.tokenizer.special_tokens_count()), task.windows.stride
    unknown: Any = [] if task.kind == "multilabel" else 0
    done, count = 0, CutCount() if cut is None else cut
    for chunk in chunks(texts, CHUNK_TEXTS):
        places = [place(done + number) for number in range(len(chunk))]
        given = [require_text(text, where) for text, where in zip(chunk, places, strict=True)]
        task.tell_other_form(given, places, count)
        targets = [unknown] * len(chunk)
        items = text_items(encoder.tokenizer, given, targets, size, stride, count, places.__getitem__)
        yield score(encoder.model, objective, items)
        done += len(chunk)
    if cut is None:
        count.report()


def classify(
    encoder: Encoder,
    texts: Iterable[Text],
    place: Callable[[int], str] = "text {}".format,
    cut: CutCount | None = None,
) -> Iterator[Prediction]:
    """What the model says of each text; `place` and `cut` as in `score_texts`."""
    task = text_task(encoder)
    for scores in score_texts(encoder, texts, place, cut):
        yield from task.predictions(scores)
