"""From data to a task: the task that the form of a file poses, its examples, and the task that they or a model make."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.examples import AnyExample, Choice, Example, Question, ReadResult, Sentence
from kinfolk.data.formats import is_table, numbered_rows
from kinfolk.data.tables import LABEL_COLUMNS, read_choices, read_examples, read_squad
from kinfolk.data.tagging import SLOT_FILE, read_conll, read_slots
from kinfolk.errors import InputError, MissingHeadError, RowErrors
from kinfolk.files import is_folder
from kinfolk.tasks.answer import AnswerTask, answer_task
from kinfolk.tasks.choice import ChoiceTask, choice_task
from kinfolk.tasks.tag import TagTask, tag_task
from kinfolk.tasks.task import Task, TaskOptions, refuse
from kinfolk.tasks.text import TextTask, text_task

TASKS = ("classify", "multilabel", "regress", "tag", "answer", "choose")
SAVED: dict[str, Callable[[TextModel], Task]] = {  # by head
    "classify": text_task,
    "tag": tag_task,
    "tag_crf": tag_task,
    "span": answer_task,
    "choose": choice_task,
}
LOOKED_AT = 200  # rows that tell the task
FORMS = {Sentence: "tag", Question: "answer", Choice: "choose"}


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are read: names for tables, numbers (0, -1) for CoNLL files; guessed when not given."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    header: Sequence[str] | None = None


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


def guess_task(source: str | Path | Sequence[AnyExample], columns: Columns) -> str:
    """The task that data pose by their form; what could be several is classify. regress is never guessed.

    SQuAD's .json asks questions, a CoNLL file has tags; a row of a .jsonl file may have options to choose from. Labels
    are several where a row has a list of them, or a column that is called labels has | between them.
    """
    if not isinstance(source, str | Path):
        first = next(iter(source), None)
        if isinstance(first, Example) and isinstance(first.label, tuple):
            return "multilabel"
        return next((task for form, task in FORMS.items() if isinstance(first, form)), "classify")
    path = Path(source)
    if path.suffix.lower() == ".json":
        return "answer"
    if is_folder(path):
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


def make_task(kind: str, examples: Sequence[Any], options: TaskOptions) -> Task:
    """What examples ask for, on the labels that occur in them."""
    makers: dict[str, Any] = {"tag": TagTask.of, "answer": AnswerTask.of, "choose": ChoiceTask.of}
    task: Task = makers[kind](examples, options) if kind in makers else TextTask.of(kind, examples, options)
    return task


def saved_task(text_model: TextModel) -> Task:
    """The task that a loaded model was trained for."""
    for head, read_task in SAVED.items():
        if head in text_model.model.heads:
            return read_task(text_model)
    raise MissingHeadError("this checkpoint was trained for no task; train one with `kinfolk finetune`")
