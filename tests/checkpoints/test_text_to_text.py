"""Folders of text-to-text and recurrent models, our own and Marian's, survive; each fault is one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kinfolk.checkpoints.folder import TextModel, read_checkpoint, write_checkpoint
from kinfolk.checkpoints.manifest import check_manifest, write_manifest
from kinfolk.errors import ConfigError, FolderError, WeightsError
from kinfolk.models.family import Model
from kinfolk.nn.packed import pack
from support.tiny import (
    MARIANS,
    RECURRENTS,
    TRANSFORMERS,
    change_config,
    our_lm,
    our_seq2seq,
    our_transformer,
    their_marian,
)

SHARED, POSITIONS = "model.shared.weight", "model.encoder.embed_positions.weight"


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    their_marian().save_pretrained(tmp_path / "marian")
    return tmp_path / "marian"


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


MODELS: dict[str, Callable[[], Model]] = {
    **{f"Transformer, {name}": partial(our_transformer, **settings) for name, settings in TRANSFORMERS.items()},
    **{f"recurrent, {name}": partial(our_seq2seq, **settings) for name, settings in RECURRENTS.items()},
    **{f"language model, {kind}": partial(our_lm, kind=kind) for kind in ("lstm", "gru_reset_before")},
    "language model, tied": partial(our_lm, kind="lstm", tied=True),
    "language model, untied": partial(our_lm, kind="gru_reset_before", tied=False),
}


@pytest.mark.parametrize("case", MODELS)
def test_our_own_folders_are_exact_and_have_a_manifest(case: str, tmp_path: Path) -> None:
    model = MODELS[case]().float()
    write_checkpoint(tmp_path, TextModel(model, hf_config={"languages": ["de", "en"]}))
    write_manifest(tmp_path)
    assert check_manifest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "kinfolk.json", "model.safetensors"]
    saved = read_checkpoint(tmp_path)
    assert (saved.hf_config["model_type"], saved.hf_config["languages"]) == (model.family.name, ["de", "en"])
    assert (saved.model.config, saved.model.training) == (model.config, False)
    before, after = model.state_dict(), saved.model.state_dict()
    assert before.keys() == after.keys()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())
    source, target = pack([[3, 4, 5], [6]]), pack([[1], [1, 7]])
    inputs = (source, target) if model.family.is_conditional else (source,)
    with torch.no_grad():
        assert saved.model.vocabulary_scores(saved.model(*inputs)).equal(model.vocabulary_scores(model(*inputs)))


@pytest.mark.parametrize("case", MARIANS)
def test_a_folder_that_repeats_its_tables_and_sinusoids_is_read(case: str, tmp_path: Path) -> None:
    theirs = their_marian(**MARIANS[case])
    theirs.save_pretrained(tmp_path)
    expected = read_checkpoint(tmp_path).model.state_dict()
    everything = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    change_weights(tmp_path, lambda tensors: tensors.update(everything))
    assert POSITIONS in load_file(tmp_path / "model.safetensors")
    actual = read_checkpoint(tmp_path).model.state_dict()
    assert all(tensor.equal(actual[name]) for name, tensor in expected.items())


def test_a_repeat_stands_in_for_the_table(marian: Path) -> None:
    expected = read_checkpoint(marian).model.state_dict()
    change_weights(marian, lambda tensors: tensors.update({"lm_head.weight": tensors.pop(SHARED)}))
    actual = read_checkpoint(marian).model.state_dict()
    assert actual["body.source_table.weight"].equal(expected["body.source_table.weight"])


def test_settings_for_generation_are_handed_on_with_our_ids(marian: Path, tmp_path: Path) -> None:
    (marian / "generation_config.json").write_text(
        json.dumps({"num_beams": 6, "max_length": 99, "eos_token_id": 7, "_from_model_config": True})
    )
    write_checkpoint(tmp_path / "saved", read_checkpoint(marian))
    generation = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["max_length"], generation["eos_token_id"]) == (6, 99, 0)
    assert generation["decoder_start_token_id"] == generation["pad_token_id"] == 29
    assert "_from_model_config" not in generation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("final_logits_bias"), "missing .*: final_logits_bias"),
        (lambda tensors: tensors.pop(SHARED), f"missing .*: {SHARED}"),
        (lambda tensors: tensors.update(more=torch.zeros(2)), ": more"),
        (
            lambda tensors: tensors.update({SHARED: tensors[SHARED][:-1]}),
            r"model\.shared\.weight .*\(29, 16\), .*\(30, 16\)",
        ),
        (
            lambda tensors: tensors.update(final_logits_bias=tensors["final_logits_bias"][0]),
            r"final_logits_bias .*\(30,\), .*\(1, 30\)",
        ),
        (
            lambda tensors: tensors.update({"lm_head.weight": tensors[SHARED] + 1}),
            r"lm_head\.weight .*model\.shared\.weight",
        ),
        (lambda tensors: tensors.update({POSITIONS: torch.zeros(8, 16)}), f"{POSITIONS} .*sinusoids"),
        (lambda tensors: tensors.update({POSITIONS: torch.zeros(8, 4)}), f"{POSITIONS} .*16"),
        (lambda tensors: tensors[SHARED].fill_(float("nan")), "NaN"),
        (lambda tensors: tensors.update({SHARED: tensors[SHARED].int()}), "floating-point"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    marian: Path, change: Callable[[dict[str, Tensor]], Any], message: str
) -> None:
    change_weights(marian, change)
    with pytest.raises(WeightsError, match=message) as caught:
        read_checkpoint(marian)
    assert str(marian / "model.safetensors") in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"model_type": None}, ConfigError, "no model_type"),
        ({"model_type": "bert"}, ConfigError, 'architecture "MarianMTModel"'),
        ({"architectures": ["MarianModel"]}, ConfigError, 'architecture "MarianModel"'),
        ({"decoder_attention_heads": 2}, ConfigError, "encoder_attention_heads=4 .*decoder_attention_heads=2"),
        ({"d_model": 2**24}, WeightsError, "has shape"),
        ({"vocab_size": 2**24, "decoder_vocab_size": 2**24}, WeightsError, "has shape"),
        ({"encoder_layers": 3}, WeightsError, "16 tensors"),
        ({"decoder_layers": 2}, WeightsError, "26 tensors"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_memory_is_taken(
    marian: Path, settings: dict[str, Any], kind: type[FolderError], message: str
) -> None:
    change_config(marian, **settings)
    with pytest.raises(kind, match=message):
        read_checkpoint(marian)


def test_an_unknown_model_type_is_answered(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "kinfolk-recurent-lm"}')
    with pytest.raises(ConfigError, match=r'"kinfolk-recurent-lm" .*"kinfolk-recurrent-lm"'):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("decoder.output_bias"), "1 tensors .*Recurrent LM"),
        (lambda tensors: tensors.update(more=torch.zeros(2)), "Recurrent LM .*: more"),
        (
            lambda tensors: tensors.update({"decoder.table.weight": torch.zeros(29, 8)}),
            r"decoder\.table\.weight .*\(29, 8\), .*\(30, 8\)",
        ),
        (lambda tensors: tensors["decoder.output_bias"].fill_(float("nan")), "NaN"),
    ],
)
def test_a_language_model_s_tensor_that_does_not_fit_is_named(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], Any], message: str
) -> None:
    write_checkpoint(tmp_path, TextModel(our_lm(tied=False).float()))
    change_weights(tmp_path, change)
    with pytest.raises(WeightsError, match=message):
        read_checkpoint(tmp_path)
