"""Labels are read by kind and every example knows its line; bad rows are reported, or left out and counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_files import written

from kinfolk.data.examples import Example
from kinfolk.data.tables import read_examples
from kinfolk.errors import DataError, InputError


def test_a_csv_with_tabs_is_told_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, "test.csv", "a b\tc\n")
    with pytest.raises(DataError, match=r"test\.csv:1: .*tabs"):
        read_examples(path, header=("text", "label"))
    with pytest.raises(DataError, match=r"\.tsv"):
        read_examples(path)


def test_every_example_knows_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", '\ufefftext,label\n"one\ntwo",0\nthree, 1 \n')
    assert read_examples(path).examples == [
        Example("one\ntwo", None, "0", f"{path}:2"),
        Example("three", None, "1", f"{path}:4"),
    ]


@pytest.mark.parametrize(
    ("kind", "written_label", "label"),
    [
        ("classify", '"pos"', "pos"),
        ("classify", "0", "0"),
        ("classify", "true", "true"),
        ("multilabel", '["a", 2, "a"]', ("a", "2")),
        ("multilabel", '"a|b,c"', ("a", "b,c")),
        ("multilabel", '"a, b"', ("a", "b")),
        ("multilabel", '"[\\"a, b\\"]"', ("a, b",)),
        ("multilabel", '""', ()),
        ("regress", "3", 3.0),
        ("regress", '" 2.5"', 2.5),
    ],
)
def test_labels_are_read_by_kind(tmp_path: Path, kind: str, written_label: str, label: object) -> None:
    path = written(tmp_path, "a.jsonl", f'{{"text": "a", "label": {written_label}}}\n')
    assert [example.label for example in read_examples(path, kind=kind).examples] == [label]


@pytest.mark.parametrize(
    ("kind", "written_label", "reason"),
    [
        ("classify", '" "', "the label is empty"),
        ("classify", "null", "the label is null"),
        ("classify", "[1]", "the label is a list"),
        ("multilabel", "3", "the labels are a number"),
        ("multilabel", '"a||b"', "the label is empty"),
        ("multilabel", '"[1"', "JSON"),
        ("regress", '"nan"', "the label 'nan'"),
        ("regress", '"1e999"', "finite"),
        ("regress", '"1_0"', "the label '1_0'"),
        ("regress", '"good"', "the label 'good'"),
        ("regress", "true", "the label is true or false"),
    ],
)
def test_a_label_of_the_wrong_kind_is_a_bad_row(tmp_path: Path, kind: str, written_label: str, reason: str) -> None:
    good = json.dumps({"text": "a", "label": {"classify": "x", "multilabel": ["x"], "regress": 1}[kind]})
    path = written(tmp_path, "a.jsonl", f'{good}\n{{"text": "b", "label": {written_label}}}\n{good}\n')
    with pytest.raises(DataError) as caught:
        read_examples(path, kind=kind)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert reason in str(caught.value)
    table = read_examples(path, kind=kind, max_bad_rows=1)
    assert [example.location for example in table.examples] == [f"{path}:1", f"{path}:3"]


def test_twenty_bad_rows_are_reported_and_all_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "text\tlabel\n" + "a\t\n" * 30 + "b\t1\n")
    for allowed in (0, 5, 29):
        with pytest.raises(DataError) as caught:
            read_examples(path, max_bad_rows=allowed)
        assert str(caught.value).count("the label is empty") == 20
        assert ("; and 10 more; correct them" in str(caught.value)) == (allowed == 29)  # else reading ended at 20
    table = read_examples(path, max_bad_rows=30)
    assert (len(table.examples), table.bad, len(table.reasons)) == (1, 30, 20)


def test_a_csv_record_with_a_broken_byte_is_left_out_whole(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", b'text,label\n"one\n\xff two",0\nthree,1\n')
    table = read_examples(path, max_bad_rows=1)
    assert [example.text for example in table.examples] == ["three"]
    assert table.reasons == (f"{path}:2: not UTF-8 text",)


def test_an_open_quote_is_never_one_bad_row_among_those_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", 'text,label\na,1\n"b,0\nc,1\nd,1\n')
    with pytest.raises(DataError, match=r":3: .*quote"):
        read_examples(path, max_bad_rows=100)


def test_a_text_or_column_that_is_missing_in_one_row_is_a_bad_row(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n{"text": 3, "label": 1}\n{"text": "b"}\n')
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert f'{path}:2: "text" is a number' in str(caught.value)
    assert f'{path}:3: no column "label"' in str(caught.value)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    lines, rows = written(tmp_path, "a.txt", "one\n"), written(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n')
    with pytest.raises(DataError, match="labels"):
        read_examples(lines)
    with pytest.raises(DataError, match="names already"):
        read_examples(rows, header=("text", "label"))
    with pytest.raises(DataError, match="no examples"):
        read_examples(written(tmp_path, "b.csv", "text,label\n"))
    with pytest.raises(InputError, match="clasify"):
        read_examples(rows, kind="clasify")
    with pytest.raises(InputError, match="max_bad_rows=-1"):
        read_examples(rows, max_bad_rows=-1)
