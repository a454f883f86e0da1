"""A model folder cannot lead out of itself, run code, or bring a vocabulary that does not fit."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kinfolk.api.loaded import load
from kinfolk.demo import passages
from kinfolk.errors import FolderError, TokenizerError, WeightsError
from kinfolk.text.train import train_tokenizer


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_link_out_of_the_folder_is_refused(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    shutil.move(folder / name, outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(FolderError, match="leaves the folder"):
        load(folder)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "shards/../../outside.safetensors"])
def test_an_index_that_leads_out_is_refused(folder: Path, name: str) -> None:
    shutil.move(folder / "model.safetensors", folder.parent / "outside.safetensors")
    index = {"weight_map": {"bert.pooler.dense.bias": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FolderError, match="leaves the folder"):
        load(folder)


def test_a_recipe_that_leads_out_is_refused(folder: Path) -> None:
    steps = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "x.Pooling", "path": "../other"},
    ]
    (folder / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(FolderError, match="leaves the folder"):
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
    with pytest.raises(WeightsError, match=r"pickle.*allow_pickle=True"):
        load(folder)
    with pytest.raises(WeightsError, match=rf"{name}: "):
        load(folder, allow_pickle=True)
    assert not (tmp_path / "harm").exists()


def test_a_vocabulary_that_does_not_fit_is_refused(folder: Path) -> None:
    train_tokenizer("wordpiece", passages(), 330).save(folder)
    with pytest.raises(TokenizerError, match=r"330 ids .* 320"):
        load(folder)
