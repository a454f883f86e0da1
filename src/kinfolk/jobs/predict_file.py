"""Predictions for a file: every row kept with its columns, and what the model says beside it.

Output is .csv, .tsv or .jsonl, by its name. Rows are read, judged and written a chunk at a time, and the file takes its
place when it is whole.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kinfolk.data.batching import chunks
from kinfolk.data.columns import find_columns
from kinfolk.data.readers import COLUMN, TABLES, Problems, is_table, numbered_rows, read_lines
from kinfolk.errors import DataError, InputError
from kinfolk.files import replacing
from kinfolk.jobs.classify import CHUNK_TEXTS, classify
from kinfolk.jobs.loaded import Encoder
from kinfolk.jobs.text_task import Prediction
from kinfolk.machine import give_back
from kinfolk.text.tokenizer import Text

Row = dict[str, Any]


def predict_file(
    encoder: Encoder,
    source: str | Path,
    output: str | Path,
    text: str | None = None,
    pair: str | None = None,
    header: Sequence[str] | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> int:
    """Write every row of `source` with the columns label and probability (labels, or value) added; how many rows."""
    suffix = Path(output).suffix.lower()
    if suffix not in TABLES:
        raise InputError(f"{output}: predictions are written to a file that ends in {', '.join(TABLES)}")
    count = 0
    with replacing(Path(output)) as binary:
        stream = io.TextIOWrapper(binary, encoding="utf-8", errors="replace", newline="", write_through=True)
        write = _Writer(stream, suffix)
        for rows in chunks(read_inputs(source, text, pair, header), CHUNK_TEXTS):
            judged = classify(encoder, [given for _, given in rows])
            for (row, _), found in zip(rows, judged, strict=True):
                write.row({**row, **_added(row, found)})
            count += len(rows)
            report(len(rows))
            give_back()
        stream.detach()
    return count


def read_inputs(
    source: str | Path, text: str | None, pair: str | None, header: Sequence[str] | None
) -> Iterator[tuple[Row, Text]]:
    """The rows of a table, or the lines of a text, each with what the model reads of it."""
    if not is_table(source):
        for line in read_lines(source):
            yield {COLUMN: line}, line
        return
    problems = Problems(str(source))
    columns = None
    for number, row in numbered_rows(source, problems, header=header):
        if columns is None:
            columns = find_columns(str(source), list(row), text, pair, None, needs_label=False)
        values = [row.get(name) for name in (columns.text, columns.pair) if name is not None]
        if all(isinstance(value, str) for value in values):
            yield row, values[0] if len(values) == 1 else (values[0], values[1])  # type: ignore[misc]
        else:
            problems.add(number, "the text is missing or is not a string")
        if problems.found:
            break
    problems.tell()


def _added(row: Mapping[str, Any], found: Prediction) -> Row:
    """The new columns, under names that the row does not have yet."""
    if found.value is not None:
        new: Row = {"value": round(found.value, 6)}
    elif found.labels is not None:
        new = {"labels": "|".join(found.labels)}
    else:
        new = {"label": found.label, "probability": round(found.probability or 0.0, 6)}
    return {name if name not in row else f"predicted_{name}": value for name, value in new.items()}


class _Writer:
    """Rows to a csv, tsv or jsonl stream; the first row gives the header."""

    def __init__(self, stream: io.TextIOWrapper, suffix: str):
        self.stream, self.suffix = stream, suffix
        self.names: list[str] = []

    def row(self, row: Row) -> None:
        if self.suffix == ".jsonl":
            self.stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            return
        if not self.names:
            self.names = list(row)
            self._line(self.names)
        if list(row) != self.names:
            raise DataError("rows with different columns cannot stand in one table; write .jsonl")
        self._line([row[name] for name in self.names])

    def _line(self, cells: Sequence[Any]) -> None:
        if self.suffix == ".csv":
            csv.writer(self.stream, lineterminator="\n").writerow(cells)
            return
        texts = ["" if cell is None else str(cell) for cell in cells]
        if any(mark in cell for cell in texts for mark in "\t\n\r"):
            raise DataError("a text with a tab or a line break cannot stand in a .tsv file; write .csv or .jsonl")
        self.stream.write("\t".join(texts) + "\n")
