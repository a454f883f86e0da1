"""Numbers of any size are learned, and reported in their own units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_runs import examples, settings

import kinfolk
from kinfolk.data.examples import Example


def prices(count: int, seed: int = 0) -> list[Example]:
    """Salty texts cost 5,200, sandy ones 4,800."""
    rows = examples(count, seed)
    return [Example(item.text, None, 5200.0 if item.label == "salty" else 4800.0, item.location) for item in rows]


def test_large_numbers_are_learned_and_saved_in_their_own_units(tiny_bert: Path, tmp_path: Path) -> None:
    dev = prices(32, seed=1)
    trained = kinfolk.finetune(
        tiny_bert, prices(96), tmp_path / "run", dev=dev, task="regress", settings=settings(epochs=6.0), device="cpu"
    )
    assert trained.metrics["pearson"] > 0.9
    guesses = [said.value for said in kinfolk.load(tmp_path / "run").classify([item.text for item in dev])]
    errors = np.abs(np.array(guesses) - [item.label for item in dev])
    assert errors.mean() == pytest.approx(trained.metrics["mean_absolute_error"], rel=1e-3)
    assert errors.mean() < 100


def test_the_numbers_farthest_from_the_truth_are_listed(tiny_bert: Path, tmp_path: Path) -> None:
    dev = [("one text", 1.0), ("another", 1e6), ("a third", 2.0)]
    rows = [(f"text {index}", float(index)) for index in range(6)]
    trained = kinfolk.finetune(tiny_bert, rows, tmp_path / "run", dev=dev, task="regress", steps=1, device="cpu")
    first = trained.result.mistakes[0]
    assert (first.text, first.truth, first.probability) == ("another", "1000000.0", None)
    assert "| true value | predicted | location | text |" in (tmp_path / "run" / "report.md").read_text()


def test_so_are_they_on_a_frozen_encoder(tiny_bert: Path, tmp_path: Path) -> None:
    dev = prices(32, seed=1)
    trained = kinfolk.finetune(
        tiny_bert,
        prices(96),
        tmp_path / "run",
        dev=dev,
        task="regress",
        frozen="linear",
        settings=settings(epochs=6.0),
        device="cpu",
    )
    guesses = [said.value for said in kinfolk.load(tmp_path / "run").classify([item.text for item in dev])]
    errors = np.abs(np.array(guesses) - [item.label for item in dev])
    assert errors.mean() == pytest.approx(trained.metrics["mean_absolute_error"], rel=1e-2)
    assert errors.mean() < 300  # a random encoder has little to tell, but the units are right


def test_without_a_dev_set_the_units_are_the_same(tiny_bert: Path, tmp_path: Path) -> None:
    train = prices(48)
    kinfolk.finetune(tiny_bert, train, tmp_path / "run", dev=[], task="regress", settings=settings(), device="cpu")
    guesses = [said.value for said in kinfolk.load(tmp_path / "run").classify([item.text for item in train])]
    assert 4700 < np.mean(guesses) < 5300
