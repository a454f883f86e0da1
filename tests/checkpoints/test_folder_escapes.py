"""A model folder cannot lead out of itself, run code, or bring a vocabulary that does not fit."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kinfolk.checkpoints.folder import read_checkpoint
from kinfolk.demo import passages
from kinfolk.errors import FolderError, KinfolkError, TokenizerError, WeightsError
from kinfolk.jobs.loaded import load
from kinfolk.parts.tokens import pack
from kinfolk.text.learn import learn
from tiny import CASES, their_model
from tiny_folders import write_folder


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "good", num_hidden_layers=2)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "model"))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_link_out_of_the_folder_is_refused(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    shutil.move(folder / name, outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(FolderError, match="leaves the folder; refused"):
        load(folder)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "shards/../../outside.safetensors"])
def test_an_index_that_leads_out_is_refused(folder: Path, name: str) -> None:
    shutil.move(folder / "model.safetensors", folder.parent / "outside.safetensors")
    index = {"weight_map": {"bert.pooler.dense.bias": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FolderError, match="leaves the folder; refused"):
        load(folder)


def test_a_recipe_that_leads_out_is_refused(folder: Path) -> None:
    steps = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "x.Pooling", "path": "../other"},
    ]
    (folder / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(FolderError, match="leaves the folder; refused"):
        load(folder)


class Attack:
    """Unpickling it would create a file."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["plain pickle", "torch"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.pt"])
def test_a_hostile_pickle_is_never_run(folder: Path, tmp_path: Path, name: str, write: Any) -> None:
    (folder / "model.safetensors").unlink()
    with (folder / name).open("wb") as stream:
        write({"bert.pooler.dense.bias": Attack(tmp_path / "harm")}, stream)
    with pytest.raises(WeightsError, match="is a pickle, which can run code when opened; pass allow_pickle=True"):
        load(folder)
    with pytest.raises(WeightsError, match=rf"{name}: "):
        load(folder, allow_pickle=True)
    assert not (tmp_path / "harm").exists()


def test_a_vocabulary_that_does_not_fit_is_refused(folder: Path) -> None:
    learn("wordpiece", passages(), 330).save(folder)
    with pytest.raises(TokenizerError, match="ids up to 329, the embedding 320 rows"):
        load(folder)


HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 10**12, 10**30, 2**24, 0.5, 1.5, -0.5, 1e-300, 1e300, "", "x", "bert", "gelu",
    "\ud800", "../..", "x" * 10_000, [], [[]], [None], ["BertModel"], {}, {"a": 1}, [10**9] * 3, {"": [{}]},
]  # fmt: skip


def mutated(text: str, rng: random.Random) -> str:
    """A config.json with one to three faults."""
    settings = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(settings) or ["model_type"])
        kind = rng.randrange(6)
        if kind == 0:
            settings.pop(name, None)
        elif kind == 1:
            settings[name + rng.choice("sx_")] = settings.get(name)
        elif kind == 2:
            nested = "[" * (depth := rng.choice([3, 500, 100_000])) + "]" * depth
            return text.replace(f'"{name}":', f'"{name}": {nested}, "also":', 1)
        elif kind == 3:
            place = rng.randrange(len(text))
            return text[:place] + rng.choice(['"', "{", "}", "NaN", "1e999", "\0", "9" * 5000]) + text[place:]
        elif kind == 4:
            return text.replace("{", f'{{"{name}": {json.dumps(rng.choice(HOSTILE))},', 1)  # the key stands there twice
        else:
            settings[name] = rng.choice(HOSTILE)
    return json.dumps(settings)


@pytest.mark.parametrize("case", CASES)
def test_a_mutated_config_loads_or_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    their_model(case, "ForMaskedLM").save_pretrained(tmp_path)
    text, rng = (tmp_path / "config.json").read_text(), random.Random(case)
    loaded = 0
    for _ in range(100):
        (tmp_path / "config.json").write_text(mutated(text, rng), errors="surrogatepass")
        try:
            model = read_checkpoint(tmp_path).model
        except KinfolkError as error:
            assert "\n" not in str(error)
            continue
        loaded += 1
        assert model(pack([[5, 6, 7], [8]])).shape == (4, 16)
    assert 0 < loaded < 100
