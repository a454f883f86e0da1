"""Correlations where they are not defined: zero, never NaN, which no checkpoint could be compared by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinfolk
from kinfolk.training.metrics import regression

ONE_TENTH = np.full(7, 0.1)
RISING = np.arange(7.0)


def test_a_constant_whose_deviation_is_a_rounding_error_is_constant() -> None:
    assert ONE_TENTH.std() > 0


@pytest.mark.parametrize(
    ("guesses", "truth"),
    [(ONE_TENTH, RISING), (RISING, ONE_TENTH), (ONE_TENTH, ONE_TENTH), (RISING[:1],) * 2],
    ids=["guesses", "truth", "both", "one text"],
)
@pytest.mark.filterwarnings("error")
def test_an_undefined_correlation_is_zero(guesses: np.ndarray, truth: np.ndarray) -> None:
    found = regression(guesses[:, None], truth)
    assert (found["pearson"], found["spearman"]) == (0.0, 0.0)
    assert found["mean_absolute_error"] == pytest.approx(np.abs(guesses - truth).mean())


def test_a_defined_one_is_what_it_was() -> None:
    found = regression(-(RISING[:, None] ** 3), RISING)
    assert found["pearson"] == pytest.approx(np.corrcoef(-(RISING**3), RISING)[0, 1])
    assert found["spearman"] == pytest.approx(-1)


def test_a_run_whose_predictions_are_all_equal_ends_with_a_score(tiny_bert: Path, tmp_path: Path) -> None:
    dev = [("the same text", float(number)) for number in range(7)]
    rows = [(f"text {number}", float(number)) for number in range(6)]
    run = kinfolk.finetune(tiny_bert, rows, tmp_path / "run", dev=dev, task="regress", steps=2, device="cpu")
    assert run.metrics["pearson"] == 0.0
    assert any("learned nothing" in note for note in run.notes)
