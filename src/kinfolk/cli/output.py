"""Results on stdout, as a table for a reader or as JSON for a script; everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO


def log_line(line: str) -> None:
    """One line that is not a result; where nobody can be told, the exit code still tells."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Nobody can read this any more: what is left in it must not trouble Python when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(content: Any) -> None:
    """The result for a script, one document."""
    print(json.dumps(content, ensure_ascii=False, indent=2))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns below their names: numbers to the right, text to the left; wide letters count twice."""
    from rich.cells import cell_len, set_cell_size

    body = [list(row) for row in rows]
    lines = [list(header), *([visible(cell) for cell in row] for row in body)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    numeric = [all(isinstance(cell, int | float | None) for cell in column) for column in zip(*body, strict=True)]
    numeric = numeric or [False] * len(header)
    for line in lines:
        cells = [
            " " * (width - cell_len(cell)) + cell if right else set_cell_size(cell, width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(cells).rstrip())


def visible(cell: object) -> str:
    """A value as it can stand in a line: four decimals, control characters escaped."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}"
    text = str(cell)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
