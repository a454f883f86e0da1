"""files.py: what is not a file, not text or not honest JSON is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kinfolk.errors import FolderError
from kinfolk.files import parse_json, read_bytes, read_json, read_object, read_text, require_file, sha256, write_json


@pytest.mark.parametrize("name", ["absent", "deep", "x" * 300, "file/below"], ids=["absent", "folder", "long", "below"])
def test_what_is_not_a_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "file").write_text("ours")
    for read in (require_file, read_bytes, read_text, sha256):
        with pytest.raises(FolderError, match=name[:20]):
            read(tmp_path / name)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FolderError, match="something else"):
        read_bytes(tmp_path / "pipe")


def test_a_file_larger_than_allowed_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("ours")
    assert read_bytes(tmp_path / "file", max_bytes=4) == b"ours"
    with pytest.raises(FolderError, match="4 bytes"):
        read_bytes(tmp_path / "file", max_bytes=3)


def test_text_loses_its_byte_order_mark_and_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfwith")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert read_text(tmp_path / "marked") == "with"
    with pytest.raises(FolderError, match="byte 3"):
        read_text(tmp_path / "latin")


HOSTILE_JSON = {
    "empty": "",
    "cut": '{"a": 1',
    "duplicate key": '{"a": 1, "b": 2, "a": 3}',
    "nested duplicate": '[{"a": {"b": 1, "b": 1}}]',
    "not a number": '{"a": NaN}',
    "infinity": "[-Infinity]",
    "infinite by overflow": "[1e999]",
    "too many digits": "9" * 5000,
    "bottomless list": "[" * 100_000,
    "bottomless object": '{"a":' * 100_000,
    "mark": "\ufeff{}",
    "tail": "{} {}",
    "control character": '{"a": "\x01"}',
}


@pytest.mark.parametrize("fault", HOSTILE_JSON)
def test_hostile_json_is_one_line_that_says_where(fault: str) -> None:
    with pytest.raises(FolderError, match=r"^here\.json: ") as caught:
        parse_json(HOSTILE_JSON[fault], "here.json")
    assert len(str(caught.value)) < 300


def test_a_duplicate_among_many_keys_is_found_in_linear_time() -> None:
    keys = ",".join(f'"{index}":0' for index in range(100_000))
    with pytest.raises(FolderError, match="'99999'"):
        parse_json("{" + keys + ',"99999":0}', "many")


def test_plain_json_is_read_as_it_stands(tmp_path: Path) -> None:
    content = {"whole": 2**70, "part": -1.5e-300, "text": "é\u2028", "nothing": None, "list": [True, {}]}
    write_json(tmp_path / "x.json", content)
    assert read_object(tmp_path / "x.json") == content
    write_json(tmp_path / "x.json", [1])
    with pytest.raises(FolderError, match="found list"):
        read_object(tmp_path / "x.json")


@pytest.mark.parametrize("content", [{"loss": float("nan")}, ["\ud800"]], ids=["nan", "surrogate"])
def test_json_that_could_not_be_read_back_is_not_written(tmp_path: Path, content: object) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})
    with pytest.raises(FolderError, match="as JSON"):
        write_json(path, content)
    assert read_json(path) == {"old": 1}
