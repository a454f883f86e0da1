"""What a translator's settings are where nobody names them: they suit the pairs, are shown, and give way to what is
named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kinfolk
from kinfolk.api.fitting import fit_finetuning, fit_translator
from kinfolk.data.tables import to_pairs
from kinfolk.training.settings import OptimizerSettings
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
    dates = to_pairs([(f"the day {index} of May", f"05-{index}") for index in range(5_000)])
    assert fit_translator(dates, True, NOTHING)["vocabulary_kind"] == "characters"
    text = to_pairs(words(20_000, 12))
    assert fit_translator(text, True, NOTHING)["vocabulary_kind"] == "bpe"
    assert fit_translator(text, True, NOTHING)["size"] == "small"


def test_what_is_named_stays_and_has_no_reason() -> None:
    named = {"vocabulary_kind": "bpe", "vocabulary_size": 700, "size": "small", "label_smoothing": 0.2}
    named |= {"learning_rate": 3e-4, "dropout": 0.0}
    fitted = fit_translator(to_pairs([("one", "1")] * 10), True, named)
    assert fitted.values == named
    assert not fitted.rows


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_has_a_reason(name: str) -> None:
    for kind in ("seq2seq", "attention", "transformer"):
        for pairs in (words(200, 1), words(200, 12), words(4_000, 12), words(20_000, 12)):
            fitted = fit_translator(to_pairs(pairs), kind != "transformer", NOTHING)
            assert (fitted[name] is None) == (name not in fitted.reasons)
            assert name != "vocabulary_size" or type(fitted[name]) in (int, type(None))


def test_choices_are_printed_and_kept_with_the_run(tmp_path: Path) -> None:
    result = kinfolk.train_translator(tmp_path, small_pairs(60), kind="attention", steps=2)
    stored = json.loads((tmp_path / "run.json").read_text())
    assert stored["chosen"]
    for reason in stored["chosen"].values():
        assert reason in str(result.data)
    assert stored["vocabulary"]["kind"] == "characters"
    assert stored["config"]["dropout"] == 0.3


def test_few_epochs_of_few_examples_have_small_batches(tmp_path: Path) -> None:
    for min_steps, shares in ((0, 1), (21, 2), (1_000_000, 8)):
        folder = tmp_path / str(min_steps)
        kinfolk.train_translator(
            folder, small_pairs(80), dev=[], kind="seq2seq", epochs=4, batch_size=16, min_steps=min_steps
        )
        assert (folder / "log.jsonl").read_text().count("\n") == 4 * 80 // 16 * shares


@pytest.mark.parametrize(
    ("examples", "epochs", "steps"),
    [(10, 24, None), (50, 24, None), (200, 6, None), (5_000, None, None), (50, None, 7)],
)
def test_few_examples_are_seen_more_often(examples: int, epochs: float | None, steps: int | None) -> None:
    fitted = fit_finetuning(examples, 768, {} if steps is None else {"steps": steps})
    assert fitted.values.get("epochs") == epochs
    assert "learning_rate" not in fitted.values
    assert ("min_steps" in fitted.values) == (steps is None)


def test_what_is_said_of_rate_and_batch_stays() -> None:
    assert fit_finetuning(50, 384, {})["learning_rate"] == 1e-4
    for given in ({"learning_rate": 3e-5}, {"optimization": OptimizerSettings(learning_rate=3e-5)}):
        assert fit_finetuning(50, 384, given).values.get("learning_rate", 3e-5) == 3e-5
    for given in ({"batch_size": 16}, {"batch_tokens": 256}, {"min_steps": 3}):
        assert fit_finetuning(50, 384, given).values.get("min_steps", 3) == 3


@pytest.mark.parametrize(
    ("words", "changes", "dropout"), [(4_000, {}, 0.0), (4_000, {"dropout": 0.3}, 0.3), (40, {}, 0.1)], ids=str
)
def test_a_long_text_is_learned_without_dropout_but_the_folder_keeps_the_usual_one(
    words: int, changes: dict[str, float], dropout: float, tmp_path: Path
) -> None:
    text = [" ".join("abcde"[(line * 7 + word) % 5] for word in range(10)) for line in range(words // 10)]
    shape: dict[str, Any] = {"width": 8, "heads": 2, "inner_width": 16, "layers": 1, **changes}
    training: dict[str, Any] = {"steps": 2, "batch_size": 2, "max_length": 16, "device": "cpu"}
    vocabulary: dict[str, Any] = {"vocabulary_kind": "words", "vocabulary_size": 6}
    kinfolk.pretrain("gpt2", text, tmp_path, dev=text[:2], changes=shape, **vocabulary, **training)
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["config"]["dropout"] == dropout
    assert ("dropout" in run["chosen"]) == (dropout == 0)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["resid_pdrop"] == changes.get("dropout", 0.1)
