"""Multiple choice from .jsonl files: rows like SWAG's (sent1, sent2, ending0 …, label) or {context, options, answer}.

SWAG's second sentence is the beginning of every ending: the context is sent1, each option sent2 with one ending.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from kinfolk.data.examples import Choice, ReadResult, finished
from kinfolk.data.formats import numbered_rows
from kinfolk.errors import DataError, RowErrors, json_type, missing_column

PLAIN = ("context", "options", "answer")


def read_choices(path: str | Path, needs_label: bool = True, max_bad_rows: int | None = 0) -> ReadResult[Choice]:
    """The choices of a file. Without `needs_label` answers are not looked at."""
    problems = RowErrors(str(path), max_bad_rows)
    choices = [choice for _, _, choice in choice_rows(Path(path), problems, needs_label)]
    return finished(choices, problems, needs_some=needs_label)


def choice_rows(path: Path, problems: RowErrors, needs_label: bool) -> Iterator[tuple[int, dict[str, Any], Choice]]:
    """Each good row of a file as it stands and as a choice, with its line."""
    if path.suffix.lower() != ".jsonl":
        raise DataError(f"{path}: choices are read from .jsonl files, one object per line")
    for number, row in numbered_rows(path, problems):
        fault = _fault(row, needs_label)
        if fault is None:
            context, options, answer = _parts(row)
            answer = int(answer) if needs_label else None
            yield number, row, Choice(context, tuple(options), answer, f"{path}:{number}")
        else:
            problems.add(number, fault)


def _parts(row: dict[str, Any]) -> tuple[Any, Any, Any]:
    if "options" in row:
        return row.get("context"), row["options"], row.get("answer")
    endings = [row[name] for name in takewhile(row.__contains__, (f"ending{number}" for number in count()))]
    begun = [f"{row['sent2']} {ending}" if isinstance(ending, str) else ending for ending in endings]
    return row.get("sent1"), begun, row.get("label")


def _fault(row: dict[str, Any], needs_label: bool) -> str | None:
    for name in PLAIN[:1] if "options" in row else ("sent1", "sent2", "ending0"):
        if name not in row:
            return missing_column(name, list(row))
        if not isinstance(row[name], str):
            return f'"{name}" is {json_type(row[name])}, expected a string'
    _, options, answer = _parts(row)
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
        return "the options must be a list of two or more strings"
    if needs_label and str(answer) not in map(str, range(len(options))):
        return f"the answer {str(answer)[:40]!r} is not the number of an option (0 to {len(options) - 1})"
    return None
