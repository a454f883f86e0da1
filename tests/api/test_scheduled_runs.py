"""Scheduled sampling reaches the training of a translator, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from small_pairs import train, weights

SHORT: dict[str, Any] = {"count": 60, "steps": 3, "evaluations": 1, "vocabulary_size": 40}


@pytest.mark.parametrize(("kind", "way"), [("transformer", "passes"), ("seq2seq", "passes"), ("seq2seq", "steps")])
def test_a_model_that_reads_its_own_guesses_learns_something_else(kind: str, way: str, tmp_path: Path) -> None:
    free = {"scheduled_sampling": 1.0, "sampling_schedule": "constant", "sampling_way": way}
    train(tmp_path / "forced", kind, **SHORT)
    train(tmp_path / "free", kind, **SHORT, **free)
    assert weights(tmp_path / "forced") != weights(tmp_path / "free")
    for name in ("report.md", "model/README.md"):
        assert f"| own guesses read | at most 1, constant, in {way} |" in (tmp_path / "free" / name).read_text()
        assert "own guesses" not in (tmp_path / "forced" / name).read_text()


def test_a_chance_that_rises_from_nothing_leaves_the_first_step_alone(tmp_path: Path) -> None:
    one = SHORT | {"steps": 1}
    train(tmp_path / "forced", "seq2seq", **one)
    train(tmp_path / "linear", "seq2seq", **one, scheduled_sampling=1.0)
    assert weights(tmp_path / "forced") == weights(tmp_path / "linear")
