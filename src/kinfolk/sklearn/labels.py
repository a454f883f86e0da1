"""y as scikit-learn's users have it, and labels in their own type again.

ONE     a label of any hashable kind for each text
LISTS   any number of labels: a list (tuple, set) of them for each text
TABLE   the same as a table of zeros and ones, a column for each label; a frame's columns name the labels

A model knows labels by name: `str` of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinfolk.errors import InputError, shorten_list, type_name

ONE, LISTS, TABLE = "one", "lists", "table"
NESTED = (list, tuple, set, frozenset, np.ndarray)
PLAIN = (str, bool, int, float)  # numpy has arrays of its own for these


@dataclass(frozen=True)
class Labels:
    """The classes in sorted order, and each text's label, or its tuple of labels."""

    form: str
    classes: np.ndarray
    rows: list[Any]

    def names(self) -> list[Any]:
        """The rows as a model takes them."""
        if self.form == ONE:
            return [str(label) for label in self.rows]
        return [tuple(str(label) for label in row) for row in self.rows]


def read_labels(y: Any) -> Labels:
    """The labels of y, in whichever form they are."""
    columns = getattr(y, "columns", None)
    rows = _rows(y)
    nested = [isinstance(row, NESTED) for row in rows]
    if not any(nested):
        return Labels(ONE, _classes(rows, y), rows)
    if not all(nested):
        place = nested.index(not nested[0])
        raise InputError(f"y mixes lists of labels with single ones: see its items 0 and {place}")
    rows = [list(row) for row in rows]
    if not _is_table(rows):
        if getattr(y, "ndim", 1) == 2:
            raise InputError("y is a table that does not hold zeros and ones only; give one label, or a list, per text")
        return Labels(LISTS, _classes([label for row in rows for label in row], None), _unique(rows))
    classes = np.arange(len(rows[0])) if columns is None else np.asarray(columns)
    named: list[Any] = classes.tolist()
    return Labels(TABLE, classes, [tuple(name for name, one in zip(named, row, strict=True) if one) for row in rows])


def names_of(classes: np.ndarray) -> list[str]:
    """What a model calls them."""
    return [str(label) for label in classes.tolist()]


def _rows(y: Any) -> list[Any]:
    if isinstance(y, str | bytes) or not isinstance(y, Iterable):
        raise InputError(f"expected a list of labels, found a single {type(y).__name__}")
    if hasattr(y, "toarray"):  # a sparse table
        y = y.toarray()
    shape = getattr(y, "shape", None)
    if shape is None:
        return [label.item() if isinstance(label, np.generic) else label for label in y]
    if len(shape) > 2:
        raise InputError(f"y has shape {tuple(shape)}; give one label, or a row of labels, per text")
    rows: list[Any] = np.asarray(y).tolist()
    return [row[0] for row in rows] if shape[1:] == (1,) else rows


def _is_table(rows: Sequence[list[Any]]) -> bool:
    """Rows of one length, zeros and ones only? As lists of labels such rows would say nothing."""
    width = len(rows[0])
    return width > 1 and all(len(row) == width and all(label in (0, 1) for label in row) for row in rows)


def _unique(rows: Iterable[list[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(dict.fromkeys(row)) for row in rows]


def _classes(labels: Sequence[Any], y: Any) -> np.ndarray:
    """The different labels in order; as an array of y's own kind, where it is an array."""
    for number, label in enumerate(labels):
        fault = _fault(label)
        if fault:
            raise InputError(f"label {number} {fault}")
    found = _ordered(set(labels))
    names = [str(label) for label in found]
    if len(set(names)) < len(names):
        raise InputError(f"two labels are written alike: {shorten_list(names)}")
    kind = getattr(y, "dtype", None)
    if isinstance(kind, np.dtype):
        return np.array(found, dtype=kind)
    if all(isinstance(label, PLAIN) for label in found):
        return np.array(found)
    classes = np.empty(len(found), dtype=object)  # numpy would take labels that are sequences apart
    classes[:] = found
    return classes


def _fault(label: Any) -> str | None:
    if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
        return f"is missing ({label}); leave such rows out"
    try:
        hash(label)
    except TypeError:
        return f"is {type_name(label)}, which cannot be a label"
    if isinstance(label, float) and not label.is_integer():
        return f"is the number {label}; TextRegressor learns numbers"
    return None


def _ordered(labels: set[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        if len(kinds) > 1:
            raise InputError(f"y mixes labels of different types ({shorten_list(kinds)}); use one type") from None
        return sorted(labels, key=str)
