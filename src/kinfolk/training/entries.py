"""What the lines of log.jsonl tell of a run: `step`, `loss`, `rate`, `epoch`, and `metrics` where it was evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Entries = Sequence[Mapping[str, Any]]


def best_entry(entries: Entries) -> Mapping[str, Any] | None:
    """The evaluation whose weights are kept: the first with the highest merit, of equals that of least loss."""
    judged = [entry for entry in entries if entry.get("metrics")]
    return max(judged, key=lambda entry: _rank(entry["metrics"]), default=None)


def _rank(metrics: Mapping[str, float]) -> tuple[float, float]:
    return next(iter(metrics.values())), -metrics.get("loss", 0.0)
