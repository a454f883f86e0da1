"""TableColumns are guessed only where one reading fits; otherwise the error lists them and names the argument."""

from __future__ import annotations

import pytest

from kinfolk.data.tables import TableColumns, find_columns
from kinfolk.errors import DataError, InputError


def guess(
    columns: str, text: str | None = None, pair: str | None = None, label: str | None = None, needs_label: bool = True
) -> TableColumns:
    return find_columns("a.csv", columns.split(","), text, pair, label, needs_label)


@pytest.mark.parametrize(
    ("columns", "guessed"),
    [
        ("text,label", TableColumns("text", None, "label")),
        ("sentence,label", TableColumns("sentence", None, "label")),
        ("id,Review,Stars", TableColumns("Review", None, "Stars")),
        ("sentence1,label", TableColumns("sentence1", None, "label")),
        ("index,sentence1,sentence2,gold_label", TableColumns("sentence1", "sentence2", "gold_label")),
        ("index,question,sentence,label", TableColumns("question", "sentence", "label")),
        ("id,qid1,qid2,question1,question2,is_duplicate", TableColumns("question1", "question2", "is_duplicate")),
        ("Quality,#1 ID,#2 ID,#1 String,#2 String", TableColumns("#1 String", "#2 String", "Quality")),
        ("premise,hypothesis,label,idx", TableColumns("premise", "hypothesis", "label")),
        ("sentence2,text,label", TableColumns("text", None, "label")),
    ],
)
def test_public_names_are_understood(columns: str, guessed: TableColumns) -> None:
    assert guess(columns) == guessed


def test_what_the_user_names_comes_first() -> None:
    assert guess("text,body,label,topic", text="body", label="topic") == TableColumns("body", None, "topic")
    assert guess("text,review,label", text="review", pair="text") == TableColumns("review", "text", "label")
    assert guess("a,sentence2,label", text="a") == TableColumns("a", None, "label")


def test_the_partner_of_a_named_text_is_found_and_can_be_declined() -> None:
    assert guess("sentence1,sentence2,text,label", text="sentence1").pair == "sentence2"
    assert guess("sentence1,sentence2,label", pair="") == TableColumns("sentence1", None, "label")


def test_an_unneeded_label_is_not_guessed() -> None:
    assert guess("text,label", needs_label=False) == TableColumns("text", None, None)
    assert guess("text,label", label="label", needs_label=False).label == "label"


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("text,review,label", "text and review"),
        ("text,label,stars", "label and stars"),
        ("question,sentence,passage,label", "sentence and passage"),
        ("a,b", "--label"),
        ("a,label", "--text"),
    ],
)
def test_a_guess_that_does_not_fit_is_an_error(columns: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        guess(columns)
    assert reason in str(caught.value)


def test_a_named_column_must_be_there_and_be_another() -> None:
    with pytest.raises(DataError, match=r'"sentense"; .*sentence, label; .*"sentence"'):
        guess("sentence,label", text="sentense")
    with pytest.raises(InputError, match="different"):
        guess("sentence,label", text="sentence", label="sentence")
