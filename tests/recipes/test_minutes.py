"""What minutes teach: how it is measured, and the settings before."""

from __future__ import annotations

import json
from pathlib import Path

import kinfolk


def test_distance_counts_insertions_deletions_and_replacements() -> None:
    from minutes import distance

    assert [distance("kitten", "sitting"), distance("", "abc"), distance("abc", ""), distance("ab", "ab")] == [
        *(3, 3, 3, 0),
    ]
    assert distance("ab", "ba") == 2


def test_what_is_measured_of_texts_is_what_the_task_asks() -> None:
    from minutes import measure

    pairs = [("walk", "walked"), ("go", "went"), ("hope", "hoped"), ("try", "tried")]
    assert measure("past", ["walked", "goed", "hoped", "tryed"], pairs) == {"regular": 2 / 3, "irregular": 0.0}
    sounds = [("a", "AH0"), ("about", "AH0 B AW1 T")]
    assert measure("sounds", ["AH0", "AH0 B T"], sounds) == {"errors": 1 / 5, "exact": 0.5}
    assert measure("dates", ["x", "y"], [("1", "x"), ("2", "z")]) == {"exact": 0.5}


def test_pairs_to_measure_by_are_not_trained_on(tmp_path: Path) -> None:
    from common import RecipePaths
    from minutes import sides

    train, test = sides("past", RecipePaths.of("minutes", tmp_path))
    assert len(test) == (len(train) + len(test)) // 5
    assert not {source for source, _ in train} & {source for source, _ in test}


def test_the_settings_before_hold_whatever_the_pairs_are(tmp_path: Path) -> None:
    from common import Course
    from minutes import pairs_seen, settings_before
    from structured_pairs import pairs

    train = pairs("dates", 60)
    told = settings_before(train) | {"size": "tiny"}  # or the test would take long
    kinfolk.train_translator(tmp_path / "run", train, kind="attention", steps=1, device="cpu", **told)
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert found["chosen"] == {}  # none to suit these pairs
    assert found["task"]["smoothing"] == 0.1
    settings = found["settings"]
    assert (settings["optimization"]["learning_rate"], settings["batch_tokens"], settings["min_steps"]) == (
        1e-3,
        4096,
        0,
    )
    translator = kinfolk.load_translator(tmp_path / "run", "cpu")
    assert len(translator.tokenizer.encode_source("1999 2001")) < 8  # numbers of several digits are pieces
    assert pairs_seen(Course(10, 1, 4, 4_096), translator, train) == 40
    assert 10 <= pairs_seen(Course(10, 1, 512, 100), translator, train) <= 10 * 100 / 4
