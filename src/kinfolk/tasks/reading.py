"""Examples of any task from a file: the reader that fits the task and the file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kinfolk.data.choices import read_choices
from kinfolk.data.examples import AnyExample, Choice, Example, Question, ReadResult, Sentence
from kinfolk.data.formats import is_table, numbered_rows
from kinfolk.data.squad import read_squad
from kinfolk.data.tables import LABEL_COLUMNS, read_examples
from kinfolk.data.tagging import SLOT_FILE, read_conll, read_slots
from kinfolk.errors import InputError, RowErrors, check_choice
from kinfolk.files import is_folder

CLASS = "classify"
LOOKED_AT = 200  # rows that tell the task
FORMS = {Sentence: "tag", Question: "answer", Choice: "choose"}


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are read: names for tables, numbers (0, -1) for CoNLL files; guessed when not given."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    header: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name in ("text", "pair", "label"):
            column = getattr(self, name)
            if column is not None and not isinstance(column, str):
                raise InputError(f'{name}={str(column)[:60]} is not a column; give its name, or its number as in "0"')
        names = () if self.header is None else self.header
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise InputError(f"header={str(names)[:60]!r} is not a list of the columns' names")

    def refuse(self, kind: str, *names: str) -> None:
        """A column that the task's files do not have."""
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(f"{name} has no meaning for the files of the task {kind}")


def read_for(kind: str, source: str | Path, columns: Columns, max_bad_rows: int | None = 0) -> ReadResult[Any]:
    """The labelled examples of a file, or of a folder with seq.in, seq.out and label.

    Up to `max_bad_rows` bad rows are left out; None: none are, and no message speaks of it.
    """
    return READERS[check_choice("task", kind, READERS)](kind, Path(source), columns, max_bad_rows)


def guess_task(source: str | Path | Sequence[AnyExample], columns: Columns) -> str:
    """The task that data pose by their form; what could be several is classify. regress is never guessed.

    SQuAD's .json asks questions, a CoNLL file has tags; a row of a .jsonl file may have options to choose from. Labels
    are several where a row has a list of them, or a column that is called labels has | between them.
    """
    if not isinstance(source, str | Path):
        first = next(iter(source), None)
        if isinstance(first, Example) and isinstance(first.label, tuple):
            return "multilabel"
        return next((task for kind, task in FORMS.items() if isinstance(first, kind)), CLASS)
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix == ".json":
        return "answer"
    if is_folder(path):
        return CLASS
    return _table_task(path, columns) if is_table(path) else "tag"


def _table_task(path: Path, columns: Columns) -> str:
    later = RowErrors(str(path), sys.maxsize)  # bad rows are told when the file is read
    rows = [row for _, row in islice(numbered_rows(path, later, header=columns.header), LOOKED_AT)]
    if path.suffix.lower() == ".jsonl" and rows and {"options", "ending0"} & rows[0].keys():
        return "choose"
    found = (
        _are_several(name, cell)
        for row in rows
        for name, cell in row.items()
        if (name.lower() in LABEL_COLUMNS if columns.label is None else name == columns.label)
    )
    return "multilabel" if any(found) else CLASS


def _are_several(column: str, cell: Any) -> bool:
    if not isinstance(cell, str):
        return isinstance(cell, list)
    cell = cell.strip()
    return (cell.startswith("[") and cell.endswith("]")) or (column.lower() == "labels" and "|" in cell)


def _texts(kind: str, path: Path, columns: Columns, max_bad_rows: int | None) -> ReadResult[Any]:
    if _has_slots(path) and kind == "classify":
        columns.refuse(kind, "text", "pair", "label", "header")
        found = read_slots(path, max_bad_rows)
        examples = [Example(" ".join(item.words), None, item.label, item.location) for item in found.examples]
        return ReadResult(examples, found.bad, found.reasons, "texts of seq.in, labels of the file label")
    named = {"text": columns.text, "pair": columns.pair, "label": columns.label, "header": columns.header}
    return read_examples(path, kind, max_bad_rows=max_bad_rows, **named)  # type: ignore[arg-type]


def _words(kind: str, path: Path, columns: Columns, max_bad_rows: int | None) -> ReadResult[Any]:
    columns.refuse(kind, "pair", "header")
    if _has_slots(path):
        columns.refuse(kind, "text", "label")
        return read_slots(path, max_bad_rows)
    return read_conll(path, _number(columns.text, 0), _number(columns.label, -1), max_bad_rows)


def _questions(kind: str, path: Path, columns: Columns, max_bad_rows: int | None) -> ReadResult[Any]:
    columns.refuse(kind, "text", "pair", "label", "header")
    return read_squad(path, max_bad_rows)


def _choices(kind: str, path: Path, columns: Columns, max_bad_rows: int | None) -> ReadResult[Any]:
    columns.refuse(kind, "text", "pair", "label", "header")
    return read_choices(path, max_bad_rows=max_bad_rows)


READERS: dict[str, Callable[[str, Path, Columns, int | None], ReadResult[Any]]] = {
    "classify": _texts,
    "multilabel": _texts,
    "regress": _texts,
    "tag": _words,
    "answer": _questions,
    "choose": _choices,
}


def _has_slots(path: Path) -> bool:
    return (path / SLOT_FILE).is_file()


def _number(column: str | None, usual: int) -> int:
    try:
        return usual if column is None else int(column)
    except ValueError:
        raise InputError(f"{column!r}: the columns of a CoNLL file have numbers, 0 the first, -1 the last") from None
