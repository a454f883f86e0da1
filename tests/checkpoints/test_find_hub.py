"""Hub names are served from the cache when offline; paths never become names."""

from __future__ import annotations

import hashlib
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants

from kinfolk.api.loaded import load
from kinfolk.checkpoints.find import find_model
from kinfolk.errors import FolderError, HubError, InputError, WeightsError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def store(cache: Path, name: str, folder: Path) -> Path:
    """Put a folder's files into the cache as the hub's library does: links into a folder of blobs."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    for made in (snapshot, repository / "blobs", repository / "refs"):
        made.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for file in folder.iterdir():
        blob = repository / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        blob.write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    return snapshot


def test_a_name_in_the_cache_is_served_without_network(good: Path, cache: Path) -> None:
    snapshot = store(cache, "somebody/tiny", good)
    assert find_model("somebody/tiny") == snapshot
    vectors = load("somebody/tiny", device="cpu").embed("A cat.")
    assert np.array_equal(vectors, load(good, device="cpu").embed("A cat."))


def test_a_link_out_of_the_cache_is_refused(good: Path, cache: Path, tmp_path: Path) -> None:
    snapshot = store(cache, "somebody/tiny", good)
    (snapshot / "config.json").unlink()
    (tmp_path / "elsewhere.json").write_text("{}")
    (snapshot / "config.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(FolderError, match="leaves the folder"):
        load("somebody/tiny")


def test_a_name_that_is_not_in_the_cache_says_that_it_is_offline(cache: Path) -> None:
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        find_model("somebody/unknown")


WRONG = [
    "./model",
    "a/b/c",
    "/no/such/folder",
    "~/nothing here",
    "~nobody-here/x",
    "-x",
    "a b",
    "../up",
    "x" * 5000,
    "\0",
]


@pytest.mark.parametrize("name", WRONG, ids=lambda name: repr(name)[:20])
def test_what_cannot_be_a_name_is_a_wrong_path(name: str, cache: Path) -> None:
    with pytest.raises(FolderError, match="no such folder"):
        find_model(name)


@pytest.mark.parametrize("wrong", [None, 5, b"folder", ["folder"]], ids=repr)
def test_what_is_neither_path_nor_name_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="hub name"):
        load(wrong)


@pytest.mark.parametrize(("wrong", "kind"), [(5, "an int"), (["folder"], "a list")])
def test_what_was_given_is_reported_with_its_article(wrong: Any, kind: str) -> None:
    with pytest.raises(InputError, match=f"found {kind}$"):
        find_model(wrong)


def test_the_folder_one_is_in_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FolderError, match=rf"^{tmp_path}/config\.json: "):
        load(".")
    with pytest.raises(FolderError, match=r'^"" '):
        load("")


def test_a_name_that_is_nearly_demo_is_answered_with_it(cache: Path) -> None:
    with pytest.raises(HubError, match=r'^"demoo" .*"demo"'):
        load("demoo")
    with pytest.raises(HubError, match=r'^"somebody/unknown" (?!.*"demo")'):
        load("somebody/unknown")


class Hub:
    """Stands in for the hub's library: keeps the files that each call asks for."""

    def __init__(self, folder: Path, files: list[str]):
        self.folder, self.files, self.fetched = folder, files, Counter[str]()

    def __call__(self, name: str, allow_patterns: list[str], **options: Any) -> str:
        for file in self.files:
            if any(fnmatch(file, pattern) for pattern in allow_patterns):
                (self.folder / file).touch()
                self.fetched[file] += 1
        return str(self.folder)


@pytest.mark.parametrize(
    ("files", "allowed", "fetched"),
    [
        (["config.json", "model.safetensors", "pytorch_model.bin"], True, {"config.json", "model.safetensors"}),
        (["config.json", "pytorch_model.bin"], True, {"config.json", "pytorch_model.bin"}),
        (["config.json", "pytorch_model.bin"], False, {"config.json"}),
    ],
)
def test_a_pickle_is_fetched_only_where_it_is_allowed_and_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], allowed: bool, fetched: set[str]
) -> None:
    hub = Hub(tmp_path, files)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    assert find_model("somebody/tiny", allow_pickle=allowed) == tmp_path
    assert set(hub.fetched) == fetched


def test_a_repository_of_pickles_alone_says_how_to_get_them(good: Path, cache: Path) -> None:
    snapshot = store(cache, "somebody/pickled", good)
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"allow_pickle=True .*--allow-pickle"):
        load("somebody/pickled")


def test_an_existing_folder_is_a_path_even_when_it_looks_like_a_name(
    good: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "somebody").mkdir()
    (tmp_path / "somebody" / "tiny").symlink_to(good)
    monkeypatch.chdir(tmp_path)
    assert find_model("somebody/tiny") == Path("somebody/tiny")


@pytest.mark.parametrize("error", [KeyError("id"), TypeError("no list"), RuntimeError("")])
def test_whatever_a_library_makes_of_a_foreign_answer_is_one_line(
    error: Exception, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(HubError, match=f'^"somebody/tiny" .*: {type(error).__name__}'):
        find_model("somebody/tiny")


def test_a_path_is_never_a_hub_name(cache: Path) -> None:
    with pytest.raises(FolderError, match="'nobody': "):
        find_model(Path("nobody"))
