"""Labelled texts from tables: classes, multiple labels, or numbers.

.csv, .tsv (quotes are text), .jsonl and .parquet files have columns. Which is which: the user's choice first, then the
names that public data sets use, else an error that lists the columns. A column is guessed only where one reading fits.
A second text is taken only as the partner of the first (`sentence1` and `sentence2`), never by itself. Case does not
matter in guesses. Labels stay text ("0" is the class "0"); spaces around them are not part of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfolk.data.examples import Example, Label, ReadResult, read_result
from kinfolk.data.formats import TABLE_SUFFIXES, Row, is_table, numbered_rows
from kinfolk.errors import (
    DataError,
    FolderError,
    InputError,
    RowErrors,
    check_choice,
    json_type,
    missing_column,
    shorten_list,
)
from kinfolk.files import parse_json

PAIR_COLUMNS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("#1 string", "#2 string"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "answer"),
    ("query", "passage"),
)
TEXT_COLUMNS = ("text", "sentence", "review", "content", "document", "comment", "tweet", "utterance")
LABEL_COLUMNS = (
    *("label", "labels", "gold_label", "class", "category", "stars", "rating", "score"),
    *("is_duplicate", "quality", "target", "sentiment", "intent"),
)


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The names of the columns to read."""

    text: str
    pair: str | None
    label: str | None
    others: tuple[str, ...] = field(default=(), compare=False)  # not read

    @property
    def description(self) -> str:
        """`text "review", label "stars"; not read: id`."""
        roles = (("text", self.text), ("pair", self.pair), ("label", self.label))
        read = ", ".join(f'{role} "{name}"' for role, name in roles if name is not None)
        return read + (f"; not read: {shorten_list(self.others, 12)}" if self.others else "")

    @property
    def names(self) -> list[str]:
        return [name for name in (self.text, self.pair, self.label) if name is not None]


def find_columns(
    location: str, present: Sequence[str], text: str | None, pair: str | None, label: str | None, needs_label: bool
) -> TableColumns:
    """The columns of a table: those named, and guesses for those not. `pair=""` says that there is no second text.

    A label that is not needed is read only where its column is named.
    """
    for name in filter(None, (text, pair, label)):
        if name not in present:
            raise DataError(f"{location}: {missing_column(name, present)}")
    named = [name for name in (text, pair, label) if name]
    if len(set(named)) < len(named):
        raise InputError(f'{location}: text, pair and label must be different columns, not "{shorten_list(named)}"')
    if label is None and needs_label:
        candidates = [name for name in _known(present, LABEL_COLUMNS) if name not in named]
        label = _only(location, present, candidates, "label")
    if not text:  # the one column with the name of a text that is not another's partner
        free = [name for name in present if name not in (pair, label)]
        texts = _known(free, (*TEXT_COLUMNS, *(first for first, _ in PAIR_COLUMNS)))
        seconds = [partner for name in texts for partner in _partners(name, free)]
        text = _only(location, present, [name for name in texts if name not in seconds], "text")
    if pair is None:
        partners = _partners(text, [name for name in present if name != label])
        pair = _only(location, present, partners, "pair") if partners else None
    others = tuple(name for name in present if name not in (text, pair, label))
    return TableColumns(text, pair or None, label, others)


def _known(present: Sequence[str], names: Sequence[str]) -> list[str]:
    return [name for name in present if name.lower() in names]


def _partners(text: str, free: Sequence[str]) -> list[str]:
    return _known(free, [second for first, second in PAIR_COLUMNS if first == text.lower()])


def _only(location: str, present: Sequence[str], candidates: list[str], role: str) -> str:
    if len(candidates) == 1:
        return candidates[0]
    why = f"{' and '.join(candidates)} could be" if candidates else "no column has a name that says it is"
    listed = shorten_list(present, limit=12) or "none"
    no_header = "" if candidates else "; a file without a header line needs --header"
    raise DataError(f"{location}: {why} the {role}; the columns are: {listed}; name one with --{role}{no_header}")


class BadValueError(ValueError):
    """A value of a row that cannot be used; the reader adds the line."""


def read_examples(
    path: str | Path,
    kind: str = "classify",
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    max_bad_rows: int | None = 0,
) -> ReadResult[Example]:
    """The examples of a file; `kind` is classify, multilabel or regress.

    `text`, `pair` and `label` name columns and are guessed when not given; `pair=""` says that there is no second
    text. `header` names the columns of a .csv or .tsv file that has no header line.
    """
    parse = PARSERS[check_choice("kind", kind, PARSERS)]
    if not is_table(path):
        raise DataError(f"{path}: plain lines have no labels; only {', '.join(TABLE_SUFFIXES)} files have columns")
    errors = RowErrors(str(path), max_bad_rows)
    examples: list[Example] = []
    columns: TableColumns | None = None
    for line, row in numbered_rows(Path(path), errors, header=header):
        if columns is None:
            columns = find_columns(str(path), list(row), text, pair, label, needs_label=True)
        try:
            examples.append(_example(row, columns, parse, f"{path}:{line}"))
        except BadValueError as error:
            errors.add(line, str(error))
    return read_result(examples, errors, description="" if columns is None else columns.description)


def _example(row: Row, columns: TableColumns, parse: Callable[[Any], Label], location: str) -> Example:
    for name in columns.names:
        if name not in row:
            raise BadValueError(missing_column(name, list(row)))
        if name != columns.label and not isinstance(row[name], str):
            raise BadValueError(f'"{name}" is {json_type(row[name])}, expected a string')
    label = parse(row[columns.label or ""])
    return Example(row[columns.text], None if columns.pair is None else row[columns.pair], label, location)


def _class_label(value: Any) -> str:
    """Text as it stands; a number or a truth value of a JSON file as JSON writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise BadValueError(f"the label is {json_type(value)}, expected a string or a number")
    label = str(value).strip()
    if not label or value != value:  # parquet files may say NaN for a missing value
        raise BadValueError("the label is empty")
    return label


def _label_set(value: Any) -> tuple[str, ...]:
    """A list, or text that is a JSON list or has | or commas between its labels; an empty one has no labels."""
    text = value.strip() if isinstance(value, str) else None
    if text is not None and text.startswith("["):
        try:
            value = parse_json(text, "the labels")
        except FolderError as error:
            raise BadValueError(str(error)) from None
    elif text is not None:
        value = text.split("|" if "|" in text else ",") if text else []
    if not isinstance(value, list):
        raise BadValueError(f"the labels are {json_type(value)}, expected a list")
    return tuple(dict.fromkeys(map(_class_label, value)))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadValueError(f"the label is {json_type(value)}, expected a number")
    try:
        number = float(value.replace("_", "?")) if isinstance(value, str) else float(value)  # "1_0" is no number here
    except (ValueError, OverflowError):
        raise BadValueError(f"the label {str(value)[:40]!r} is not a number") from None
    if not math.isfinite(number):
        raise BadValueError(f"the label {str(value)[:40]!r} is not a finite number")
    return number


PARSERS: dict[str, Callable[[Any], Label]] = {"classify": _class_label, "multilabel": _label_set, "regress": _number}
