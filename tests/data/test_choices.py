"""Choices are read from rows like SWAG's and from plain ones; every fault is reported with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_files import written

from kinfolk.data.examples import Choice
from kinfolk.data.tables import choice_rows, read_choices
from kinfolk.errors import DataError, RowErrors
from surroundings import shared_data


def test_both_kinds_of_rows_give_choices(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "a.jsonl",
        '{"sent1": "It rains.", "sent2": "He", "ending0": "runs.", "ending1": "swims.", "label": 1}\n'
        '{"context": "It rains.", "options": ["Run.", "Swim.", "Fly."], "answer": "0"}\n',
    )
    assert read_choices(path).examples == [
        Choice("It rains.", ("He runs.", "He swims."), 1, f"{path}:1"),
        Choice("It rains.", ("Run.", "Swim.", "Fly."), 0, f"{path}:2"),
    ]


def test_the_swag_sample_is_read_whole() -> None:
    examples = read_choices(shared_data("swag/sample.jsonl")).examples
    assert len(examples) == 10
    assert {len(example.options) for example in examples} == {4}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"sent1": "a", "ending0": "b", "ending1": "c", "label": 0}', '"sent2"'),
        ('{"sent1": "a", "sent2": 3, "ending0": "b", "ending1": "c", "label": 0}', '"sent2" is a number'),
        ('{"sent1": "a", "sent2": "b", "ending0": "b", "ending2": "c", "label": 0}', "two or more"),
        ('{"context": "a", "options": ["b", 1], "answer": 0}', "two or more"),
        ('{"context": "a", "options": "bc", "answer": 0}', "two or more"),
        ('{"options": ["b", "c"], "answer": 0}', '"context"'),
        ('{"context": "a", "options": ["b", "c"], "answer": 2}', "the answer '2'"),
        ('{"context": "a", "options": ["b", "c"], "answer": true}', "the answer 'True'"),
        ('{"context": "a", "options": ["b", "c"]}', "the answer 'None'"),
    ],
)
def test_a_bad_choice_is_reported_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    good = '{"context": "a", "options": ["b", "c"], "answer": 1}'
    path = written(tmp_path, "a.jsonl", f"{good}\n{row}\n")
    with pytest.raises(DataError) as caught:
        read_choices(path)
    assert f"{path}:2: " in str(caught.value)
    assert reason in str(caught.value)
    table = read_choices(path, max_bad_rows=1)
    assert (len(table.examples), table.bad) == (1, 1)


def test_for_prediction_answers_are_not_needed(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", '{"context": "a", "options": ["b", "c"]}\n')
    assert [choice.answer for _, _, choice in choice_rows(path, RowErrors(str(path)), needs_label=False)] == [None]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="jsonl"):
        read_choices(written(tmp_path, "a.csv", "sent1\n"))
