"""What the lines of log.jsonl tell of a run: step, loss, rate and epoch; metrics and merit where it was evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Entries = Sequence[Mapping[str, Any]]


def best_entry(entries: Entries) -> Mapping[str, Any] | None:
    """The evaluation whose weights are kept: the first with the highest merit."""
    return max((entry for entry in entries if entry.get("metrics")), key=_merit, default=None)


def _merit(entry: Mapping[str, Any]) -> float:
    """Of logs that do not tell it, the first metric."""
    found: float = entry.get("merit", next(iter(entry["metrics"].values())))
    return found
