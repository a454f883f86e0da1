"""Markdown with texts from users, escaped: whatever a label or a text holds, it stays in its cell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

MAX_CELL = 80
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~$&#@])")


def plain(text: str, limit: int = MAX_CELL) -> str:
    """One line of at most `limit` characters, without unprintable ones."""
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in " ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def escaped(text: str, limit: int = MAX_CELL) -> str:
    """As `plain`, with Markdown's special characters escaped."""
    return SPECIAL.sub(r"\\\1", plain(text, limit))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], limit: int = MAX_CELL) -> str:
    """A table; texts are escaped and cut, fractions have four digits, whole numbers thousands apart."""
    cells = [[_cell(value, limit) for value in row] for row in (header, *rows)]
    lines = [cells[0], ["---"] * len(header), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object, limit: int) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else escaped(str(value), limit)


def page(title: str, sections: Mapping[str, str]) -> str:
    """A whole page; sections without a text are left out."""
    return "\n\n".join([f"# {title}", *(f"## {name}\n\n{text}" for name, text in sections.items() if text)]) + "\n"


def indented(text: str) -> str:
    """A block that is shown as it is."""
    lines = (re.sub(r"[^\S ]", " ", line) for line in text.splitlines())
    return "\n".join(f"    {line}" for line in lines).encode("utf-8", "replace").decode()
