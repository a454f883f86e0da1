"""The scripts that a new user copies run, and their data are what they say."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

from kinfolk.data.tables import read_examples, read_squad
from kinfolk.data.tagging import detect_scheme, read_conll
from support.tiny import write_folder

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SAYS = {
    "reviews": "right on the held-out reviews:",
    "entities": "F1 of whole names on the held-out sentences:",
    "questions": "F1 on the held-out questions:",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that reads a question beside its text."""
    folder = tmp_path_factory.mktemp("models") / "small"
    return write_folder(folder, num_hidden_layers=1, max_position_embeddings=120)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_trains_once_and_uses_what_it_trained(
    name: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, output = EXAMPLES / f"{name}.py", tmp_path / "out"
    monkeypatch.setattr(sys, "argv", [str(script), "--model", str(small), "--output", str(output), "--epochs", "1"])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out
    runpy.run_path(str(script), run_name="__main__")
    assert SAYS[name] not in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_every_example_is_tested_and_short() -> None:
    scripts = list(EXAMPLES.glob("*.py"))
    assert sorted(script.stem for script in scripts) == sorted(SAYS)
    assert all(len(script.read_text(encoding="utf-8").splitlines()) <= 40 for script in scripts)


def test_the_reviews_are_as_often_good_as_bad() -> None:
    reviews = read_examples(EXAMPLES / "data" / "reviews.csv").examples
    assert Counter(each.label for each in reviews) == {"positive": 60, "negative": 60}
    assert len({each.text for each in reviews}) == 120


def test_the_entities_are_in_iob2() -> None:
    sentences = read_conll(EXAMPLES / "data" / "entities.conll").examples
    assert len(sentences) == 60
    assert detect_scheme(each.tags or () for each in sentences) == "IOB2"
    assert {tag[2:] for each in sentences for tag in each.tags or ()} == {"", "PER", "LOC", "ORG"}


def test_some_questions_have_no_answer() -> None:
    questions = read_squad(EXAMPLES / "data" / "questions.json").examples  # it checks where every answer stands
    assert len(questions) == 39
    assert sum(not each.answers for each in questions) == 5
    assert len({each.context for each in questions}) == 16
