"""From a text to a language model, what it writes, and the decoder that begins as it, by commands."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from kinfolk.api.loaded import load_encoder, load_translator
from small_pairs import pairs, write_pairs
from surroundings import Command

SMALL = ["--vocabulary-size", "45", "--batch-size", "4", "--steps", "2", "--evaluations", "1", "--device", "cpu"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "both.txt"
    path.write_text("".join(f"{text}\n" for pair in pairs(200) for text in pair))
    return path


def test_a_text_becomes_a_model_that_writes(
    command: Command, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ["--set", "width=16,layers=1", "--vocabulary-kind", "unigram", "--vocabulary-size", "35"]
    ended = command("pretrain", "gru", "--corpus", corpus, *SMALL, *sizes, "--output", tmp_path / "lm")
    assert ended.code == 0
    assert "Unigram, 35 tokens" in ended.err
    assert "step 2 of 2" in ended.err
    rows = {line.split()[0]: line.split()[1:] for line in ended.out.splitlines()[1:]}
    assert list(rows) == ["perplexity", "nats_per_character"]
    assert all(float(value) > 0 < float(baseline) for value, baseline in rows.values())
    config = load_encoder(tmp_path / "lm", device="cpu").model.config
    assert (config.kind, config.width, config.layers, config.vocabulary_size) == ("gru", 16, 1, 35)

    usual = ["generate", "--model", tmp_path / "lm", "--max-tokens", "5", "--seed", "1"]
    shown = command(*usual, "salt", "moon").out
    texts = json.loads(command(*usual, "salt", "moon", "--json").out)
    assert [text[:4] for text in texts] == ["salt", "moon"]
    assert shown == f"{texts[0]}\n\n{texts[1]}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"salt\nmoon\n")))
    assert command(*usual, "-").out == shown
    assert command("generate", "--model", tmp_path / "lm", "--max-tokens", "3", "--beam", "2").code == 0
    alone = command("generate", "--model", tmp_path / "lm", "salt", "--length-penalty", "1")
    assert (alone.code, alone.err.count("\n")) == (2, 1)
    one = ["generate", "--model", tmp_path / "lm", "salt", "--max-tokens", "5", "--seed", "1"]  # shown as it is written
    assert command(*one).out == json.loads(command(*one, "--json").out)[0] + "\n"


def test_a_language_model_is_evaluated_on_documents_as_it_was_trained(command: Command, tmp_path: Path) -> None:
    texts = ["\n".join(pair) for pair in pairs(60)]
    for name, some in (("train", texts[:40]), ("dev", texts[40:])):
        (tmp_path / name).write_text("\n\n".join(some))
    sizes = ["--size", "tiny", "--set", "width=16,layers=1,heads=1,inner_width=16", "--vocabulary-size", "270"]
    data = ["--corpus", tmp_path / "train", "--dev", tmp_path / "dev", "--output", tmp_path / "lm", "--json"]
    trained = command("pretrain", "gpt2", *data, *SMALL[2:], *sizes, "--max-length", "16")
    assert trained.code == 0, trained.err
    evaluate = ["evaluate", "--model", tmp_path / "lm", "--input", tmp_path / "dev", "--json"]
    found = {
        documents: json.loads(command(*evaluate, *(["--documents", documents] if documents else [])).out)["metrics"]
        for documents in ("", "blank-lines", "lines", "whole")
    }
    assert found[""] == found["blank-lines"]
    assert found[""]["perplexity"] == pytest.approx(json.loads(trained.out)["metrics"]["perplexity"], rel=1e-4)
    assert len({metrics["perplexity"] for metrics in found.values()}) == 3
    assert command(*evaluate, "--documents", "line").err.startswith("kinfolk: --documents='line' is not known")
    assert "--documents" in command("evaluate", "--model", "demo", "--input", "x", "--documents", "lines").err


def test_a_decoder_begins_as_a_language_model_without_further_settings(
    command: Command, corpus: Path, tmp_path: Path
) -> None:
    assert command("pretrain", "lstm", "--corpus", corpus, *SMALL, "--output", tmp_path / "lm").code == 0
    start = ["train-translator", "--kind", "seq2seq", "--init-decoder", tmp_path / "lm", "--output", tmp_path / "run"]
    data = [
        "--pairs",
        write_pairs(tmp_path / "train.tsv", 30),
        "--steps",
        "1",
        "--device",
        "cpu",
        "--vocabulary-size",
        "40",
    ]
    ended = command(*start, *data)
    assert ended.code == 0, ended.err
    assert "from a language model" in ended.err
    config = load_translator(tmp_path / "run", device="cpu").model.config
    assert (config.width, config.hidden, config.tied) == (200, 200, False)
    assert (config.vocabulary_size, config.target_vocabulary_size) == (40, 45)


def test_wrong_usage_is_reported(command: Command, corpus: Path, tiny_bert: Path, tmp_path: Path) -> None:
    run = ["pretrain", "lstm", "--corpus", corpus, "--output", tmp_path / "lm"]
    for arguments, message in (
        ([*run, "--vocabulary-size", "90000"], "--vocabulary-size=90000"),
        ([*run, "--size", "huge"], "huge"),
        ([*run, "--vocabulary-size", "45", "--set", "width"], "--set"),
        (["pretrain", "lsmt", *run[2:]], "kinfolk: kind='lsmt'"),
        (["generate", "--model", tiny_bert, "a"], "`kinfolk pretrain gpt2` trains one"),
    ):
        ended = command(*arguments)
        assert ended.code == 2
        assert message in ended.err, ended.err
    assert not (tmp_path / "lm").exists()
