"""Which file of a folder is opened, and that a pickle never acts."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from kinfolk.checkpoints.weights import open_tensors
from kinfolk.errors import KinfolkError, WeightsError

STATE = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16), "turned": torch.ones(2, 3).T}


class Malice:
    """Unpickled by an incautious reader, it runs a command."""

    def __init__(self, command: str):
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def test_safetensors_come_before_the_index_and_the_index_before_pickles(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "pytorch_model.bin")
    assert open_tensors(tmp_path, allow_pickle=True).location.endswith(".bin")
    save_file({"a": torch.zeros(1)}, tmp_path / "part")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "part"}}))
    assert open_tensors(tmp_path).location.endswith(".index.json")
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert open_tensors(tmp_path).location.endswith("model.safetensors")


def test_a_folder_without_weights_says_what_was_looked_for(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(WeightsError, match=r"model\.safetensors, .*pytorch_model\.bin"):
            open_tensors(folder)


def test_weights_that_are_a_link_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    save_file({"a": torch.zeros(1)}, tmp_path / "elsewhere")
    (tmp_path / "model" / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KinfolkError, match="leaves the folder"):
        open_tensors(tmp_path / "model")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.pt"])
def test_a_pickle_is_refused_without_the_flag(tmp_path: Path, name: str) -> None:
    torch.save(STATE, tmp_path / name)
    with pytest.raises(WeightsError, match=r"pickle.*allow_pickle=True .*--allow-pickle.*kinfolk convert"):
        open_tensors(tmp_path)


@pytest.mark.parametrize("new_format", [True, False])
def test_a_pickle_of_tensors_is_read_with_the_flag(tmp_path: Path, new_format: bool) -> None:
    torch.save(STATE, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=new_format)
    source = open_tensors(tmp_path, allow_pickle=True)
    assert list(source.names()) == list(STATE)
    for name, tensor in STATE.items():
        assert source.shape(name) == tuple(tensor.shape)
        assert source.read(name).equal(tensor)


def test_sharded_pickles_are_read_with_the_flag_only(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.ones(1)}, tmp_path / "pytorch_model-00002-of-00002.bin")
    weight_map = {name: f"pytorch_model-0000{index}-of-00002.bin" for index, name in enumerate("ab", start=1)}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert open_tensors(tmp_path, allow_pickle=True).read("b").item() == 1
    with pytest.raises(WeightsError, match="pickle"):
        open_tensors(tmp_path)


@pytest.mark.parametrize("form", ["zip", "old", "bare"])
@pytest.mark.parametrize("allowed", [True, False])
def test_a_malicious_pickle_executes_nothing(tmp_path: Path, form: str, allowed: bool) -> None:
    path, trace = tmp_path / "pytorch_model.bin", tmp_path / "was-here"
    malice = Malice(f"touch {trace}")
    if form == "bare":
        path.write_bytes(pickle.dumps(malice, protocol=2))
    else:
        torch.save({"a": torch.zeros(1), "b": malice}, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(WeightsError) as caught:
        open_tensors(tmp_path, allow_pickle=allowed)
    assert not trace.exists()
    assert "weights_only" not in str(caught.value)
    pickle.loads(pickle.dumps(malice))  # the payload itself works
    assert trace.exists()


ODD = {
    "a list": [torch.zeros(1)],
    "nested": {"model": {"a": torch.zeros(1)}},
    "number as a name": {1: torch.zeros(1)},
    "sparse": {"a": torch.eye(2).to_sparse()},
    "petabyte from four bytes": {"a": torch.zeros(1).expand(10**15)},
}


@pytest.mark.parametrize("kind", ODD)
def test_a_pickle_of_anything_but_plain_tensors_is_refused(tmp_path: Path, kind: str) -> None:
    torch.save(ODD[kind], tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin"):
        open_tensors(tmp_path, allow_pickle=True)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no pickle", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_file_that_is_no_pickle_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin"):
        open_tensors(tmp_path, allow_pickle=True)


@pytest.mark.parametrize("new_format", [True, False])
def test_mutated_pickles_are_refused_or_load(tmp_path: Path, new_format: bool) -> None:
    path, randomness = tmp_path / "pytorch_model.bin", random.Random(11)
    torch.save(STATE, path, _use_new_zipfile_serialization=new_format)
    content = path.read_bytes()
    refused = 0
    for _ in range(60):
        changed = bytearray(content)
        for _ in range(3):
            changed[randomness.randrange(len(changed))] = randomness.randrange(256)
        path.write_bytes(changed[: randomness.choice([len(changed), randomness.randrange(len(changed))])])
        try:
            open_tensors(tmp_path, allow_pickle=True)
        except KinfolkError:
            refused += 1
    assert refused > 20
