"""head.json and head.safetensors: written, read again, and refused in one line when something is wrong."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from kinfolk.checkpoints.folder import TextModel, read_checkpoint, write_checkpoint
from kinfolk.errors import KinfolkError, WeightsError
from kinfolk.models.family import Model
from kinfolk.nn.packed import pack
from kinfolk.nn.probe import ProbeConfig, ProbeHead
from support.config_mutations import mutated

CONFIG = ProbeConfig((0, 1, 2), "mix", width=16, labels=3, recurrent=2, hidden=5, scale=0.7, dropout=0.3, crf=True)
TOKENS = pack([[5, 6, 7], [8]])
KINDS = {
    "tag": replace(CONFIG, crf=False),
    "tag_crf": CONFIG,
    "classify": replace(CONFIG, crf=False, pool="mean", recurrent=0, join="concat"),
}


def with_readout(folder: Path, name: str = "tag_crf", config: ProbeConfig = CONFIG) -> Model:
    torch.manual_seed(0)
    readout = ProbeHead(config)
    for weight in readout.parameters():
        torch.nn.init.normal_(weight)
    return read_checkpoint(folder).model.with_heads({name: readout.eval()})


def scores(model: Model, name: str) -> torch.Tensor:
    with torch.inference_mode():
        return model.scores(name, TOKENS, model.hidden_for(name, TOKENS))


@pytest.fixture
def saved(folder: Path, tmp_path: Path) -> Path:
    """A folder with a readout, to be damaged."""
    target = tmp_path / "saved"
    target.mkdir()
    write_checkpoint(target, TextModel(with_readout(folder)))
    return target


@pytest.mark.parametrize("name", KINDS)
def test_what_was_written_is_read_again(name: str, folder: Path, tmp_path: Path) -> None:
    model = with_readout(folder, name, KINDS[name])
    write_checkpoint(tmp_path, TextModel(model))
    result = read_checkpoint(tmp_path).model
    assert result.heads[name].config == KINDS[name]
    assert not result.training
    torch.testing.assert_close(scores(result, name), scores(model, name), rtol=0, atol=0)


def test_others_open_the_folder_as_the_encoder_that_it_is(folder: Path, saved: Path) -> None:
    theirs = transformers.AutoModel.from_pretrained(saved).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor([[5, 6, 7]])).last_hidden_state[0]
    with torch.inference_mode():
        torch.testing.assert_close(read_checkpoint(saved).model(TOKENS)[:3], expected, rtol=0, atol=1e-5)


def test_the_layers_under_a_readout_do_not_learn(folder: Path) -> None:
    model = with_readout(folder)
    model.scores("tag_crf", TOKENS, model.hidden_for("tag_crf", TOKENS)).sum().backward()
    assert all(weight.grad is None for weight in model.body.parameters())
    assert model.heads["tag_crf"].mix.weights.grad is not None


def test_a_readout_is_saved_alone(folder: Path, tmp_path: Path) -> None:
    model = read_checkpoint(folder).model
    both = model.with_heads({**model.heads, "tag": ProbeHead(KINDS["tag"])})
    with pytest.raises(WeightsError, match="masked_lm"):
        write_checkpoint(tmp_path, TextModel(both))


def test_a_head_beside_heads_in_the_weights_is_refused(folder: Path, saved: Path) -> None:
    for name in ("head.json", "head.safetensors"):
        (folder / name).write_bytes((saved / name).read_bytes())
    with pytest.raises(WeightsError, match=": masked_lm, next_sentence"):
        read_checkpoint(folder)


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "format": ({"format": 2}, "later version"),
    "head": ({"head": "tag"}, "is not what pool and crf make of it"),
    "unknown": ({"hiden": 5}, 'unknown setting "hiden"; did you mean "hidden"'),
    "width": ({"width": 32}, "the encoder has 2 layers of width 16"),
    "layers": ({"layers": [0, 1, 3]}, "reads layer 3"),
    "no layers": ({"layers": []}, "layers"),
    "shape": ({"hidden": 6}, "head.safetensors: .* has shape .* the settings ask for"),
    "hostile size": ({"hidden": 2**16, "recurrent": 16}, "missing 112 tensors"),
    "too large": ({"hidden": 10**12}, "hidden=1000000000000 is not a whole number"),
    "wrong kind": ({"recurrent": "2"}, "recurrent=2 is not a whole number"),
    "join": ({"join": None}, "join is one of"),
    "other parts": ({"join": "sum"}, "2 tensors that head.json lacks: mix.gamma, mix.weights"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_wrong_settings_are_reported_in_one_line(case: str, saved: Path) -> None:
    changes, message = SETTINGS[case]
    public = json.loads((saved / "head.json").read_text())
    (saved / "head.json").write_text(json.dumps(public | changes))
    with pytest.raises(KinfolkError, match=message):
        read_checkpoint(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output.weight": None}, "missing .*output.weight"),
        ({"output.wight": torch.zeros(1)}, "output.wight"),
        ({"output.bias": torch.zeros(4)}, r"output.bias .*\(4,\), .*\(3,\)"),
        ({"output.bias": torch.full((3,), torch.nan)}, "NaN"),
        ({"output.bias": torch.zeros(3, dtype=torch.int32)}, "not floating-point"),
    ],
)
def test_wrong_tensors_are_reported_in_one_line(changes: dict[str, Any], message: str, saved: Path) -> None:
    tensors = load_file(saved / "head.safetensors") | changes
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, saved / "head.safetensors")
    with pytest.raises(WeightsError, match=message):
        read_checkpoint(saved)


def test_missing_and_cut_files_are_reported_in_one_line(saved: Path) -> None:
    weights = (saved / "head.safetensors").read_bytes()
    (saved / "head.safetensors").write_bytes(weights[:-5])
    with pytest.raises(KinfolkError, match=r"head\.safetensors"):
        read_checkpoint(saved)
    (saved / "head.safetensors").unlink()
    with pytest.raises(KinfolkError, match="no such weights"):
        read_checkpoint(saved)


def test_mutated_settings_load_or_are_refused_in_one_line(saved: Path) -> None:
    text, rng = (saved / "head.json").read_text(), random.Random(0)
    messages = []
    for _ in range(150):
        (saved / "head.json").write_text(mutated(text, rng), errors="surrogatepass")
        try:
            model = read_checkpoint(saved).model
        except KinfolkError as error:
            messages.append(str(error))
            continue
        assert torch.isfinite(scores(model, next(iter(model.heads)))).all()
    assert 100 < len(messages) < 150
    assert not any("\n" in message for message in messages)
