"""What a translator's settings are where nobody names them: they suit the pairs, are told, and give way to what is
named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kinfolk
from kinfolk.api.fitting import fit_translator
from kinfolk.data.tables import to_pairs
from small_pairs import pairs as small_pairs

NAMES = "vocabulary_kind", "vocabulary_size", "size", "label_smoothing", "learning_rate", "dropout"
NOTHING = dict.fromkeys(NAMES)


def words(count: int, length: int) -> list[tuple[str, str]]:
    sides = [
        " ".join(f"{side}{(number * length + index) % 997}" for index in range(length))
        for side in "ab"
        for number in range(count)
    ]
    return list(zip(sides[:count], sides[count:], strict=True))


def test_letters_where_they_matter_and_pieces_where_there_is_text() -> None:
    dates = to_pairs([(f"the day {number} of May", f"05-{number}") for number in range(5_000)])
    assert fit_translator(dates, "attention", NOTHING)["vocabulary_kind"] == "characters"
    text = to_pairs(words(20_000, 12))
    assert fit_translator(text, "attention", NOTHING)["vocabulary_kind"] == "bpe"
    assert fit_translator(text, "attention", NOTHING)["size"] == "small"


def test_what_is_named_stays_and_has_no_reason() -> None:
    named = {"vocabulary_kind": "bpe", "vocabulary_size": 700, "size": "small", "label_smoothing": 0.2}
    named |= {"learning_rate": 3e-4, "dropout": 0.0}
    fitted = fit_translator(to_pairs([("one", "1")] * 10), "attention", named)
    assert fitted.values == named
    assert not fitted.rows


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_has_a_reason(name: str) -> None:
    for kind in ("seq2seq", "attention", "transformer"):
        for pairs in (words(200, 1), words(200, 12), words(4_000, 12), words(20_000, 12)):
            fitted = fit_translator(to_pairs(pairs), kind, NOTHING)
            assert (fitted[name] is None) == (name not in fitted.reasons)


def test_choices_are_printed_and_kept_with_the_run(tmp_path: Path) -> None:
    result = kinfolk.train_translator(tmp_path, small_pairs(60), kind="attention", steps=2)
    stored = json.loads((tmp_path / "run.json").read_text())
    assert stored["fitted"]
    for _, told in stored["fitted"]:
        assert told in str(result.data)
    assert stored["vocabulary"]["kind"] == "characters"
    assert stored["config"]["dropout"] == 0.3


def test_few_epochs_of_few_examples_have_small_batches(tmp_path: Path) -> None:
    for min_steps, shares in ((0, 1), (21, 2), (1_000_000, 8)):
        folder = tmp_path / str(min_steps)
        kinfolk.train_translator(
            folder, small_pairs(80), dev=[], kind="seq2seq", epochs=4, batch_size=16, min_steps=min_steps
        )
        assert (folder / "log.jsonl").read_text().count("\n") == 4 * 80 // 16 * shares
