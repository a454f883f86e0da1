"""Pairs that rules make: dates, numbers, words written backwards, verbs."""

from __future__ import annotations

import datetime
import re

import pytest


@pytest.mark.parametrize("name", ["dates", "numbers", "reversed"])
def test_structured_pairs_differ_and_are_the_same_each_time(name: str) -> None:
    from structured_pairs import pairs

    found = pairs(name, 300)
    assert len({source for source, _ in found}) == 300
    assert found == pairs(name, 300)
    assert found != pairs(name, 300, seed=1)


def test_each_target_follows_from_its_source() -> None:
    from structured_pairs import MONTHS, pairs, words_of

    assert all(words_of(int(target)) == source for source, target in pairs("numbers", 300))
    assert all(target == source[::-1] for source, target in pairs("reversed", 300))
    for source, target in pairs("dates", 300):
        date = datetime.date.fromisoformat(target)
        if re.fullmatch(r"\d+\.\d+\.\d+", source):
            assert source == f"{date.day}.{date.month}.{date.year}"
        else:
            assert MONTHS[date.month - 1][:3].lower() in source.lower()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"), (19, "nineteen"), (40, "forty"), (42, "forty-two"), (100, "one hundred"),
        (105, "one hundred and five"), (1_000, "one thousand"), (2_007, "two thousand and seven"),
        (999_999, "nine hundred and ninety-nine thousand nine hundred and ninety-nine"),
    ],
)  # fmt: skip
def test_numbers_are_said_in_words(number: int, words: str) -> None:
    from structured_pairs import words_of

    assert words_of(number) == words


def test_dates_are_said_in_words() -> None:
    from structured_pairs import ordinal, year_in_words

    assert [ordinal(day) for day in (1, 2, 3, 5, 8, 9, 12, 20, 31)] == [
        *("first", "second", "third", "fifth", "eighth", "ninth", "twelfth", "twentieth", "thirty-first"),
    ]
    years = {1800: "eighteen hundred", 2000: "two thousand", 2009: "two thousand and nine", 2010: "twenty ten"}
    assert {year: year_in_words(year) for year in years} == years


def test_verbs_are_regular_or_irregular_and_have_one_past() -> None:
    from verbs import irregular, past, regular

    by_rule, listed = dict(regular()), dict(irregular())
    assert len(by_rule) == len(regular()) > 800
    assert len(listed) == len(irregular()) > 120
    assert not by_rule.keys() & listed.keys()
    assert all(form.endswith("ed") for form in by_rule.values())
    assert all(past(verb) != form for verb, form in listed.items())
    forms = {"stop": "stopped", "carry": "carried", "enjoy": "enjoyed", "agree": "agreed", "visit": "visited"}
    assert {verb: past(verb) for verb in forms} == forms
