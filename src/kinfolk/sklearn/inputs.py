"""X as scikit-learn's users have it: lists, tuples, arrays, Series and frames of texts, pairs or words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kinfolk.errors import InputError
from kinfolk.text.tokenizer import Text


def texts_of(X: Any) -> list[Text]:  # noqa: N803
    """The texts of X. Two columns, or a list whose items are two texts each, are pairs."""
    return [_text(item, number) for number, item in enumerate(items_of(X))]


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


def _text(item: Any, number: int) -> Text:
    if isinstance(item, str):
        return item
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return item[0], item[1]
    found = f"{type(item).__name__} ({str(item)[:40]!r})"
    raise InputError(f"text {number} is a {found}; expected a string, or two of them for a pair")


def same_length(texts: Sequence[object], labels: Sequence[object]) -> None:
    """X and y belong together, and there is something to learn from."""
    if len(texts) != len(labels):
        raise InputError(f"X has {len(texts):,} texts, y {len(labels):,} labels; there must be one label for each text")
    if not texts:
        raise InputError("X is empty; there is nothing to learn from")
