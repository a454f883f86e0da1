"""`pretrain(init=...)` goes on where a language model of any kind stopped: its tokenizer, its weights, its loss."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

import kinfolk
from kinfolk.api.experiment import Trained
from kinfolk.errors import ConfigError, InputError
from kinfolk.training.settings import OptimizerSettings

CHAIN = ("red", "blue", "green", "gold", "grey")  # after each colour comes the next one
LINES = [" ".join(CHAIN[(number + place) % 5] for place in range(3 + number % 4)) for number in range(200)]
KINDS = ("lstm", "gru", "rnn", "gru_reset_before", "gpt2")


def train(kind: str, output: Path, **changes: Any) -> Trained:
    length = {"max_length": 12} if kind == "gpt2" else {"bptt_length": 10}
    usual = {"batch_size": 8, "steps": 25, "learning_rate": 2e-2, "evaluations": 1, "device": "cpu"}
    return kinfolk.pretrain(kind, LINES, output, LINES[:20], **length | usual | changes)


def fresh(kind: str, output: Path) -> Path:
    sizes = {"width": 16, "layers": 1, "dropout": 0.0}
    train(kind, output, changes=sizes | ({"heads": 2, "attention_dropout": 0.0} if kind == "gpt2" else {}))
    return output


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_language_model_goes_on_where_it_stopped(kind: str, tmp_path: Path) -> None:
    begun = losses(fresh(kind, tmp_path / "begun"))
    run = train(kind, tmp_path / "run", init=tmp_path / "begun", steps=1, learning_rate=1e-9)
    assert "continued from" in str(run.data)
    assert list(run.initialized) == []
    before, after = (kinfolk.load_encoder(tmp_path / name, device="cpu") for name in ("begun", "run"))
    assert after.tokenizer.to_json() == before.tokenizer.to_json()
    torch.testing.assert_close(after.model.state_dict(), before.model.state_dict(), rtol=0, atol=1e-6)
    assert losses(tmp_path / "run")[0] < 0.6 * begun[0]
    assert run.before == pytest.approx(dict(run.metrics), rel=1e-4)


@pytest.mark.parametrize(("given", "rate"), [({}, 1e-4), ({"learning_rate": 3e-4}, 3e-4)], ids=["chosen", "given"])
def test_a_checkpoint_is_continued_at_a_low_rate_and_measured_before(
    given: dict[str, float], rate: float, tmp_path: Path
) -> None:
    begun = train("gpt2", tmp_path / "begun", changes={"width": 16, "layers": 1, "heads": 2})
    assert begun.before == {}
    usual = {"batch_size": 8, "max_length": 12, "steps": 10, "evaluations": 1, "device": "cpu"}
    run = kinfolk.pretrain("gpt2", LINES, tmp_path / "run", LINES[:20], init=tmp_path / "begun", **usual | given)
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recorded["settings"]["optimization"]["learning_rate"] == rate
    assert ("chosen      learning_rate 0.0001: " in str(run.data)) == (not given)
    assert run.before == pytest.approx(dict(begun.metrics), rel=1e-5)
    assert run.metrics["perplexity"] < run.before["perplexity"]
    for page in ("report.md", "model/README.md"):
        assert (
            "| on the dev text | value | checkpoint before | without a model |" in (tmp_path / "run" / page).read_text()
        )


def test_a_whole_optimization_is_not_mixed_with_what_is_usual(tmp_path: Path) -> None:
    own = OptimizerSettings(learning_rate=1e-5, weight_decay=0.3)
    fresh("gpt2", tmp_path / "begun")
    usual = {"batch_size": 8, "max_length": 12, "steps": 1, "evaluations": 1, "device": "cpu"}
    kinfolk.pretrain("gpt2", LINES, tmp_path / "run", LINES[:20], init=tmp_path / "begun", optimization=own, **usual)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["optimization"] == {
        **asdict(own), "betas": list(own.betas)
    }  # fmt: skip


def test_a_continued_model_learns_with_the_dropout_that_is_asked_for(tmp_path: Path) -> None:
    fresh("gpt2", tmp_path / "begun")
    train("gpt2", tmp_path / "run", init=tmp_path / "begun", steps=1, changes={"dropout": 0.4})
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["dropout"] == 0.4
    with pytest.raises(InputError, match="changes"):
        train("gpt2", tmp_path / "other", init=tmp_path / "begun", steps=1, changes={"width": 32})
    fresh("lstm", tmp_path / "lstm")
    with pytest.raises(ConfigError, match="attention_dropout"):
        train("lstm", tmp_path / "other", init=tmp_path / "lstm", steps=1, changes={"attention_dropout": 0.4})


@pytest.mark.parametrize("size", [0, -4])
def test_batches_of_no_samples_are_refused(size: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"batch_size={size}"):
        train("gpt2", tmp_path / "run", batch_size=size)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_recurrent_model_goes_on_as_its_own_kind_only(tmp_path: Path) -> None:
    fresh("lstm", tmp_path / "lstm")
    with pytest.raises(InputError, match="lstm has kind=lstm; gru is needed"):
        train("gru", tmp_path / "run", init=tmp_path / "lstm")
    assert not (tmp_path / "run").exists()
