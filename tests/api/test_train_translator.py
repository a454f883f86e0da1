"""Training a translator: every kind comes in by its preset, a run goes on to the same bytes, and nothing is silent."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

import kinfolk
from kinfolk.api import translation
from kinfolk.api.experiment import Callbacks, Summary
from kinfolk.errors import ConfigError, DataError, FolderError, InputError
from small_pairs import SIZES, VOCABULARY, pairs, train, translated, weights


def test_it_learns_and_the_folder_translates(small_translator: Path) -> None:
    log = [json.loads(line) for line in (small_translator / "log.jsonl").read_text().splitlines()]
    assert log[-1]["metrics"]["exact"] > 0.9
    assert log[-1]["metrics"]["bleu"] > 90
    assert log[-1]["loss"] < log[0]["loss"] / 3
    model = kinfolk.load(small_translator, device="cpu")
    sources = [source for source, _ in pairs(30, seed=7)]
    found = model.translate(sources)
    assert sum(text == translated(source) for source, text in zip(sources, found, strict=True)) > 25
    assert model.hf_config["trained_length"] == [7, 7]


def test_single_words_of_which_bleu_knows_nothing_are_selected_by_how_many_are_right(tmp_path: Path) -> None:
    words = [(f"{one}{other}", f"{other}{one}") for one in "abcdefgh" for other in "abcdefgh"]
    changes = {"vocabulary_size": None, "evaluations": 4}
    train(tmp_path / "run", "seq2seq", pairs=words * 4, dev=words[::5], **changes)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    found = [(entry["metrics"], entry["selection_score"]) for entry in log if "metrics" in entry]
    assert found[-1][0]["exact"] > 0
    for metrics, score in found:
        assert metrics["bleu"] == 0
        assert score == pytest.approx(100 * metrics["exact"], abs=1e-4)


def test_the_report_shows_what_it_writes_and_the_card_quotes_no_text(small_translator: Path) -> None:
    report, card = ((small_translator / name).read_text() for name in ("report.md", "model/README.md"))
    for text in (report, card):
        assert "| bleu | " in text
        assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" in text
        assert "| steps | 120" in text
    assert "| salt" in report or "| boat" in report
    assert not any(f"| {word}" in card for word in ("salt", "boat", "star", "sel"))
    assert (small_translator / "loss.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_every_kind_is_trained_saved_and_loaded_alike(kind: str, tmp_path: Path) -> None:
    told: list[Summary] = []
    callbacks, joint = Callbacks(lambda summary, _: told.append(summary)), kind == "seq2seq"
    found = train(tmp_path / "run", kind, count=60, steps=2, joint=joint, callbacks=callbacks, vocabulary_size=35)
    assert found.metrics.keys() == {"bleu", "exact", "bleu_greedy", "loss"}
    assert str(told[0]).startswith("pairs       60 to train on, 40 for dev")
    model = kinfolk.load(tmp_path / "run", device="cpu")
    assert f"{sum(weight.numel() for weight in model.model.parameters()):,} parameters" in str(told[0])
    assert len(model.translate(["salt moon", "star"], max_length=3)) == 2  # type: ignore[arg-type]


def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(seed: int, progress: object) -> None:
        if progress.step == 5:  # type: ignore[attr-defined]
            raise StopError

    settings = {"kind": "seq2seq", "count": 100, "steps": 8, "changes": SIZES["seq2seq"], "vocabulary_size": 40}
    train(tmp_path / "whole", **settings)
    with pytest.raises(StopError):
        train(tmp_path / "run", callbacks=Callbacks(step=stop), **settings)
    with pytest.raises(FolderError, match=r"config.vocabulary_size was 40, is 41, another tokenizer"):
        train(tmp_path / "run", **settings | {"vocabulary_size": 41})
    with pytest.raises(FolderError, match=r"task.smoothing was 0.1, is 0.0"):
        train(tmp_path / "run", label_smoothing=0.0, **settings)
    with pytest.raises(FolderError, match="other examples"):
        train(tmp_path / "run", dev=pairs(41, seed=1), **settings)
    train(tmp_path / "run", **settings)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    with pytest.raises(FolderError, match="already holds a trained model"):
        train(tmp_path / "run", **settings)


def test_pairs_that_are_too_long_are_left_out_and_told(tmp_path: Path) -> None:
    long = [*pairs(50), ("salt " * 30, "sel"), ("salt", "sel " * 30), ("\u200b", "sel")]
    changes = SIZES["seq2seq"] | {"positions": 25}
    found = train(tmp_path / "run", "seq2seq", pairs=long, steps=1, changes=changes, vocabulary_size=40)
    assert str(found.data).startswith("pairs       50 to train on")
    assert "2 pairs were left out, longer than the model's limit: pair 51, pair 52" in found.notes
    assert "1 pairs were left out, nothing to read for the vocabulary: pair 53" in found.notes
    with pytest.raises(DataError, match="no pair is left to train on"):
        train(tmp_path / "other", "seq2seq", changes=SIZES["seq2seq"] | {"positions": 1}, steps=1)


def test_without_a_dev_set_some_is_held_out_or_nothing(tmp_path: Path) -> None:
    small = {"kind": "seq2seq", "count": 100, "steps": 1, "changes": SIZES["seq2seq"], "vocabulary_size": 40}
    found = train(tmp_path / "held", dev=None, **small)
    assert "pairs       90 to train on, 10 for dev" in str(found.data)
    assert "a source that is trained on too" not in str(found.data)
    without = train(tmp_path / "blind", dev=[], **small)
    assert (without.metrics, without.data.rows[0][1]) == ({}, "100 to train on, 0 for dev")
    assert "there was no dev set" in (tmp_path / "blind" / "report.md").read_text()
    assert kinfolk.load(tmp_path / "blind", device="cpu").translate("") == ""


def test_bleu_of_some_dev_pairs_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "MAX_EVALUATED", 7)
    found = train(tmp_path / "run", "seq2seq", count=40, steps=1, vocabulary_size=40)
    assert isinstance(found.result, translation.TranslationResult)
    assert (len(found.result.samples), found.result.dev_pairs) == (7, 40)
    for name in ("report.md", "model/README.md"):
        text = (tmp_path / "run" / name).read_text()
        assert "| on 7 of 40 dev pairs | value |" in text
        assert "| loss on all of them | " in text
        assert "on the dev set |" not in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"vocabulary_size": 5000}, r"supports \d+ tokens, not vocabulary_size=5000; ask for fewer"),
        ({"vocabulary_size": 0}, "vocabulary_size=0 must be more than the 4 special tokens"),
        ({"kind": "transfomer"}, 'did you mean "transformer"'),
        ({"size": "huge"}, "choose one of base, small, tiny"),
        ({"changes": {"widht": 3}}, 'did you mean "width"'),
        ({"changes": {"end_id": 3}}, "follows from the vocabulary"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ({"epoch": 3}, 'did you mean "epochs"'),
        ({"steps": 5, "minutes": 1}, "minutes and steps each say how long to train"),
        ({"pairs": None}, "as one file"),
        ({"source": "a.en"}, "as one file"),
        ({"vocabulary_kind": "letters"}, "choose one of"),
        ({"columns": ["en", "fr"]}, "columns are those of a table of pairs"),
        (
            {"kind": "transformer", "scheduled_sampling": 0.5, "sampling_mode": "step-wise"},
            "a Transformer",
        ),
    ],
)
def test_what_cannot_be_done_is_told_at_once(changes: dict[str, object], told: str, tmp_path: Path) -> None:
    given = {"pairs": pairs(40), "kind": "attention", "vocabulary_size": VOCABULARY} | changes
    with pytest.raises((InputError, ConfigError), match=told):
        kinfolk.train_translator(tmp_path / "run", **given)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def dates(count: int) -> list[tuple[str, str]]:
    days = [datetime.date(1990, 1, 1) + datetime.timedelta(days=11 * number) for number in range(count)]
    return [(f"{day:%B} {day.day}, {day.year}", day.isoformat()) for day in days]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "byte_bpe", "words"])
def test_nothing_is_about_languages_and_the_vocabulary_is_as_large_as_the_pairs_support(
    kind: str, tmp_path: Path
) -> None:
    given = {"pairs": dates(400), "dev": dates(20), "vocabulary_size": None, "vocabulary_kind": kind, "steps": 1}
    found = train(tmp_path / "run", "seq2seq", **given)
    model = kinfolk.load(tmp_path / "run", device="cpu")
    assert model.tokenizer.source_size < 8_000
    assert f"{model.tokenizer.source_size:,} pieces" in str(found.data)
    assert model.tokenizer.unknown_id not in model.tokenizer.encode_source("May 5, 1999")


@pytest.mark.parametrize("dev", [[("salt " * 600, "sel")], [("\u200b", "sel")]], ids=["too long", "silent"])
def test_a_dev_set_of_which_nothing_is_left_is_refused(dev: list[tuple[str, str]], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of the 1 dev pairs can be evaluated"):
        train(tmp_path / "run", "transformer", dev=dev, steps=2)
    assert not (tmp_path / "run" / "model").exists()


def test_a_width_that_only_the_additive_score_has_is_refused_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"score_width.*bilinear"):
        train(tmp_path / "run", changes={**SIZES["attention"], "score_width": 64}, steps=1)
