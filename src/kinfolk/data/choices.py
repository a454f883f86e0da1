"""Multiple choice from .jsonl files: rows like SWAG's (sent1, sent2, ending0 …, label) or {context, options, answer}.

SWAG's second sentence is the beginning of every ending: the context is sent1, each option sent2 with one ending.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from kinfolk.data.examples import Choice, ReadResult, read_result
from kinfolk.data.formats import Row, numbered_rows
from kinfolk.errors import DataError, RowErrors, json_type, missing_column


def read_choices(path: str | Path, max_bad_rows: int | None = 0) -> ReadResult[Choice]:
    """The choices of a file."""
    errors = RowErrors(str(path), max_bad_rows)
    return read_result([choice for _, _, choice in choice_rows(Path(path), errors, needs_label=True)], errors)


def choice_rows(path: Path, errors: RowErrors, needs_label: bool) -> Iterator[tuple[int, Row, Choice]]:
    """Each good row of a file, raw and as a choice, with its line; without `needs_label` answers are ignored."""
    if path.suffix.lower() != ".jsonl":
        raise DataError(f"{path}: choices are read from .jsonl files, one object per line")
    for line, row in numbered_rows(path, errors):
        reason = _error(row, needs_label)
        if reason is None:
            context, options, answer = _parts(row)
            answer = int(answer) if needs_label else None
            yield line, row, Choice(context, tuple(options), answer, f"{path}:{line}")
        else:
            errors.add(line, reason)


def _parts(row: Row) -> tuple[Any, Any, Any]:
    if "options" in row:
        return row.get("context"), row["options"], row.get("answer")
    endings = [row[name] for name in takewhile(row.__contains__, (f"ending{index}" for index in count()))]
    options = [f"{row['sent2']} {ending}" if isinstance(ending, str) else ending for ending in endings]
    return row.get("sent1"), options, row.get("label")


def _error(row: Row, needs_label: bool) -> str | None:
    for name in ("context",) if "options" in row else ("sent1", "sent2", "ending0"):
        if name not in row:
            return missing_column(name, list(row))
        if not isinstance(row[name], str):
            return f'"{name}" is {json_type(row[name])}, expected a string'
    _, options, answer = _parts(row)
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
        return "the options must be a list of two or more strings"
    if needs_label and str(answer) not in map(str, range(len(options))):
        return f"the answer {str(answer)[:40]!r} is not the index of an option (0 to {len(options) - 1})"
    return None
