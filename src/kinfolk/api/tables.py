"""Tables with what a model says beside every row: .csv, .tsv, .jsonl or .parquet, by the file's name.

The input is looked through first: bad rows, and rows that the output could not hold, are told before anything is
computed. Then rows are judged and written a chunk at a time, and the file takes its place when it is whole. Standard
input can be read only once, so there it ends at the first bad row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Generic, TypeVar

from kinfolk.data.batching import chunks
from kinfolk.data.formats import PARQUET, STDIN, TEXT_COLUMN, Row, TableFormat, display_name, is_table, numbered_lines
from kinfolk.data.tables import TableColumns, find_columns, table_rows
from kinfolk.errors import DataError, RowErrors, json_type, missing_column
from kinfolk.files import atomic_write
from kinfolk.machine import trim_memory
from kinfolk.text.tokenizer import Text

__all__ = ["Inputs", "Row", "Rows", "write_judged"]

LOOKED_AT = 4096  # rows at once, when the input is looked through
NO_TYPES: Mapping[str, type] = {}
Given = TypeVar("Given")


@dataclass
class Rows(ABC, Generic[Given]):
    """The rows of a file, each with what the model is given of it.

    Up to `max_bad_rows` bad rows are left out (None: none are, and no message speaks of it). Once the file was looked
    through, `bad` says how many, and `names` are all columns that any row has.
    """

    source: str | Path
    max_bad_rows: int | None = field(default=None, kw_only=True)
    bad: int = field(default=0, init=False)
    names: set[str] = field(default_factory=set, init=False)
    form: TableFormat | None = field(default=None, init=False)

    @abstractmethod
    def read(self, problems: RowErrors) -> Iterator[tuple[int, Row, Given]]:
        """Each good row with the number of its line."""

    def look_through(self, form: TableFormat) -> None:
        """Find the bad rows, and those that do not fit into the output; the first twenty are told together."""
        self.form = form
        if str(self.source) == STDIN:
            self.names.add(TEXT_COLUMN)
            form.infer_types([{TEXT_COLUMN: ""}])
            return
        problems = RowErrors(str(self.source), self.max_bad_rows)
        typed = form.columns is not None and _suffix(self.source) == PARQUET
        for rows in chunks((row for row, _ in self._fitting(problems)), LOOKED_AT):
            self.names.update(*rows)
            if not typed:
                form.infer_types(rows)
        problems.raise_if_any()
        if typed and form.columns is not None:
            form.columns.copy_schema(Path(self.source))
        self.bad = problems.count

    def __iter__(self) -> Iterator[tuple[Row, Given]]:
        problems = RowErrors(display_name(self.source), self.max_bad_rows)
        for row, given in self._fitting(problems):
            if problems.count > (self.max_bad_rows or 0):
                break
            yield row, given
        problems.raise_if_any()
        self.bad = problems.count

    def _fitting(self, problems: RowErrors) -> Iterator[tuple[Row, Given]]:
        """The rows that the output can hold."""
        for number, row, given in self.read(problems):
            fault = None if self.form is None else self.form.row_error(row)
            if fault:
                problems.add(number, fault)
            else:
                yield row, given


@dataclass
class Inputs(Rows[Given]):
    """The rows of a table, or the lines of a text; `give` makes what the model is given of a row.

    It gets the row's text or pair and its place, file:line.
    """

    give: Callable[[Text, str], Given]
    text: str | None = None
    pair: str | None = None
    header: Sequence[str] | None = None

    def read(self, problems: RowErrors) -> Iterator[tuple[int, Row, Given]]:
        """Each good row with the number of its line."""
        if not is_table(self.source):
            if self.text or self.pair or self.header:
                raise DataError(f"{problems.location}: plain lines have no columns, so none can be named")
            for number, line in numbered_lines(self.source, problems):
                yield number, {TEXT_COLUMN: line}, self.give(line, f"{problems.location}:{number}")
            return
        columns = None
        for number, row in table_rows(Path(self.source), problems, self.header):
            if columns is None:
                columns = find_columns(str(self.source), list(row), self.text, self.pair, None, needs_label=False)
            fault = _fault(row, columns)
            if fault:
                problems.add(number, fault)
            else:
                text = row[columns.text] if columns.pair is None else (row[columns.text], row[columns.pair])
                yield number, row, self.give(text, f"{self.source}:{number}")


def _suffix(path: str | Path) -> str:
    return Path(path).suffix.lower()


def _fault(row: Row, columns: TableColumns) -> str | None:
    for name in columns.named:
        if name not in row:
            return missing_column(name, list(row))
        if not isinstance(row[name], str):
            return f'"{name}" is {json_type(row[name])}, expected a string'
    return None


def write_judged(
    inputs: Rows[Given],
    output: str | Path,
    judge: Callable[[Sequence[Given]], Iterable[Row]],
    chunk: int,
    report: Callable[[int], None],
    types: Mapping[str, type] = NO_TYPES,
) -> int:
    """Write every row with the columns that `judge` adds, `chunk` rows at a time; how many there were.

    `types` are those of new columns that may be empty: the first row of them does not tell.
    """
    form = TableFormat(output)
    inputs.look_through(form)
    names: dict[str, str] = {}
    done = 0
    with atomic_write(Path(output)) as stream:
        writer = form.writer(stream)
        try:
            for rows in chunks(inputs, chunk):
                judged = list(judge([given for _, given in rows]))
                if not names:
                    names = _new_names(judged[0], inputs.names)
                    form.infer_types(
                        [{names[name]: types.get(name, type(value))() for name, value in judged[0].items()}]
                    )
                pairs = zip(rows, judged, strict=True)
                writer.write([row | {names[name]: found[name] for name in names} for (row, _), found in pairs])
                done += len(rows)
                report(len(rows))
                trim_memory()
        finally:
            writer.finish()
        if not done:  # what the columns would be, no row tells
            raise DataError(f"{display_name(inputs.source)}: there are no rows")
    return done


def _new_names(wanted: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """What new columns are called so that none takes the place of another: if one name is taken, all get a prefix.

    >>> _new_names(["label", "probability"], ["text", "label"])
    {'label': 'predicted_label', 'probability': 'predicted_probability'}
    """
    prefixes = chain(("", "predicted_"), (f"predicted_{number}_" for number in count(2)))
    free = next(prefix for prefix in prefixes if not any(prefix + name in taken for name in wanted))
    return {name: free + name for name in wanted}
