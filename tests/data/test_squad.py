"""Questions of both versions are read; an answer that is not where it says is reported by article, paragraph and id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_files import written

from kinfolk.data.examples import Question
from kinfolk.data.tables import read_squad
from kinfolk.errors import DataError, FolderError
from surroundings import shared_data

CONTEXT = "Die Ärztin wohnt in Köln."


def entry(id: str = "q1", **others: Any) -> dict[str, Any]:
    return {"id": id, "question": "Wo?", "answers": [{"text": "Köln", "answer_start": 20}], **others}


def squad(folder: Path, *entries: object, **paragraph: Any) -> Path:
    article = {"title": "Köln", "paragraphs": [{"context": CONTEXT, "qas": list(entries), **paragraph}]}
    return written(folder, "a.json", json.dumps({"version": "2.0", "data": [article]}))


@pytest.mark.parametrize(
    ("name", "questions", "answers", "unanswerable"),
    [("dev-v1.1", 10570, 34726, 0), ("train-v1.1-sample", 11877, 11877, 0), ("dev-v2.0-sample", 1546, 2744, 815)],
)
def test_published_files_have_their_counts(name: str, questions: int, answers: int, unanswerable: int) -> None:
    table = read_squad(shared_data(f"squad/{name}.json"))
    assert (len(table.examples), table.bad) == (questions, 0)
    assert sum(len(question.answers) for question in table.examples) == answers
    assert sum(not question.answers for question in table.examples) == unanswerable


def test_answers_count_characters_and_may_be_absent(tmp_path: Path) -> None:
    path = squad(tmp_path, entry(), entry("q2", answers=[], is_impossible=True), {"id": "q3", "question": "Wer?"})
    assert read_squad(path).examples == [
        Question("q1", "Wo?", CONTEXT, (("Köln", 20),), f"{path}:Köln/1/q1"),
        Question("q2", "Wo?", CONTEXT, (), f"{path}:Köln/1/q2"),
        Question("q3", "Wer?", CONTEXT, (), f"{path}:Köln/1/q3"),
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (entry("q2", answers=[{"text": "Köln", "answer_start": 21}]), "q2: the answer 'Köln'"),
        (entry("q2", answers=[{"text": "n.", "answer_start": -2}]), "q2: the answer 'n.'"),
        (entry("q2", answers=[{"text": "", "answer_start": 0}]), "q2: an answer is empty"),
        (entry("q2", answers=[{"text": "Die", "answer_start": "0"}]), 'q2: "answer_start" is a string'),
        (entry("q2", answers=["Köln"]), "q2: expected an object, found a string"),
        (entry("q2", answers={}), 'q2: "answers" is an object'),
        (entry("q2", is_impossible=True), "q2: is_impossible"),
        (entry("q2", question=None), 'q2: "question" is null'),
        (entry(), "q1: another question"),
        ("q2", "2: expected an object, found a string"),
    ],
)
def test_a_bad_question_is_reported_by_its_place(tmp_path: Path, bad: object, reason: str) -> None:
    path = squad(tmp_path, entry(), bad)
    with pytest.raises(DataError) as caught:
        read_squad(path)
    assert str(caught.value).startswith(f"{path}:Köln/1/{reason}")
    table = read_squad(path, max_bad_rows=1)
    assert ([question.id for question in table.examples], table.bad) == (["q1"], 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"questions": []}, '"data" is null'),
        ({"data": [3]}, "a.json:1: "),
        ({"data": [{"title": "T"}]}, 'a.json:T: "paragraphs"'),
        ({"data": [{"paragraphs": [{"context": "a"}]}]}, 'a.json:1/1: "qas"'),
        ({"data": [{"paragraphs": [{"qas": [entry()]}]}]}, 'a.json:1/1: "context"'),
        ({"data": []}, "no examples"),
    ],
)
def test_other_json_is_refused_in_one_line(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        read_squad(written(tmp_path, "a.json", json.dumps(content)))
    assert reason in str(caught.value)


def test_broken_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="not valid JSON"):
        read_squad(written(tmp_path, "a.json", '{"data": ['))
