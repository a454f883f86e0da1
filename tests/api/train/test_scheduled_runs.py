"""Scheduled sampling reaches the training of a translator, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from small_pairs import train, weights

SHORT: dict[str, Any] = {"count": 60, "steps": 3, "evaluations": 1, "vocabulary_size": 40}


@pytest.mark.parametrize(
    ("kind", "mode"), [("transformer", "two-pass"), ("seq2seq", "two-pass"), ("seq2seq", "step-wise")]
)
def test_a_model_that_reads_its_own_guesses_learns_something_else(kind: str, mode: str, tmp_path: Path) -> None:
    free = {"scheduled_sampling": 1.0, "sampling_schedule": "constant", "sampling_mode": mode}
    train(tmp_path / "forced", kind, **SHORT)
    train(tmp_path / "free", kind, **SHORT, **free)
    assert weights(tmp_path / "forced") != weights(tmp_path / "free")
    for name in ("report.md", "model/README.md"):
        assert f"| scheduled sampling | at most 1, constant, {mode} |" in (tmp_path / "free" / name).read_text()
        assert "scheduled sampling" not in (tmp_path / "forced" / name).read_text()


def test_a_chance_that_rises_from_nothing_leaves_the_first_step_alone(tmp_path: Path) -> None:
    one = SHORT | {"steps": 1}
    train(tmp_path / "forced", "seq2seq", **one)
    train(tmp_path / "linear", "seq2seq", **one, scheduled_sampling=1.0)
    assert weights(tmp_path / "forced") == weights(tmp_path / "linear")
