"""Files in, files out: every row of a table with the columns that a model adds, or a stream of lines.

A table (.csv, .tsv, .jsonl or .parquet, by the file's name) is read twice. The first pass finds bad rows, and rows that
the output could not hold, before anything is computed. The second computes and writes chunk by chunk, and the output
appears when it is complete. Standard input can be read only once, so there it ends at the first bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Generic, TypeVar

from kinfolk.data.batching import chunks
from kinfolk.data.formats import (
    PARQUET,
    STDIN,
    TEXT_COLUMN,
    Row,
    TableFormat,
    display_name,
    is_table,
    numbered_lines,
    numbered_rows,
)
from kinfolk.data.tables import TableColumns, find_columns
from kinfolk.errors import DataError, RowErrors, json_type, missing_column
from kinfolk.files import atomic_write
from kinfolk.machine import trim_memory
from kinfolk.text.tokenizer import Text

CHECKED_ROWS = 4096  # at once, in the first pass
NO_TYPES: Mapping[str, type] = {}
Input = TypeVar("Input")
Reader = Callable[[RowErrors], Iterator[tuple[int, Row, Input]]]  # of each good row: its line, the row, the input
Report = Callable[[int], None]  # called with the number of rows that were just done


@dataclass
class InputRows(Generic[Input]):
    """The rows of a file, each with the model's input.

    Up to `max_bad_rows` bad rows are left out (None: the option is not offered). After the first pass, `bad` is their
    number and `names` has the columns of all rows.
    """

    source: str | Path
    read: Reader[Input]
    max_bad_rows: int | None = None
    bad: int = field(default=0, init=False)
    names: set[str] = field(default_factory=set, init=False)
    format: TableFormat | None = field(default=None, init=False)

    def check(self, format: TableFormat) -> None:
        """The first pass: raise bad rows, and those that do not fit into the output; the first twenty together."""
        self.format = format
        if str(self.source) == STDIN:
            self.names.add(TEXT_COLUMN)
            format.infer_types([{TEXT_COLUMN: ""}])
            return
        problems = RowErrors(str(self.source), self.max_bad_rows)
        typed = format.columns is not None and Path(self.source).suffix.lower() == PARQUET
        for rows in chunks((row for row, _ in self._fitting(problems)), CHECKED_ROWS):
            self.names.update(*rows)
            if not typed:
                format.infer_types(rows)
        problems.raise_if_any()
        if typed and format.columns is not None:
            format.columns.copy_schema(Path(self.source))
        self.bad = problems.count

    def __iter__(self) -> Iterator[tuple[Row, Input]]:
        problems = RowErrors(display_name(self.source), self.max_bad_rows)
        for row, given in self._fitting(problems):
            if problems.count > (self.max_bad_rows or 0):
                break
            yield row, given
        problems.raise_if_any()
        self.bad = problems.count

    def _fitting(self, problems: RowErrors) -> Iterator[tuple[Row, Input]]:
        """The rows that the output can hold."""
        for line, row, given in self.read(problems):
            fault = None if self.format is None else self.format.row_error(row)
            if fault:
                problems.add(line, fault)
            else:
                yield row, given


def text_reader(
    source: str | Path, text: str | None = None, pair: str | None = None, header: Sequence[str] | None = None
) -> Reader[tuple[Text, str]]:
    """Reads the rows of a table, or the lines of a text file: the text or pair of each, and its location, file:line.

    Columns that are not named are guessed; `pair=""` says that there is none.
    """

    def read(problems: RowErrors) -> Iterator[tuple[int, Row, tuple[Text, str]]]:
        if not is_table(source):
            if text or pair or header:
                raise DataError(f"{problems.location}: plain lines have no columns, so none can be named")
            for line, content in numbered_lines(source, problems):
                yield line, {TEXT_COLUMN: content}, (content, f"{problems.location}:{line}")
            return
        columns = None
        for line, row in numbered_rows(Path(source), problems, header=header):
            if columns is None:
                columns = find_columns(str(source), list(row), text, pair, None, needs_label=False)
            fault = _fault(row, columns)
            if fault:
                problems.add(line, fault)
            else:
                given = row[columns.text] if columns.pair is None else (row[columns.text], row[columns.pair])
                yield line, row, (given, f"{source}:{line}")

    return read


def _fault(row: Row, columns: TableColumns) -> str | None:
    for name in columns.names:
        if name not in row:
            return missing_column(name, list(row))
        if not isinstance(row[name], str):
            return f'"{name}" is {json_type(row[name])}, expected a string'
    return None


def write_table(
    inputs: InputRows[Input],
    output: str | Path,
    predict: Callable[[Sequence[Input]], Iterable[Row]],
    chunk: int,
    report: Report,
    types: Mapping[str, type] = NO_TYPES,
) -> int:
    """Write every row with the columns that `predict` adds, `chunk` rows at a time; the number of rows.

    `types` are those of new columns whose first value may be missing.
    """
    format = TableFormat(output)
    inputs.check(format)
    names: dict[str, str] = {}
    done = 0
    with atomic_write(Path(output)) as stream:
        writer = format.writer(stream)
        try:
            for rows in chunks(inputs, chunk):
                predicted = list(predict([given for _, given in rows]))
                if not names:
                    first = predicted[0]
                    names = _new_names(first, inputs.names)
                    format.infer_types([{names[name]: types.get(name, type(value))() for name, value in first.items()}])
                pairs = zip(rows, predicted, strict=True)
                writer.write([row | {names[name]: added[name] for name in names} for (row, _), added in pairs])
                done += len(rows)
                report(len(rows))
                trim_memory()
        finally:
            writer.finish()
        if not done:  # no row, so the columns are unknown
            raise DataError(f"{display_name(inputs.source)}: there are no rows")
    return done


def _new_names(wanted: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """Names of new columns that overwrite no other: if one name is taken, all get a prefix.

    >>> _new_names(["label", "probability"], ["text", "label"])
    {'label': 'predicted_label', 'probability': 'predicted_probability'}
    """
    prefixes = chain(("", "predicted_"), (f"predicted_{index}_" for index in count(2)))
    free = next(prefix for prefix in prefixes if not any(prefix + name in taken for name in wanted))
    return {name: free + name for name in wanted}


def write_stream(output: str | Path, parts: Iterable[tuple[str, int]], report: Report) -> int:
    """Write parts of a text file as they are computed, each with the number of its texts; the number of all."""
    count = 0
    with atomic_write(Path(output)) as stream:
        for content, done in parts:
            stream.write(content.encode("utf-8", "replace"))
            count += done
            report(done)
            trim_memory()
    return count
