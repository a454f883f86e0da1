"""Who follows CONTRIBUTING.md has a relative that learns from nothing, is saved and loaded, and bears new heads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gated
import pytest
from relatives import tiny_config, tiny_model

import kinfolk
from kinfolk.data.examples import Example
from kinfolk.models.family import init_model, init_normal, with_new_head

CORPUS = [f"The {thing} is red. It is {size}." for thing in ("sun", "sea", "salt") for size in ("old", "wide")] * 4


def gates(model: kinfolk.Encoder) -> list[float]:
    return [block.attention.output.gate.item() for block in model.model.body.stack.blocks]


def test_it_is_trained_from_scratch_saved_loaded_and_fine_tuned(tmp_path: Path) -> None:
    told = {"steps": 3, "batch_size": 4, "evaluations": 1, "device": "cpu"}
    kinfolk.pretrain("gated", CORPUS, tmp_path / "run", CORPUS[:6], max_length=24, **told)
    model = kinfolk.load_encoder(tmp_path / "run", device="cpu")
    assert model.model.family is gated.FAMILY
    assert model.model.config.activation == "relu"
    assert all(0.4 < gate < 0.6 and gate != 0.5 for gate in gates(model))
    assert model.fill("The [MASK] is red.", top=1)
    rows = [Example(text, None, "old" if "old" in text else "wide", text) for text in CORPUS]
    kinfolk.finetune(model, rows, tmp_path / "tuned", rows[:6], report=False, **told)
    assert kinfolk.load_encoder(tmp_path / "tuned", device="cpu").classify("The sun is red.").label in ("old", "wide")


def test_a_new_head_leaves_the_gates_as_they_were() -> None:
    model = tiny_model(gated.FAMILY, [])
    found, initialized = with_new_head(model, "classify", 2)
    state = found.state_dict()
    assert all(weight.equal(state[name]) for name, weight in model.state_dict().items())
    assert not any("gate" in name for name in initialized)


def test_a_family_that_does_not_say_how_its_gates_start_is_refused_by_their_names() -> None:
    silent = replace(gated.FAMILY, initialize=init_normal)
    with pytest.raises(TypeError, match=r"Gated BERT must say how body\.stack\.blocks\.0\.attention\.output\.gate, "):
        init_model(silent, tiny_config(silent))
