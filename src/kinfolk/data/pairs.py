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

from kinfolk.data.examples import fingerprint
from kinfolk.data.formats import TABLE_SUFFIXES, is_table, is_utf8, numbered_lines, raw_lines
from kinfolk.data.tables import table_rows
from kinfolk.errors import DataError, InputError, RowErrors, json_type, missing_column

COLUMNS = ("source", "target")
MOST_HELD = 2_000  # pairs that are held out; a tenth of all where that is less
SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Pair:
    """A source, its target, and where they stand."""

    source: str
    target: str
    location: str


@dataclass(frozen=True, slots=True)
class ReadPairs:
    """The good pairs, and how many rows were left out."""

    pairs: list[Pair]
    bad: int


def read_pairs(path: str | Path, columns: Sequence[str] | None = None, max_bad_rows: int = 0) -> ReadPairs:
    """The pairs of one file; `columns` names the source's and the target's."""
    path = Path(path)
    if columns is not None and (isinstance(columns, str) or len(columns) != 2 or columns[0] == columns[1]):
        raise InputError(f"columns={columns!r} must be the names of two columns, the source's and the target's")
    if not is_table(path):
        raise DataError(f"{path}: pairs stand in a table ({', '.join(TABLE_SUFFIXES)}), or in two files of lines")
    problems = RowErrors(str(path), max_bad_rows)
    if path.suffix.lower() == ".tsv" and columns is None:
        return _gathered(_tabbed(path, problems), problems)
    return _gathered(_columns(path, problems, columns or COLUMNS), problems)


def read_parallel(source: str | Path, target: str | Path, max_bad_rows: int = 0) -> ReadPairs:
    """The pairs of two files of lines: line n belongs to line n."""
    problems = RowErrors(str(source), max_bad_rows)
    return _gathered(_beside(Path(source), Path(target), problems), problems)


def to_pairs(given: Iterable[Any]) -> list[Pair]:
    """Pairs that are in memory already, as Pair or as two texts each."""
    found = []
    for number, item in enumerate(given, 1):
        if isinstance(item, Pair):
            found.append(item)
            continue
        if isinstance(item, str) or not (isinstance(item, Sequence) and len(item) == 2):
            raise InputError(f"pair {number} is {str(item)[:40]!r}; expected two texts, the source and the target")
        pair = Pair(item[0], item[1], f"pair {number}")
        fault = _fault(pair)
        if fault:
            raise InputError(f"pair {number}: {fault}")
        found.append(pair)
    return found


def hold_out(
    pairs: Sequence[Pair], share: float = SHARE, most: int = MOST_HELD, seed: int = 0
) -> tuple[list[Pair], list[Pair]]:
    """(to train on, held out): a tenth, but at most 2,000. No source is on both sides, and order is kept.

    Sources that differ only in case or blanks are the same; all pairs of one go to the same side.
    """
    groups: dict[bytes, list[int]] = {}
    for number, pair in enumerate(pairs):
        groups.setdefault(fingerprint((pair.source,)), []).append(number)
    if len(groups) < 2:
        raise DataError(f"{len(pairs)} pairs with {len(groups)} sources are too few to hold some out; give a dev file")
    wanted = max(1, min(most, int(share * len(pairs))))
    held: set[int] = set()
    order = list(groups.values())
    random.Random(f"{seed} split").shuffle(order)
    for group in order[:-1]:  # one source stays in any case
        if len(held) + len(group) <= wanted:
            held.update(group)
    if not held:
        smallest: list[int] = min(order, key=len)
        held.update(smallest)
    kept = [pair for number, pair in enumerate(pairs) if number not in held]
    return kept, [pairs[number] for number in sorted(held)]


Row = tuple[int, Any, Any]  # a line, and what stands there for a source and a target


def _gathered(rows: Iterator[Row], problems: RowErrors) -> ReadPairs:
    pairs: list[Pair] = []
    for number, source, target in rows:
        pair = Pair(source, target, f"{problems.location}:{number}")
        fault = _fault(pair)
        if fault:
            problems.add(number, fault)
        else:
            pairs.append(pair)
    problems.raise_if_any()
    if not pairs:
        raise DataError(f"{problems.location}: no pairs in it" + "".join(f"; {one}" for one in problems.messages[:1]))
    return ReadPairs(pairs, problems.count)


def _fault(pair: Pair) -> str | None:
    sides: list[tuple[str, Any]] = [("source", pair.source), ("target", pair.target)]
    for name, text in sides:
        if not isinstance(text, str):
            return f"the {name} is {json_type(text)}, expected a string"
        if not text.strip():
            return f"the {name} is empty"
    return None


def _tabbed(path: Path, problems: RowErrors) -> Iterator[Row]:
    for number, line in numbered_lines(path, problems):
        fields = line.split("\t")
        if fields == [""]:  # a blank line holds no row, as in other tables
            continue
        if len(fields) == 2:
            yield number, fields[0], fields[1]
        else:
            tabs = f"{len(fields) - 1} tabs" if len(fields) > 1 else "no tab"
            problems.add(number, f"{tabs}, expected one between source and target")


def _columns(path: Path, problems: RowErrors, names: Sequence[str]) -> Iterator[Row]:
    first = True
    for number, row in table_rows(path, problems, None):
        missing = [name for name in names if name not in row]
        if missing and first:
            raise DataError(f"{path}:{number}: {missing_column(missing[0], list(row))}; name both columns")
        first = False
        if missing:
            problems.add(number, missing_column(missing[0], list(row)))
        else:
            yield number, row[names[0]], row[names[1]]


def _beside(source: Path, target: Path, problems: RowErrors) -> Iterator[Row]:
    """Both files to their ends: a fault in one must not move the other, and a missing line is told with both counts."""
    counts = [0, 0]
    for side in zip_longest(_counted(source, counts, 0), _counted(target, counts, 1)):
        if None in side:
            continue
        for path, line in zip((source, target), side, strict=True):
            if not is_utf8(line):
                problems.add(counts[0], f"{path} is not UTF-8 text there")
                break
        else:
            yield counts[0], *side
    if counts[0] != counts[1]:
        raise DataError(
            f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: each line needs its counterpart"
        )


def _counted(path: Path, counts: list[int], side: int) -> Iterator[str]:
    for number, line in raw_lines(path):
        counts[side] = number
        yield line
