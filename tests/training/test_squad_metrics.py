"""SQuAD's rules on cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.training.metrics import answering, exact, f1, no_answer_threshold, normalized


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The Eiffel Tower", "eiffel tower"),
        ("  an   apple,\ta day.\n", "apple day"),
        ("U.S.-led (2003)", "usled 2003"),
        ("theatre and Ann", "theatre and ann"),
        ("a.m.", "am"),
        ("«Été» – 5 €", "«été» – 5 €"),
        ("The", ""),
        ("?!", ""),
    ],
)
def test_only_words_are_compared(text: str, plain: str) -> None:
    assert normalized(text) == plain


@pytest.mark.parametrize(
    ("guess", "truths", "expected_f1", "expected_exact"),
    [
        ("Denver Broncos", ["the Denver Broncos!"], 1, 1),
        ("the Broncos", ["Denver Broncos"], 2 / 3, 0),
        ("Carolina", ["Denver Broncos"], 0, 0),
        ("red red blue", ["red blue blue"], 2 / 3, 0),  # a word counts as often as both have it
        ("in Paris", ["London", "Paris", "in Paris, France"], 4 / 5, 0),  # the best of the three
        ("Paris", ["London", "Paris"], 1, 1),
        ("", [], 1, 1),
        ("the", [], 1, 1),  # nothing is left of it
        ("Paris", [], 0, 0),
        ("", ["Paris"], 0, 0),
        ("", ["the", "Paris"], 0, 0),  # an answer of which nothing is left is no answer
        ("", ["the"], 1, 1),
    ],
)
def test_answers_score_as_in_squad(guess: str, truths: list[str], expected_f1: float, expected_exact: float) -> None:
    assert f1(guess, truths) == pytest.approx(expected_f1)
    assert exact(guess, truths) == expected_exact


def test_questions_with_and_without_an_answer_are_also_counted_apart() -> None:
    result = answering(["a cat", "dog", "", "bird"], [["cat"], ["big dog"], [], []])
    assert list(result)[:2] == ["f1", "exact"]
    assert result == pytest.approx(
        {
            "f1": (1 + 2 / 3 + 1 + 0) / 4,
            "exact": 2 / 4,
            "answerable_f1": (1 + 2 / 3) / 2,
            "answerable_exact": 1 / 2,
            "unanswerable_f1": 1 / 2,
            "unanswerable_exact": 1 / 2,
        }
    )
    assert list(answering(["cat"], [["cat"]])) == ["f1", "exact"]
    assert list(answering(["cat"], [[]])) == ["f1", "exact", "unanswerable_f1", "unanswerable_exact"]


def test_the_threshold_parts_what_pays_to_answer_from_what_does_not() -> None:
    margins = np.array([3.0, -4.0, 1.0, -1.0])
    answered, unanswered = np.array([0.0, 1.0, 0.0, 0.8]), np.array([1.0, 0.0, 1.0, 0.0])
    assert no_answer_threshold(margins, answered, unanswered) == 0.0  # between -1 and 1
    assert no_answer_threshold(margins, np.ones(4), np.zeros(4)) > 3
    assert no_answer_threshold(margins, np.zeros(4), np.ones(4)) < -4


def test_equal_margins_are_not_torn_apart() -> None:
    margins, answered = np.array([0.0, 1.0, 1.0, 1.0, 2.0]), np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    result = no_answer_threshold(margins, answered, 1 - answered)
    assert result == 0.5


@pytest.mark.parametrize("seed", range(20))
def test_no_other_threshold_is_better(seed: int) -> None:
    draw = np.random.default_rng(seed)
    margins, answered = draw.integers(-4, 5, 12).astype(float), draw.random(12)
    unanswered = draw.integers(0, 2, 12).astype(float)

    def total(threshold: float) -> float:
        return float(np.where(margins > threshold, unanswered, answered).sum())

    best = max(total(threshold) for threshold in np.arange(-5, 6, 0.5))
    assert total(no_answer_threshold(margins, answered, unanswered)) == pytest.approx(best)
