"""X and y as scikit-learn's users have them: lists, tuples, arrays, Series and frames; labels keep their own type.

X holds texts, pairs of texts, or words. y holds numbers, tags, or labels in one of three forms:

ONE     a label of any hashable type for each text
LISTS   any number of labels: a list (tuple, set) of them for each text
TABLE   the same as a table of zeros and ones, a column for each label; a frame's columns name the labels

A model knows labels by name: `str` of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinfolk.data.examples import Example
from kinfolk.data.tagging import detect_scheme, to_iob2
from kinfolk.errors import InputError, shorten_list, type_name
from kinfolk.tasks.tagged import places_of
from kinfolk.text.tokenizer import Text

ONE, LISTS, TABLE = "one", "lists", "table"
NESTED = (list, tuple, set, frozenset, np.ndarray)
PLAIN = (str, bool, int, float)  # numpy has arrays of its own for these


def texts_of(X: Any) -> list[Text]:  # noqa: N803
    """The texts of X. Two columns, or a list whose items are two texts each, are pairs."""
    texts: list[Text] = []
    for index, item in enumerate(items_of(X)):
        if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, str) for part in item):
            texts.append((item[0], item[1]))
        elif isinstance(item, str):
            texts.append(item)
        else:
            content = f"{type(item).__name__} ({str(item)[:40]!r})"
            raise InputError(f"text {index} is a {content}; expected a string, or two of them for a pair")
    return texts


def words_of(X: Any) -> list[list[str]]:  # noqa: N803
    """The words of each text."""
    sentences = []
    for index, item in enumerate(items_of(X)):
        text, offsets = places_of(item.tolist() if isinstance(item, np.ndarray) else item, f"text {index}")
        sentences.append([text[start:end] for start, end in offsets])
    return sentences


def items_of(X: Any) -> list[Any]:  # noqa: N803
    """What X holds, one item for each text; the row of a table with several columns is a list."""
    shape = getattr(X, "shape", None)
    if isinstance(X, str | bytes | Mapping) or shape == () or not isinstance(X, Iterable):
        raise InputError(f"expected a list of texts, found a single {type(X).__name__}; wrap it in a list")
    if shape is None or len(shape) == 1:
        return list(X)
    if len(shape) > 2 or shape[1] not in (1, 2):
        raise InputError(f"X has shape {tuple(shape)}; give one column of texts, or two for pairs")
    rows: list[Any] = np.asarray(X, dtype=object).tolist()
    return [row[0] for row in rows] if shape[1] == 1 else rows


def examples_of(texts: Sequence[Text], labels: Sequence[Any]) -> list[Example]:
    """What a text classifier or regressor is trained on."""
    sides: list[tuple[str, str | None]] = [(text, None) if isinstance(text, str) else text for text in texts]
    rows = enumerate(zip(sides, labels, strict=True))
    return [Example(text, pair, label, f"text {index}") for index, ((text, pair), label) in rows]


def check_lengths(texts: Sequence[object], labels: Sequence[object]) -> None:
    """X and y belong together, and there is something to train on."""
    if len(texts) != len(labels):
        raise InputError(f"X has {len(texts):,} texts, y {len(labels):,} labels; there must be one label for each text")
    if not texts:
        raise InputError("X is empty; there is nothing to learn from")


def numbers_of(y: Any) -> list[float]:
    """The numbers of a list, array, Series or one-column frame."""
    shape = getattr(y, "shape", (0,))
    if shape[1:] not in ((), (1,)):
        raise InputError(f"y has shape {tuple(shape)}; give one number for each text")
    numbers = list(y) if not hasattr(y, "shape") else np.asarray(y, dtype=object).reshape(-1).tolist()
    for index, number in enumerate(numbers):
        try:
            finite = not isinstance(number, bool | str) and math.isfinite(number)
        except (TypeError, OverflowError):
            finite = False
        if not finite:
            raise InputError(f"label {index} is {str(number)[:40]!r}, expected a finite number")
    return [float(number) for number in numbers]


def tags_of(y: Any) -> list[tuple[str, ...]]:
    """The tags of each text, in IOB2 where they mark spans."""
    rows = [item.tolist() if isinstance(item, np.ndarray) else item for item in items_of(y)]
    for index, tags in enumerate(rows):
        if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) and tag for tag in tags):
            raise InputError(f"y holds {str(tags)[:40]!r} for text {index}; expected a list of tags, one for each word")
    scheme = detect_scheme(rows)
    for index, tags in enumerate(rows):
        try:
            rows[index] = to_iob2(tuple(tags), scheme)
        except InputError as error:
            raise InputError(f"text {index}, {error}") from None
    return rows


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


def labels_of(y: Any) -> Labels:
    """The labels of y, in whichever form they are."""
    columns, rows = getattr(y, "columns", None), _rows(y)
    nested = [isinstance(row, NESTED) for row in rows]
    if not any(nested):
        return Labels(ONE, _classes(rows, y), rows)
    if not all(nested):
        raise InputError(f"y mixes lists of labels with single ones: see its items 0 and {nested.index(not nested[0])}")
    rows = [list(row) for row in rows]
    width = len(rows[0])  # zeros and ones only, in rows of one length: as lists of labels they would say nothing
    if width > 1 and all(len(row) == width and all(label in (0, 1) for label in row) for row in rows):
        classes = np.arange(width) if columns is None else np.asarray(columns)
        names: list[Any] = classes.tolist()
        return Labels(
            TABLE, classes, [tuple(name for name, one in zip(names, row, strict=True) if one) for row in rows]
        )
    if getattr(y, "ndim", 1) == 2:
        raise InputError("y is a table that does not hold zeros and ones only; give one label, or a list, per text")
    unique = [tuple(dict.fromkeys(row)) for row in rows]
    return Labels(LISTS, _classes([label for row in rows for label in row], None), unique)


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


def _classes(labels: Sequence[Any], y: Any) -> np.ndarray:
    """The distinct labels in order; as an array of y's own dtype, where it is an array."""
    for index, label in enumerate(labels):
        fault = _fault(label)
        if fault:
            raise InputError(f"label {index} {fault}")
    try:
        distinct = sorted(set(labels))
    except TypeError:
        types = sorted({type(label).__name__ for label in labels})
        if len(types) > 1:
            raise InputError(f"y mixes labels of different types ({shorten_list(types)}); use one type") from None
        distinct = sorted(set(labels), key=str)
    names = [str(label) for label in distinct]
    if len(set(names)) < len(names):
        raise InputError(f"two labels are written alike: {shorten_list(names)}")
    dtype = getattr(y, "dtype", None)
    if isinstance(dtype, np.dtype):
        return np.array(distinct, dtype=dtype)
    if all(isinstance(label, PLAIN) for label in distinct):
        return np.array(distinct)
    classes = np.empty(len(distinct), dtype=object)  # numpy would take labels that are sequences apart
    classes[:] = distinct
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
