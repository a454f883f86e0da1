"""`train-translator`: its options reach the run, its files are read as they are named, its figures hold in a test."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kinfolk.api import translation
from kinfolk.api.loaded import load_translator
from kinfolk.files import read_object
from kinfolk.training.runs import best_entry
from small_pairs import pairs, write_pairs
from surroundings import Command

SMALL = ["--kind", "seq2seq", "--set", "width=16,hidden=16,layers=1", "--steps", "2", "--evaluations", "1"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Pairs among other columns."""
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("id", "xx", "en"), *((1, target, source) for source, target in pairs(60))])
    return path


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_own_guesses_are_asked_for_by_options(command: Command, tmp_path: Path) -> None:
    sampling = ["--scheduled-sampling", "1", "--sampling-schedule", "constant", "--sampling-mode", "step-wise"]
    data = ["--pairs", write_pairs(tmp_path / "train.tsv", 60), "--vocabulary-size", "40", "--device", "cpu"]
    assert command("train-translator", *data, *SMALL, *sampling, "--output", tmp_path / "free").code == 0
    assert command("train-translator", *data, *SMALL, "--output", tmp_path / "forced").code == 0
    saved = read_object(tmp_path / "free" / "run.json")["task"]["sampling"]
    assert saved == {"maximum": 1.0, "schedule": "constant", "mode": "step-wise"}
    assert log_of(tmp_path / "free")[0]["loss"] != log_of(tmp_path / "forced")[0]["loss"]


def test_columns_and_a_vocabulary_for_each_side(command: Command, table: Path, tmp_path: Path) -> None:
    words = ["--vocabulary-size", "12", "--separate-vocabularies", "--vocabulary-kind", "words"]
    ended = command(
        "train-translator", "--pairs", table, "--columns", "en, xx", *SMALL, *words, "--output", tmp_path / "run"
    )
    assert ended.code == 0, ended.err
    assert re.search(r"\b12 .*\b12;.* 0\.00% .*source.* 0\.00% .*target", ended.err)
    tokenizer: Any = load_translator(tmp_path / "run", device="cpu").tokenizer
    assert not tokenizer.joint
    assert "salt" in tokenizer.source.to_json()
    assert "sel" in tokenizer.target.to_json()


def test_figures_of_some_dev_pairs_are_reported_as_such(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation, "MAX_EVALUATED", 5)
    data = ["--pairs", write_pairs(tmp_path / "train.tsv", 60), "--dev", write_pairs(tmp_path / "dev.tsv", 20, seed=1)]
    ended = command("train-translator", *data, *SMALL, "--vocabulary-size", "40", "--output", tmp_path / "run")
    assert "5 of 20 dev pairs" in ended.out
    (line,) = (line for line in ended.err.splitlines() if "step 2 of 2" in line)
    assert (line.count("loss "), line.count(", dev loss ")) == (2, 1)


def test_training_and_test_agree(command: Command, small_translator: Path, tmp_path: Path) -> None:
    dev = write_pairs(tmp_path / "dev.tsv", 40, seed=1)  # what it was evaluated on
    output = json.loads(command("evaluate", "--model", small_translator, "--input", dev, "--beam", "1", "--json").out)
    kept = best_entry(log_of(small_translator))
    assert kept is not None
    assert output["metrics"]["bleu"] == kept["metrics"]["bleu"]


def test_options_that_would_do_nothing_are_refused(command: Command, small_translator: Path, tmp_path: Path) -> None:
    sides = ["--source", tmp_path / "a.en", "--target", tmp_path / "a.xx"]
    run = ["train-translator", "--output", tmp_path / "run"]
    for arguments, message in (
        ([*run, *sides, "--columns", "en,xx"], "columns"),
        ([*run, *sides, "--sampling-mode", "step-wise"], "scheduled_sampling"),
        ([*run, *sides, "--sampling-schedule", "constant"], "scheduled_sampling"),
        ([*run, *sides, "--sampling-mode", "step-wise", "--scheduled-sampling", "1"], "Transformer"),
        ([*run, *sides, "--label-smoothing", "nan"], "--label-smoothing=nan"),
        (["translate", "--model", small_translator, "a", "--length-penalty", "1", "--beam", "1"], "length_penalty"),
        (["translate", "--model", small_translator, "a", "--length-penalty", "1", "--seed", "1"], "length_penalty"),
    ):
        ended = command(*arguments)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert message in ended.err, ended.err
    assert not (tmp_path / "run").exists()


def test_settings_of_the_model_may_be_given_one_by_one(command: Command, table: Path, tmp_path: Path) -> None:
    run = ["train-translator", "--output", tmp_path / "run", "--pairs", table, "--columns", "en,xx", "--steps", "1"]
    twice = command(*run, "--set", "dropout=0.3", "--set", "norm=pre,dropout=0.1")
    assert (twice.code, "dropout=0.1" in twice.err) == (2, True)
    hf_defaults = command(*run, "--set", "nonsense", "--set", "norm=pre")
    assert (hf_defaults.code, "nonsense" in hf_defaults.err) == (2, True)
    small = ("width=16", "hidden=16,layers=1")
    ended = command(*run, "--kind", "seq2seq", *(word for value in small for word in ("--set", value)))
    assert ended.code == 0, ended.err
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert (config["width"], config["hidden"], config["layers"]) == (16, 16, 1)
