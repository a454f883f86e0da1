"""Folders of recurrent models survive, and each fault is one clear line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kinfolk.checkpoints.folder import Checkpoint, read_checkpoint, write_checkpoint
from kinfolk.errors import ConfigError, KinfolkError, WeightsError
from kinfolk.models.family import Model
from kinfolk.nn.packed import pack
from support.tiny import RECURRENTS as VARIANTS
from support.tiny import our_lm, our_seq2seq

HOSTILE: list[Any] = [
    None, True, 0, 1, -1, 3, 10**6, 10**12, 10**30, 2**24, 0.5, 1.5, 1e300, "", "x", "gru", "dot", "x" * 10_000, [],
    [None], {}, {"a": 1}, [10**9] * 3,
]  # fmt: skip


def write_lm(folder: Path, model: Model, public: dict[str, Any] | None = None) -> None:
    write_checkpoint(folder, Checkpoint(model, public or {}))


@pytest.mark.parametrize("variant", VARIANTS)
def test_folders_of_seq2seq_models_are_exact(variant: str, tmp_path: Path) -> None:
    model = our_seq2seq(**VARIANTS[variant]).float()
    write_checkpoint(tmp_path, Checkpoint(model, {"languages": ["de", "en"]}))
    found = read_checkpoint(tmp_path)
    assert found.hf_config["languages"] == ["de", "en"]
    assert (found.model.config, type(found.model)) == (model.config, type(model))
    source, target = pack([[3, 4, 5], [6]]), pack([[1], [1, 7]])
    with torch.no_grad():
        assert found.model(source, target).equal(model(source, target))


@pytest.mark.parametrize("kind", ["lstm", "gru_reset_before"])
@pytest.mark.parametrize("tied", [False, True])
def test_folders_of_language_models_are_exact(kind: str, tied: bool, tmp_path: Path) -> None:
    model, tokens = our_lm(kind=kind, tied=tied).float(), pack([[3, 4, 5], [6]])
    write_lm(tmp_path, model, {"language": "en"})
    found = read_checkpoint(tmp_path)
    assert (found.hf_config["model_type"], found.hf_config["language"]) == ("kinfolk-recurrent-lm", "en")
    assert found.hf_config["architectures"] == ["RecurrentLm"]
    assert (found.model.config, found.model.training, list(found.model.heads)) == (model.config, False, ["next_token"])
    with torch.no_grad():
        assert found.model(tokens).equal(model(tokens))
        assert found.model.vocabulary_scores(model(tokens)).equal(model.vocabulary_scores(model(tokens)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda tensors: tensors.pop("decoder.output_bias"),
            "1 tensors that Recurrent LM lacks",
        ),
        (lambda tensors: tensors.update(more=torch.zeros(2)), "1 tensors that Recurrent LM lacks: more"),
        (
            lambda tensors: tensors.update({"decoder.table.weight": torch.zeros(29, 8)}),
            r"decoder\.table\.weight has shape \(29, 8\), the settings ask for \(30, 8\)",
        ),
        (lambda tensors: tensors["decoder.output_bias"].fill_(float("nan")), "holds NaN or infinite numbers"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(tmp_path: Path, change: Callable[[Any], Any], message: str) -> None:
    write_lm(tmp_path, our_lm(tied=False).float())
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=message):
        read_checkpoint(tmp_path)


def test_an_unknown_model_type_is_answered(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "kinfolk-recurent-lm"}')
    with pytest.raises(ConfigError, match=r'"kinfolk-recurent-lm" is not one .* mean "kinfolk-recurrent-lm"'):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("which", ["attention", "language model"])
def test_a_mutated_config_loads_or_is_refused_in_one_line(which: str, tmp_path: Path) -> None:
    rng, messages = random.Random(0), []
    if which == "attention":
        write_checkpoint(tmp_path, Checkpoint(our_seq2seq(score="bilinear").float()))
    else:
        write_lm(tmp_path, our_lm(tied=False).float())
    text = (tmp_path / "config.json").read_text()
    for _ in range(100):
        settings = json.loads(text)
        for name in rng.sample(sorted(settings), rng.randint(1, 2)):
            settings[name] = rng.choice(HOSTILE)
        (tmp_path / "config.json").write_text(json.dumps(settings))
        try:
            if which == "attention":
                read_checkpoint(tmp_path).model(pack([[5, 6, 7], [8]]), pack([[1], [1, 9]]))
            else:
                read_checkpoint(tmp_path).model(pack([[5, 6, 7], [8]]))
        except KinfolkError as error:
            messages.append(str(error))
    assert 40 < len(messages) < 100
    assert all("\n" not in message and len(message) < 600 for message in messages)
