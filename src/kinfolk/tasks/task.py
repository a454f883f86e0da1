"""What reading, training, saving and evaluation want to know of a task: one base class, a file for each kind.

classify, multilabel, regress   whole texts and pairs   text.py
tag                             words                   tag.py
answer                          spans of a context      answer.py
choose                          one of several options  choice.py

A new one adds a line to `FILES`; its file's `TASK` is the class.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.batching import BATCH_TOKENS, chunks, token_batches
from kinfolk.data.examples import FORMS, AnyExample, Example, ReadResult
from kinfolk.data.formats import is_table, numbered_rows
from kinfolk.data.tables import LABEL_COLUMNS, read_choices, read_examples, read_squad
from kinfolk.data.tagging import SLOT_FILE, read_conll, read_slots
from kinfolk.errors import ConfigError, InputError, MissingHeadError, RowErrors, check_number, shorten_list
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.windows import DEFAULT_WINDOWS, TokenCounts, Windows

CHUNK_TEXTS = 2048  # read at once
MAX_MISTAKES = 20  # most confident errors that are listed
LOOKED_AT = 200  # rows that tell the task
FILES = {
    **dict.fromkeys(("classify", "multilabel", "regress"), "kinfolk.tasks.text"),
    "tag": "kinfolk.tasks.tag",
    "answer": "kinfolk.tasks.answer",
    "choose": "kinfolk.tasks.choice",
}
HEADS = {"classify": "classify", "tag": "tag", "tag_crf": "tag", "span": "answer", "choose": "choose"}  # to the task


@dataclass(frozen=True)
class Mistake:
    """An example that the model got wrong, and how sure it was; of numbers, which are never quite right, None."""

    location: str
    text: str
    truth: str
    guess: str
    probability: float | None


@dataclass(frozen=True)
class EvalResult:
    """Metrics (the first one selects the best checkpoint, higher is better), the confusion matrix of classes (rows:
    true label, columns: predicted label) and the most confident errors."""

    metrics: dict[str, float]
    confusion: list[list[int]] | None = None
    mistakes: Sequence[Mistake] = ()

    @property
    def selection_score(self) -> float:
        """What checkpoints are compared by; without a dev set they are not."""
        return next(iter(self.metrics.values()), 0.0)


@dataclass(frozen=True)
class TaskOptions:
    """What a user may ask of a task; a task refuses what it cannot use."""

    class_weights: str | Mapping[str, float] | None = None  # of classes and tags
    crf: bool = False  # of tags: score whole paths, not words one by one
    windows: Windows = DEFAULT_WINDOWS

    def weights(self, balanced: Mapping[str, float]) -> tuple[float, ...] | None:
        """A weight per class: those that "balanced" takes, in their order, or those that are given by name."""
        wanted = self.class_weights
        if wanted is None:
            return None
        if wanted == "balanced":
            return tuple(balanced.values())
        if not isinstance(wanted, Mapping):
            raise InputError(f'class_weights={wanted!r}: use "balanced" or a weight for each class by name')
        unknown = [name for name in wanted if name not in balanced]
        if unknown:
            raise InputError(f"class weights for classes that do not occur: {shorten_list(unknown)}")
        for name, weight in wanted.items():
            check_number(f"the class weight of {name}", weight, 0, 1e9, "above 0")
        return tuple(float(wanted.get(name, 1.0)) for name in balanced)


def refuse(options: object, kind: str, *names: str) -> None:
    """An option or column that means nothing for the task is an error, not a silence."""
    for name in names:
        if getattr(options, name) not in (None, False):
            raise InputError(f"{name} has no meaning for the task {kind}")


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are read: names for tables, numbers (0, -1) for CoNLL files; guessed when not given."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    header: Sequence[str] | None = None


@dataclass(frozen=True)
class Dataset:
    """Examples as the model reads them; a task adds what it needs to evaluate their scores."""

    samples: list[Sample]
    examples: Sequence[Any]


class Task:
    """A kind of task on known labels."""

    kind: str  # the name that a user gives it
    head: str  # the family's head that it trains
    labels: tuple[str, ...]  # what the head's scores stand for
    windows: Windows
    chunk = CHUNK_TEXTS  # examples that are predicted at once

    @classmethod
    def of(cls, kind: str, examples: Sequence[Any], options: TaskOptions) -> Self:
        """The task of this kind that examples pose, on the labels that occur in them."""
        raise NotImplementedError

    @classmethod
    def saved(cls, text_model: TextModel) -> Self:
        """The task that a loaded model was trained for."""
        raise NotImplementedError

    def objective(self, model: Model) -> Objective:
        """The loss on a model of the family."""
        raise NotImplementedError

    def dataset(
        self, tokenizer: Tokenizer, examples: Sequence[Any], context: int, counts: TokenCounts | None = None
    ) -> Any:
        """The `Dataset` of examples, for a model that reads `context` tokens at once; `counts` hears of their texts."""
        raise NotImplementedError

    def datasets(self, text_model: TextModel, examples: Iterable[Any], **options: Any) -> Iterator[Any]:
        """Those of a chunk of examples at a time: memory stays the same however many there are."""
        for some in chunks(examples, self.chunk):
            yield self.dataset(text_model.tokenizer, some, text_model.context, **options)

    def evaluate(self, model: Model, dataset: Any) -> EvalResult:
        """How good the model is on a dataset."""
        raise NotImplementedError

    def columns(self, prediction: Any) -> dict[str, Any]:
        """What a table gets beside an example."""
        raise NotImplementedError

    def split(self, dataset: Any, indices: list[int], batch: Any, scores: Tensor) -> Iterable[Tensor]:
        """What belongs to each sample in the scores of a batch, which has the samples with these indices."""
        return batch.tokens.layout.split(scores)  # type: ignore[no-any-return]

    def sample_scores(self, model: Model, dataset: Any) -> list[np.ndarray]:
        """The head's scores of each sample, in order."""
        objective, samples = self.objective(model), dataset.samples
        rows: list[np.ndarray] = [np.empty(0)] * len(samples)
        for indices in token_batches([len(sample) for sample in samples], BATCH_TOKENS):
            with torch.inference_mode():
                batch = objective.prepare([samples[index] for index in indices], model.device)
                scores = objective.scores(model, batch).float().cpu()
            for index, part in zip(indices, self.split(dataset, indices, batch, scores), strict=True):
                rows[index] = part.numpy()
        return rows

    def unseen_labels(self, examples: Sequence[Any]) -> list[str]:
        """Labels of these examples that training did not see, and which are therefore never predicted."""
        return []

    def calibrate(self, model: Model, dataset: Any) -> Self:
        """The task of a model at the end of its training, with what is tuned on the dev set (which may be empty)."""
        return self

    def to_hf(self) -> dict[str, Any]:
        """What config.json says of the task, label names included."""
        return label_tables(self.labels) | self.windows.to_hf()


def most_confident(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """The most confident of all errors."""
    return sorted(mistakes, key=lambda mistake: -(mistake.probability or 0.0))[:MAX_MISTAKES]


def require_head(text_model: TextModel, head: str, name: str, command: str = "kinfolk finetune") -> Any:
    """A head of a loaded model, which a user calls `name` and trains with `command`."""
    if head not in text_model.model.heads:
        raise MissingHeadError(f"this checkpoint has no {name}; train one with `{command}`")
    return text_model.model.heads[head]


def saved_labels(text_model: TextModel, head: str, name: str, command: str = "kinfolk finetune") -> tuple[str, ...]:
    """The names of a loaded model's labels; LABEL_0, LABEL_1 … where its config names none."""
    count = require_head(text_model, head, name, command).output.out_features
    names = text_model.hf_config.get("id2label") or {}
    if not isinstance(names, dict) or not all(isinstance(label, str) for label in names.values()):
        raise ConfigError("config.json: id2label is not a table of names")
    return tuple(names.get(str(index), f"LABEL_{index}") for index in range(count))


def label_tables(labels: Sequence[str]) -> dict[str, Any]:
    """The names of labels as config.json has them."""
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }


def read_for(kind: str, source: str | Path, columns: Columns, max_bad_rows: int | None = 0) -> ReadResult[Any]:
    """The labelled examples of a file, or of a folder with seq.in, seq.out and label.

    Up to `max_bad_rows` bad rows are left out; None: none are, and no message speaks of it.
    """
    path, names = Path(source), ("text", "pair", "label", "header")
    if kind in ("classify", "tag") and (path / SLOT_FILE).is_file():
        refuse(columns, kind, *names)
        result = read_slots(path, max_bad_rows)
        if kind == "tag":
            return result
        examples = [Example(" ".join(item.words), None, item.label, item.location) for item in result.examples]
        return ReadResult(examples, result.bad, result.reasons, "texts of seq.in, labels of the file label")
    if kind == "tag":
        refuse(columns, kind, "pair", "header")
        try:
            words = 0 if columns.text is None else int(columns.text)
            tags = -1 if columns.label is None else int(columns.label)
        except ValueError:
            raise InputError("the columns of a CoNLL file have numbers, 0 the first, -1 the last") from None
        return read_conll(path, words, tags, max_bad_rows)
    if kind in ("answer", "choose"):
        refuse(columns, kind, *names)
        return read_squad(path, max_bad_rows) if kind == "answer" else read_choices(path, max_bad_rows)
    return read_examples(path, kind, columns.text, columns.pair, columns.label, columns.header, max_bad_rows)


def make_task(kind: str, examples: Sequence[Any], options: TaskOptions) -> Task:
    task: Task = import_module(FILES[kind]).TASK.of(kind, examples, options)
    return task


def saved_task(text_model: TextModel) -> Task:
    """The task that a loaded model was trained for."""
    heads = [head for head in HEADS if head in text_model.model.heads]
    if not heads:
        raise MissingHeadError("this checkpoint was trained for no task; train one with `kinfolk finetune`")
    task: Task = import_module(FILES[HEADS[heads[0]]]).TASK.saved(text_model)
    return task


def guess_task(source: str | Path | Sequence[AnyExample], columns: Columns) -> str:
    """The task that data pose by their form; what could be several is classify. regress is never guessed.

    SQuAD's .json asks questions, a CoNLL file has tags; a row of a .jsonl file may have options to choose from. Labels
    are several where a row has a list of them, or a column that is called labels has | between them.
    """
    if not isinstance(source, str | Path):
        first = next(iter(source), None)
        if isinstance(first, Example) and isinstance(first.label, tuple):
            return "multilabel"
        return next((task for task, form in FORMS.items() if isinstance(first, form)), "classify")
    path = Path(source)
    if path.suffix.lower() == ".json":
        return "answer"
    if os.path.isdir(path):
        return "classify"
    if not is_table(path):
        return "tag"
    later = RowErrors(str(path), sys.maxsize)  # bad rows are told when the file is read
    rows = [row for _, row in islice(numbered_rows(path, later, header=columns.header), LOOKED_AT)]
    if path.suffix.lower() == ".jsonl" and rows and {"options", "ending0"} & rows[0].keys():
        return "choose"
    several = any(
        _are_several(name, cell)
        for row in rows
        for name, cell in row.items()
        if (name.lower() in LABEL_COLUMNS if columns.label is None else name == columns.label)
    )
    return "multilabel" if several else "classify"


def _are_several(column: str, cell: Any) -> bool:
    if not isinstance(cell, str):
        return isinstance(cell, list)
    return (cell.strip()[:1] + cell.strip()[-1:] == "[]") or (column.lower() == "labels" and "|" in cell)
