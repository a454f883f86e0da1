"""Tags are scored as conlleval scores them: by whole entities, counted by hand here."""

from __future__ import annotations

import warnings

import pytest

from kinfolk.training.metrics import tagging


def tag_metrics(*pairs: tuple[str, str]) -> dict[str, float]:
    return tagging([truth.split() for truth, _ in pairs], [guess.split() for _, guess in pairs])


@pytest.mark.parametrize(
    ("truth", "guess", "right", "guessed", "there"),
    [
        ("B-PER I-PER O B-LOC", "B-PER I-PER O B-LOC", 2, 2, 2),
        ("B-PER I-PER O B-LOC", "B-PER O O B-LOC", 1, 2, 2),  # half an entity is none
        ("B-PER I-PER O", "B-LOC I-LOC O", 0, 1, 1),  # nor is one of another type
        ("B-PER I-PER O", "I-PER I-PER O", 1, 1, 1),  # I after O begins one
        ("B-PER B-PER O", "B-PER I-PER O", 0, 1, 2),  # B begins another of the same type
        ("B-PER B-LOC O", "I-PER I-LOC O", 2, 2, 2),  # so does I of another type
        ("B-PER I-PER I-PER", "B-PER I-LOC I-PER", 0, 3, 1),
        ("O O O", "B-PER O O", 0, 1, 0),
        ("B-PER O O", "O O O", 0, 0, 1),
    ],
)
def test_entities_count_whole_or_not_at_all(truth: str, guess: str, right: int, guessed: int, there: int) -> None:
    metrics = tag_metrics((truth, guess))
    assert list(metrics) == ["f1", "precision", "recall", "accuracy"]
    assert metrics["precision"] == pytest.approx(right / guessed if guessed else 0)
    assert metrics["recall"] == pytest.approx(right / there if there else 0)
    assert metrics["f1"] == pytest.approx(2 * right / (guessed + there))


def test_sums_run_over_all_sentences_and_entities_end_with_theirs() -> None:
    metrics = tag_metrics(("O B-PER", "O B-PER"), ("B-PER O O", "I-PER I-PER O"), ("B-LOC", "O"))
    assert metrics["precision"] == pytest.approx(1 / 2)
    assert metrics["recall"] == pytest.approx(1 / 3)
    assert metrics["accuracy"] == pytest.approx(3 / 6)


def test_tags_that_mark_no_spans_are_evaluated_word_by_word() -> None:
    metrics = tag_metrics(("DT NN VB NN", "DT NN NN NN"))
    assert list(metrics) == ["accuracy", "macro_f1"]
    assert metrics["accuracy"] == pytest.approx(3 / 4)
    assert metrics["macro_f1"] == pytest.approx((1 + 0.8 + 0) / 3)


def test_odd_guesses_are_misses_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = tag_metrics(("B-PER I-PER O", "LABEL_0 L-PER O"))
    assert metrics["f1"] == 0
