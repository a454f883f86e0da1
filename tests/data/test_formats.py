"""Lines and columns are handed out whole and one at a time; a fault is reported as file:line: reason."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_files import written

from kinfolk.data.formats import LONGEST_LINE, read_lines, read_rows, read_texts
from kinfolk.errors import DataError, FolderError, KinfolkError


def fault(rows: Iterator[object]) -> str:
    with pytest.raises(DataError) as caught:
        list(rows)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\n\n \ntwo", ["one", "", " ", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        ("a\u2028b\u0085c\x0bd\x0ce\x1cf\rg\n".encode(), ["a\u2028b\u0085c\x0bd\x0ce\x1cf\rg"]),
    ],
    ids=["empty", "empty line", "two", "blank kept", "crlf", "mark", "other separators"],
)
def test_only_newlines_end_a_line_and_no_line_is_dropped(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert list(read_lines(written(tmp_path, "lines.txt", content))) == lines


def test_lines_come_before_the_file_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO(b"one\n" * 10)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    assert next(read_lines("-")) == "one"
    assert stream.tell() == 4


def test_bytes_that_are_not_utf8_are_reported_by_line(tmp_path: Path) -> None:
    path = written(tmp_path, "lines.txt", b"good\nb\xffd\ngood\n\xc3\n")
    assert fault(read_lines(path)) == (
        f"{path}:2: not UTF-8 text (byte 2 of the line); {path}:4: not UTF-8 text (byte 1 of the line)"
    )


def test_nothing_after_a_fault_is_handed_out(tmp_path: Path) -> None:
    rows = read_lines(written(tmp_path, "lines.txt", b"good\n\xff\nafter\n"))
    assert next(rows) == "good"
    with pytest.raises(DataError):
        next(rows)


def test_twenty_faults_are_reported_at_once_and_no_more(tmp_path: Path) -> None:
    path = written(tmp_path, "lines.txt", b"\xff\n" * 50)
    assert fault(read_lines(path)).count(f"{path}:") == 20


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"text\nPK\x03\x04\0\0", ":2: a NUL byte; this is not a text file"),
        ("text\n".encode("utf-16"), ":1: a NUL byte; it looks like UTF-16: convert it to UTF-8"),
    ],
)
def test_a_binary_file_is_refused_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = written(tmp_path, "lines.txt", content)
    assert fault(read_lines(path)) == f"{path}{reason}"


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LONGEST_LINE >= 10 * 2**20
    monkeypatch.setattr("kinfolk.data.formats.LONGEST_LINE", 10)
    assert "this is not a text file" in fault(read_lines(written(tmp_path, "lines.txt", b"x" * 11)))


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(FolderError, match="cannot be read"):
            list(read_lines(path))


def test_a_csv_may_have_newlines_and_quotes_in_its_fields(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.csv", 'label,text\r\ngood,"one\r\ntwo, ""three"""\r\n\r\nbad,\r\n')
    assert list(read_rows(path, "text")) == [
        {"label": "good", "text": 'one\r\ntwo, "three"'},
        {"label": "bad", "text": ""},
    ]


def test_stray_quotes_of_a_tsv_are_text(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.tsv", 'text\tlabel\n"a\t1\nb" said "c\t2\n')
    assert [row["text"] for row in read_rows(path, "text")] == ['"a', 'b" said "c']


def test_a_blank_line_is_an_empty_text_where_there_is_one_column(tmp_path: Path) -> None:
    for name in ("rows.csv", "rows.tsv"):
        assert list(read_texts(written(tmp_path, name, "text\na\n\nb\n"))) == ["a", "", "b"]


def test_a_csv_field_may_be_longer_than_the_csv_module_allows(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.csv", f"text,label\n{'word ' * 60_000},1\n")
    assert [len(row["text"]) for row in read_rows(path, "text")] == [300_000]


def test_json_lines_keep_their_other_values(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.jsonl", '{"text": "a", "stars": 4}\n\n{"text": ""}\n')
    assert list(read_rows(path, "text")) == [{"text": "a", "stars": 4}, {"text": ""}]


def test_every_bad_row_is_reported_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "rows.csv", 'text,label\n"two\nlines",1\nonly\na,b,c\nd,1\n"open,1\n')
    assert fault(read_rows(path, "text")) == (
        f"{path}:4: 1 fields, expected 2; {path}:5: 3 fields, expected 2; {path}:7: a quote is opened and never closed"
    )
    path = written(tmp_path, "rows.jsonl", '{"text": 3}\n[1]\n{"text"\n{"txt": "a"}\n{"text": "a", "text": "b"}\n')
    messages = fault(read_rows(path, "text")).split("; ")
    assert messages[0] == f'{path}:1: "text" is a number, expected a string'
    assert messages[1] == f"{path}:2: expected an object, found a list"
    assert messages[2].startswith(f"{path}:3: not valid JSON")
    assert messages[3:5] == [f'{path}:4: no column "text"', "there are: txt"]
    assert messages[-1] == f"{path}:5: duplicate key 'text'"


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("label,sentence,txt", 'no column "text"; there are: label, sentence, txt; did you mean "txt"?'),
        ("text,label,text", 'duplicate column "text"'),
        ("", 'no column "text"; there are: none'),
    ],
)
def test_a_missing_column_is_reported_with_those_there_are(tmp_path: Path, header: str, reason: str) -> None:
    path = written(tmp_path, "rows.csv", f"{header}\na,b,c\n" if header else "")
    assert fault(read_rows(path, "text")) == f"{path}:1: {reason}"


def test_a_column_of_plain_lines_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "lines.txt", "a\n")
    for work in (lambda: read_texts(path, "text"), lambda: list(read_rows(path, "text"))):
        with pytest.raises(KinfolkError, match="column"):
            work()
