"""Translations of files: a line for a line, tables keep their columns, and a fault leaves nothing behind."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from kinfolk.api import translate as job
from kinfolk.api.loaded import Translator, load_translator
from kinfolk.api.translate import one_line, translate_file
from kinfolk.errors import DataError, InputError
from small_pairs import pairs

SOURCES = [source for source, _ in pairs(40, seed=3) if len(source.split()) < 4]
LINES = ["salt moon", "", *SOURCES[:20], "  ", "star"]


@pytest.fixture(scope="module")
def model(small_translator: Path) -> Translator:
    return load_translator(small_translator, device="cpu")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_every_line_has_its_line(model: Translator, lines: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("kinfolk.api.translate.CHUNK_TEXTS", 4)
    done: list[int] = []
    assert translate_file(model, lines, tmp_path / "out.txt", report=done.append) == len(LINES)
    assert (tmp_path / "out.txt").read_text().split("\n") == [*model.translate(LINES), ""]
    assert done == [4, 4, 4, 4, 4, 4]


def test_a_table_keeps_its_columns(model: Translator, tmp_path: Path) -> None:
    source = tmp_path / "texts.csv"
    source.write_text("id,en\n1,salt moon\n2,\n3,star\n")
    translate_file(model, source, tmp_path / "out.csv", column="en")
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["translation"] for row in rows] == model.translate(["salt moon", "", "star"])
    assert list(rows[0]) == ["id", "en", "translation", "score"]


def test_several_translations_go_to_jsonl(model: Translator, lines: Path, tmp_path: Path) -> None:
    settings = model.translate_settings(n_best=2)
    with pytest.raises(InputError, match=r"\.jsonl"):
        translate_file(model, lines, tmp_path / "out.txt", settings)
    translate_file(model, lines, tmp_path / "out.jsonl", settings)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == LINES
    assert [len(row["translations"]) for row in rows] == [1 if not line.strip() else 2 for line in LINES]
    assert rows[0]["translations"][0]["text"] == rows[0]["translation"]


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # they may not end
def test_drawn_texts_are_the_same_in_lines_and_tables(
    model: Translator, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinfolk.api.translate.CHUNK_TEXTS", 5)
    monkeypatch.setattr(job, "CHUNK_TEXTS", 5)
    settings = model.translate_settings(seed=1, temperature=3.0, max_tokens=6)
    translate_file(model, lines, tmp_path / "out.txt", settings)
    translate_file(model, lines, tmp_path / "out.jsonl", settings)
    rows = [json.loads(line)["translation"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == (tmp_path / "out.txt").read_text().split("\n")[:-1]


def test_a_bad_line_is_reported_before_anything_is_written(model: Translator, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_bytes(b"salt\n" * 3 + b"\xff\n")
    for name in ("out.txt", "out.jsonl"):
        with pytest.raises(DataError, match=r"texts\.txt:4: .*UTF-8"):
            translate_file(model, source, tmp_path / name, report=pytest.fail)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt"]


def test_a_line_break_inside_a_translation_becomes_a_blank() -> None:
    assert one_line("one\ntwo\r\nthree\u2028four") == "one two three four"
