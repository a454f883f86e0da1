"""Tables with what a model says beside every row: .csv, .tsv, .jsonl or .parquet, by the file's name.

The input is looked through first: bad rows, and rows that the output could not hold, are told before anything is
computed. Then rows are judged and written a chunk at a time, and the file takes its place when it is whole. Standard
input can be read only once, so there it ends at the first bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from kinfolk.data.batching import chunks
from kinfolk.data.columns import Columns, find_columns
from kinfolk.data.labelled import table_rows
from kinfolk.data.parquet import PARQUET
from kinfolk.data.readers import COLUMN, STDIN, Problems, is_table, json_kind, name_of, no_column, numbered_lines
from kinfolk.data.writers import Form, Row
from kinfolk.errors import DataError
from kinfolk.files import replacing
from kinfolk.machine import give_back
from kinfolk.text.tokenizer import Text

__all__ = ["Inputs", "Row", "write_judged"]

LOOKED_AT = 4096  # rows at once, when the input is looked through
Given = TypeVar("Given")


@dataclass
class Inputs(Generic[Given]):
    """The rows of a table, or the lines of a text, each with what the model is given of it.

    `give` makes that from the row's text or pair and its place, file:line. Up to `max_bad_rows` bad rows are left out
    (None: none are, and no message speaks of it); `bad` says how many, once the file was looked through.
    """

    source: str | Path
    give: Callable[[Text, str], Given]
    text: str | None = None
    pair: str | None = None
    header: Sequence[str] | None = None
    max_bad_rows: int | None = None
    bad: int = field(default=0, init=False)
    form: Form | None = field(default=None, init=False)

    def look_through(self, form: Form) -> None:
        """Find the bad rows, and those that do not fit into the output; the first twenty are told together."""
        self.form = form
        if str(self.source) == STDIN:
            return
        problems = Problems(str(self.source), self.max_bad_rows)
        typed = form.columns is not None and _suffix(self.source) == PARQUET
        for rows in chunks((row for row, _, _ in self._rows(problems)), LOOKED_AT):
            if not typed:
                form.look_at(rows)
        problems.tell()
        if typed and form.columns is not None:
            form.columns.take_from(Path(self.source))
        self.bad = problems.count

    def __iter__(self) -> Iterator[tuple[Row, Given]]:
        problems = Problems(name_of(self.source), self.max_bad_rows)
        for row, text, place in self._rows(problems):
            if problems.count > (self.max_bad_rows or 0):
                break
            yield row, self.give(text, place)
        problems.tell()
        self.bad = problems.count

    def _rows(self, problems: Problems) -> Iterator[tuple[Row, Text, str]]:
        if not is_table(self.source) and _suffix(self.source) != PARQUET:
            if self.text or self.pair or self.header:
                raise DataError(f"{problems.where}: plain lines have no columns, so none can be named")
            for number, line in numbered_lines(self.source, problems):
                yield {COLUMN: line}, line, f"{problems.where}:{number}"
            return
        columns = None
        for number, row in table_rows(Path(self.source), problems, self.header):
            if columns is None:
                columns = find_columns(str(self.source), list(row), self.text, self.pair, None, needs_label=False)
            fault = _fault(row, columns) or (None if self.form is None else self.form.fault(row))
            if fault:
                problems.add(number, fault)
            else:
                text = row[columns.text] if columns.pair is None else (row[columns.text], row[columns.pair])
                yield row, text, f"{self.source}:{number}"


def _suffix(path: str | Path) -> str:
    return Path(path).suffix.lower()


def _fault(row: Row, columns: Columns) -> str | None:
    for name in columns.named:
        if name not in row:
            return no_column(name, list(row))
        if not isinstance(row[name], str):
            return f'"{name}" is {json_kind(row[name])}, expected a string'
    return None


def write_judged(
    inputs: Iterable[tuple[Row, Given]],
    output: str | Path,
    judge: Callable[[Sequence[Given]], Iterable[Row]],
    chunk: int,
    report: Callable[[int], None],
) -> int:
    """Write every row with the columns that `judge` adds, `chunk` rows at a time; how many there were.

    A new column whose name the row already has is called predicted_….
    """
    form = Form(output)
    if isinstance(inputs, Inputs):
        inputs.look_through(form)
    count = 0
    with replacing(Path(output)) as stream:
        writer = form.writer(stream)
        for rows in chunks(inputs, chunk):
            judged = zip(rows, judge([given for _, given in rows]), strict=True)
            writer.write([_with_columns(row, found) for (row, _), found in judged])
            count += len(rows)
            report(len(rows))
            give_back()
        writer.finish()
    return count


def _with_columns(row: Row, found: Row) -> dict[str, Any]:
    return row | {name if name not in row else f"predicted_{name}": value for name, value in found.items()}
