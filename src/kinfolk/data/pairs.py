"""Pairs of a source and its target: from one file with two columns, or from two files with as many lines.

    .tsv                   source TAB target, no header; with `columns` the first line names its columns
    .csv, .jsonl, .parquet two columns, `source` and `target` unless `columns` names others
    two files              line n of the one belongs to line n of the other

Nothing here knows what the two sides are: two languages, or dates and the same dates in another form.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kinfolk.data.examples import ReadResult, fingerprint, read_result
from kinfolk.data.formats import TABLE_SUFFIXES, is_table, is_utf8, numbered_lines, numbered_rows, raw_lines
from kinfolk.errors import DataError, InputError, RowErrors, json_type, missing_column

COLUMNS = ("source", "target")
MAX_DEV_PAIRS = 2_000
DEV_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Pair:
    """A source, its target, and their location."""

    source: str
    target: str
    location: str


def read_pairs(path: str | Path, columns: Sequence[str] | None = None, max_bad_rows: int = 0) -> ReadResult[Pair]:
    """The pairs of one file; `columns` names the source's and the target's."""
    path = Path(path)
    if columns is not None and (isinstance(columns, str) or len(columns) != 2 or columns[0] == columns[1]):
        raise InputError(f"columns={columns!r} must be the names of two columns, the source's and the target's")
    if not is_table(path):
        raise DataError(f"{path}: pairs are in a table ({', '.join(TABLE_SUFFIXES)}), or in two files of lines")
    errors = RowErrors(str(path), max_bad_rows)
    if path.suffix.lower() == ".tsv" and columns is None:
        return _collect(_tab_separated(path, errors), errors)
    return _collect(_columns(path, errors, columns or COLUMNS), errors)


def read_parallel(source: str | Path, target: str | Path, max_bad_rows: int = 0) -> ReadResult[Pair]:
    """The pairs of two files of lines: line n belongs to line n."""
    errors = RowErrors(str(source), max_bad_rows)
    return _collect(_parallel(Path(source), Path(target), errors), errors)


def to_pairs(items: Iterable[Any]) -> list[Pair]:
    """Pairs in memory, each a Pair or two texts."""
    pairs = []
    for number, item in enumerate(items, 1):
        if isinstance(item, Pair):
            pairs.append(item)
            continue
        if isinstance(item, str) or not (isinstance(item, Sequence) and len(item) == 2):
            raise InputError(f"pair {number} is {str(item)[:40]!r}; expected two texts, the source and the target")
        pair = Pair(item[0], item[1], f"pair {number}")
        reason = _error(pair)
        if reason:
            raise InputError(f"pair {number}: {reason}")
        pairs.append(pair)
    return pairs


def hold_out(
    pairs: Sequence[Pair], share: float = DEV_SHARE, limit: int = MAX_DEV_PAIRS, seed: int = 0
) -> tuple[list[Pair], list[Pair]]:
    """(train, dev): a tenth is held out for dev, but at most 2,000. No source is on both sides, and order is kept.

    Sources that differ only in case or blanks are the same; all pairs of one go to the same side.
    """
    groups: dict[bytes, list[int]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault(fingerprint((pair.source,)), []).append(index)
    if len(groups) < 2:
        raise DataError(f"{len(pairs)} pairs with {len(groups)} sources are too few to hold some out; give a dev file")
    wanted = max(1, min(limit, int(share * len(pairs))))
    dev: set[int] = set()
    order = list(groups.values())
    random.Random(f"{seed} split").shuffle(order)
    for group in order[:-1]:  # one source stays in any case
        if len(dev) + len(group) <= wanted:
            dev.update(group)
    if not dev:
        smallest: list[int] = min(order, key=len)
        dev.update(smallest)
    train = [pair for index, pair in enumerate(pairs) if index not in dev]
    return train, [pairs[index] for index in sorted(dev)]


Row = tuple[int, Any, Any]  # a line, and the values for source and target


def _collect(rows: Iterator[Row], errors: RowErrors) -> ReadResult[Pair]:
    pairs: list[Pair] = []
    for number, source, target in rows:
        pair = Pair(source, target, f"{errors.location}:{number}")
        reason = _error(pair)
        if reason:
            errors.add(number, reason)
        else:
            pairs.append(pair)
    return read_result(pairs, errors)


def _error(pair: Pair) -> str | None:
    sides: list[tuple[str, Any]] = [("source", pair.source), ("target", pair.target)]
    for name, text in sides:
        if not isinstance(text, str):
            return f"the {name} is {json_type(text)}, expected a string"
        if not text.strip():
            return f"the {name} is empty"
    return None


def _tab_separated(path: Path, errors: RowErrors) -> Iterator[Row]:
    for number, line in numbered_lines(path, errors):
        fields = line.split("\t")
        if fields == [""]:  # a blank line holds no row, as in other tables
            continue
        if len(fields) == 2:
            yield number, fields[0], fields[1]
        else:
            tabs = f"{len(fields) - 1} tabs" if len(fields) > 1 else "no tab"
            errors.add(number, f"{tabs}, expected one between source and target")


def _columns(path: Path, errors: RowErrors, names: Sequence[str]) -> Iterator[Row]:
    first = True
    for number, row in numbered_rows(path, errors):
        missing = [name for name in names if name not in row]
        if missing and first:
            raise DataError(f"{path}:{number}: {missing_column(missing[0], list(row))}; name both columns")
        first = False
        if missing:
            errors.add(number, missing_column(missing[0], list(row)))
        else:
            yield number, row[names[0]], row[names[1]]


def _parallel(source: Path, target: Path, errors: RowErrors) -> Iterator[Row]:
    """Both files to their ends: a bad line in one must not shift the other; missing lines are reported with counts."""
    counts = [0, 0]
    for number, lines in enumerate(zip_longest(raw_lines(source), raw_lines(target)), 1):
        counts = [count if line is None else number for count, line in zip(counts, lines, strict=True)]
        if None in lines:
            continue
        bad = [path for path, (_, line) in zip((source, target), lines, strict=True) if not is_utf8(line)]
        if bad:
            errors.add(number, f"{bad[0]} is not UTF-8 text there")
        else:
            yield number, lines[0][1], lines[1][1]
    if counts[0] != counts[1]:
        each = " and ".join(f"{path} has {count:,} lines" for path, count in zip((source, target), counts, strict=True))
        raise DataError(f"{each}: each line needs its counterpart")
