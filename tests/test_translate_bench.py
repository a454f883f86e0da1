"""What the benchmark of translators says of its figures is computed from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def benches_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1]))


def best_seconds(seconds: dict[tuple[str, str], float]) -> Any:
    return {key: (took, np.zeros(0)) for key, took in seconds.items()}


def test_floors_and_aims_are_checked() -> None:
    from bench.translate import FAST, GENERATE, PADDED, US, verdict

    setting = f"{PADDED}, with our allocator setting"
    training = best_seconds({(task, name): 17.0 for task in ("shuffled", "sorted") for name in (PADDED, setting)})
    training |= best_seconds({(task, US): 10.0 for task in ("shuffled", "sorted")})
    peers = {GENERATE: 13.0, **dict.fromkeys(FAST, 20.0), next(iter(FAST)): 9.0}
    written = best_seconds({("translate", name): took for name, took in peers.items()} | {("translate", US): 10.0})
    text = verdict(training, written)
    assert "In training kinfolk is 1.70 times as fast as transformers" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| tra")]
    assert [[cell.strip(" |") for cell in row[2:]] for row in rows] == [
        ["1.700", "1.6", "yes", "2", "no"],
        ["1.300", "1.35", "no", "", ""],
        ["0.900", "0.85", "yes", "1", "no"],
    ]
    assert rows[2][1] == next(iter(FAST))  # the faster way of float32
