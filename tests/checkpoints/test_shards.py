"""Weights in several files: index and files must agree, and no name leads out of the folder."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kinfolk.checkpoints.weights import open_tensors, write_sharded
from kinfolk.errors import FolderError, KinfolkError
from surroundings import RAN, faults

MUTATIONS = faults("KINFOLK_MUTATIONS", 150)
STRANGE = ("../", "/", "null", '{"a":', "[" * 100_000, "1e999", "\ud800")
NAMES = ("one.safetensors", "two.safetensors", "weight_map", "metadata", '"a"', '"b"', '"c"')
INDEX = "model.safetensors.index.json"
TENSORS = {name: torch.full((10,), float(number)) for number, name in enumerate("abcde")}  # 40 bytes each


def index_of(folder: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((folder / INDEX).read_text())
    return index


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder as another library writes it."""
    save_file({"a": torch.zeros(2), "b": torch.ones(3)}, tmp_path / "one.safetensors")
    save_file({"c": torch.ones(1, 1)}, tmp_path / "two.safetensors")
    weight_map = {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {"total_size": 24}, "weight_map": weight_map}))
    return tmp_path


def test_shards_are_read_as_one_source(theirs: Path) -> None:
    source = open_tensors(theirs)
    assert {name: source.shape(name) for name in source.names()} == {"a": (2,), "b": (3,), "c": (1, 1)}
    assert source.read("b").tolist() == [1, 1, 1]
    with pytest.raises(KinfolkError, match="'d'"):
        source.read("d")


def test_shards_are_written_as_hugging_face_does(tmp_path: Path) -> None:
    write_sharded(tmp_path, TENSORS, max_bytes=80)
    first, last = "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"
    assert index_of(tmp_path)["metadata"] == {"total_size": 200}
    assert index_of(tmp_path)["weight_map"]["a"] == index_of(tmp_path)["weight_map"]["b"] == first
    assert load_file(tmp_path / last).keys() == {"e"}
    source = open_tensors(tmp_path)
    assert all(source.read(name).equal(tensor) for name, tensor in TENSORS.items())


def test_a_model_within_the_limit_is_one_file(tmp_path: Path) -> None:
    write_sharded(tmp_path, TENSORS, max_bytes=200)
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_tensor_over_the_limit_has_a_file_of_its_own(tmp_path: Path) -> None:
    write_sharded(tmp_path, {"small": torch.zeros(1), "large": torch.zeros(100), "tiny": torch.zeros(1)}, max_bytes=8)
    assert len(set(index_of(tmp_path)["weight_map"].values())) == 3


def test_shards_are_never_written_over_other_weights(theirs: Path) -> None:
    with pytest.raises(FolderError, match="already holds weights"):
        write_sharded(theirs, TENSORS)
    assert open_tensors(theirs).shape("a") == (2,)


def test_a_tensor_that_only_the_index_knows_is_named(theirs: Path) -> None:
    index = index_of(theirs)
    index["weight_map"]["ghost"] = "two.safetensors"
    (theirs / INDEX).write_text(json.dumps(index))
    with pytest.raises(FolderError, match=r"'two\.safetensors' .*'ghost'"):
        open_tensors(theirs)


def test_a_tensor_that_only_the_file_knows_is_named(theirs: Path) -> None:
    index = index_of(theirs)
    del index["weight_map"]["b"]
    (theirs / INDEX).write_text(json.dumps(index))
    with pytest.raises(FolderError, match=r"'one\.safetensors' .*'b'"):
        open_tensors(theirs)


def test_a_tensor_in_two_files_is_refused(theirs: Path) -> None:
    save_file({"c": torch.ones(1), "a": torch.ones(2)}, theirs / "two.safetensors")
    with pytest.raises(FolderError, match=r"'two\.safetensors' .*'a'"):
        open_tensors(theirs)


def test_a_missing_or_damaged_shard_is_named(theirs: Path) -> None:
    content = (theirs / "two.safetensors").read_bytes()
    (theirs / "two.safetensors").write_bytes(content[:-1])
    with pytest.raises(FolderError, match=r"two\.safetensors: "):
        open_tensors(theirs)
    (theirs / "two.safetensors").unlink()
    with pytest.raises(FolderError, match=r"two\.safetensors: no such"):
        open_tensors(theirs)


ESCAPES = ["../secret", "/etc/passwd", "a/../../secret", "", "link", "\ud800", "x" * 5000, "sub\0"]


@pytest.mark.parametrize("name", ESCAPES, ids=range(len(ESCAPES)))
def test_an_index_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": torch.zeros(1)}, tmp_path / "secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(FolderError):
        open_tensors(folder)


HOSTILE = [
    "[]",
    "{}",
    '{"weight_map": []}',
    '{"weight_map": {}}',
    '{"weight_map": {"a": 1}}',
    '{"weight_map": {"a": ["x"]}}',
    "{",
]


def mutated(text: str, rng: random.Random) -> str:
    """An index with one to three faults."""
    for _ in range(rng.randint(1, 3)):
        index, kind = rng.randrange(len(text) + 1), rng.randrange(4)
        if kind == 0:
            text = text[:index]
        elif kind == 1:
            text = text[:index] + rng.choice('"{}[]:,x\0é9') + text[index + rng.randrange(2) :]
        elif kind == 2:
            text = text[:index] + rng.choice(STRANGE) + text[index:]
        else:
            first, second = rng.choice(NAMES), rng.choice(NAMES)
            text = text.replace(first, second, 1)
    return text


def test_a_mutated_index_is_refused_in_one_line_or_agrees_with_the_files(theirs: Path) -> None:
    text, rng = (theirs / INDEX).read_text(), random.Random(3)
    refused = []
    for _ in range(MUTATIONS):
        (theirs / INDEX).write_text(mutated(text, rng), errors="surrogatepass")
        try:
            source = open_tensors(theirs)
        except KinfolkError as error:
            refused.append(str(error))
            continue
        assert {name: source.read(name).shape for name in source.names()} == {"a": (2,), "b": (3,), "c": (1, 1)}
    RAN["mutated files"] += MUTATIONS
    assert 0 < len(refused) < MUTATIONS
    assert [message for message in refused if "\n" in message or len(message) >= 600] == []


@pytest.mark.parametrize("text", HOSTILE)
def test_an_index_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(FolderError, match=r"index\.json"):
        open_tensors(tmp_path)
