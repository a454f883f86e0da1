"""kinfolk.json notices every change that could matter, and none of those that cannot."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest
import torch

import kinfolk
from kinfolk.checkpoints.manifest import check_manifest, write_manifest
from kinfolk.checkpoints.weights import write_tensors
from kinfolk.errors import FolderError
from kinfolk.files import sha256, write_json

NAME = "kinfolk.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write_tensors(folder / "model.safetensors", {"a": torch.arange(20.0)})
    write_json(folder / "config.json", {"model_type": "bert"})
    write_json(folder / "1_Pooling" / "config.json", {"pooling": "mean"})
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    write_manifest(folder)
    return folder


def test_a_folder_as_it_was_written_is_right(folder: Path) -> None:
    assert check_manifest(folder) is True


def test_a_folder_without_a_manifest_is_foreign(tmp_path: Path) -> None:
    assert check_manifest(tmp_path) is False
    assert check_manifest(tmp_path / "absent") is False


def test_the_manifest_lists_every_file_but_itself(folder: Path) -> None:
    manifest = json.loads((folder / NAME).read_text())
    assert (manifest["format"], manifest["kinfolk"]) == (1, kinfolk.__version__)
    assert list(manifest["files"]) == ["1_Pooling/config.json", "config.json", "model.safetensors", "vocab.txt"]
    vocabulary = {"bytes": 12, "sha256": sha256(folder / "vocab.txt")}
    assert manifest["files"]["vocab.txt"] == vocabulary


def test_the_manifest_of_the_same_files_has_the_same_bytes(folder: Path) -> None:
    before = (folder / NAME).read_bytes()
    write_manifest(folder)
    assert (folder / NAME).read_bytes() == before


def test_fifty_flipped_bytes_are_noticed_wherever_they_are(folder: Path) -> None:
    randomness = random.Random(5)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for _ in range(50):
        path = randomness.choice(files)
        content = path.read_bytes()
        changed = bytearray(content)
        changed[randomness.randrange(len(changed))] ^= randomness.randrange(1, 256)
        path.write_bytes(changed)
        with pytest.raises(FolderError, match=path.name):
            check_manifest(folder)
        path.write_bytes(content)
    assert check_manifest(folder)


def test_each_kind_of_difference_is_reported(folder: Path) -> None:
    path = folder / "1_Pooling" / "config.json"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"mean", b"mode"))
    with pytest.raises(FolderError, match=r"1_Pooling/config\.json: .*content"):
        check_manifest(folder)
    path.write_bytes(content + b" ")
    with pytest.raises(FolderError, match=f"{len(content) + 1} bytes, {NAME} .*{len(content)}"):
        check_manifest(folder)
    path.unlink()
    with pytest.raises(FolderError, match=r"1_Pooling/config\.json: missing"):
        check_manifest(folder)


@pytest.mark.parametrize(
    "name", ["README.md", "notes.txt", "curve.png", ".DS_Store", ".cache/x.json", "run/config.json"]
)
def test_additions_that_cannot_matter_are_allowed(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    assert check_manifest(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "pytorch_model.bin", "merges.txt", "1_Pooling/model.safetensors"])
def test_additions_that_kinfolk_could_read_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("{}")
    with pytest.raises(FolderError, match=f"{Path(name).name}: added"):
        check_manifest(folder)


def test_a_listed_file_that_became_a_link_out_is_refused(folder: Path) -> None:
    (folder / "vocab.txt").rename(folder.parent / "vocab.txt")
    (folder / "vocab.txt").symlink_to(folder.parent / "vocab.txt")
    for act in (check_manifest, write_manifest):
        with pytest.raises(FolderError, match="leaves the folder"):
            act(folder)


HOSTILE = {
    "no JSON": "{",
    "list": "[]",
    "no format": '{"files": {}}',
    "newer": '{"format": 2}',
    "no seal": '{"format": 1, "files": {}}',
    "empty seal": '{"format": 1, "files": {}, "sha256": ""}',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_manifest_of_another_form_is_refused(folder: Path, kind: str) -> None:
    (folder / NAME).write_text(HOSTILE[kind])
    with pytest.raises(FolderError, match=NAME):
        check_manifest(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "x" * 300])
def test_even_a_sealed_manifest_cannot_lead_out_of_the_folder(folder: Path, name: str) -> None:
    files = {name: {"bytes": 1, "sha256": "0"}}
    text = json.dumps({"format": 1, "files": files, "sha256": ""})
    seal = hashlib.sha256(text.encode()).hexdigest()
    (folder / NAME).write_text(text.replace('""', f'"{seal}"'))
    with pytest.raises(FolderError, match=r"refused|cannot be read"):
        check_manifest(folder)
