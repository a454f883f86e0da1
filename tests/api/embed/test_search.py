"""An index finds what a plain product of all vectors finds, remembers its rows, and refuses another model."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kinfolk.api import search
from kinfolk.api.loaded import Encoder, load
from kinfolk.api.search import Index, build_index, identity
from kinfolk.demo import passages
from kinfolk.errors import FolderError, InputError

QUERY = "a cloud on the ground"


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> Encoder:
    return load(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def folder(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("search") / "index"
    build_index(encoder, passages(), path)
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_scores_are_cosines_and_the_best_come_first(encoder: Encoder, folder: Path) -> None:
    vectors, query = encoder.embed(passages()), encoder.embed(QUERY)
    assert isinstance(vectors, np.ndarray)
    assert isinstance(query, np.ndarray)
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    hits = Index.open(folder).search(encoder, QUERY, top=7)
    assert [hit.row for hit in hits] == np.argsort(-cosines)[:7].tolist()
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(cosines)[::-1][:7], atol=1e-5)
    assert [hit.text for hit in hits] == [passages()[hit.row] for hit in hits]


def test_a_text_finds_itself_with_score_one(encoder: Encoder, folder: Path) -> None:
    hit = Index.open(folder).search(encoder, passages()[17], top=1)[0]
    assert (hit.row, hit.columns) == (17, {})
    assert hit.score == pytest.approx(1, abs=1e-5)
    assert hit.score <= 1


def test_small_blocks_find_the_same(encoder: Encoder, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Index.open(folder).search(encoder, QUERY, top=10)
    monkeypatch.setattr(search, "BLOCK_BYTES", 4 * 32 * 7)  # seven rows a block
    hits = Index.open(folder).search(encoder, QUERY, top=10)
    assert [hit.row for hit in hits] == [hit.row for hit in whole]


def test_equal_scores_stand_in_the_order_of_the_rows(encoder: Encoder, tmp_path: Path) -> None:
    index = build_index(encoder, ["same"] * 9, tmp_path / "index")
    assert [hit.row for hit in index.search(encoder, "same", top=3)] == [0, 1, 2]
    assert len(index.search(encoder, "same", top=100)) == 9


def test_rows_keep_their_columns(encoder: Encoder, tmp_path: Path) -> None:
    rows = [{"text": "Füße \ud800 \u2028", "stars": 4, "tags": ["a"]}, {"text": "x", "stars": None}]
    index = build_index(encoder, rows, tmp_path / "index")
    hits = sorted(index.search(encoder, "feet", top=2), key=lambda hit: hit.row)
    assert hits[0].text == "Füße \ufffd \u2028"
    assert [hit.columns for hit in hits] == [{"stars": 4, "tags": ["a"]}, {"stars": None}]


def test_rows_without_words_are_kept_and_never_found(encoder: Encoder, tmp_path: Path) -> None:
    rows = ["a cat", "", "bread and butter", " \t", "the sea"]
    index = build_index(encoder, rows, tmp_path / "index")
    assert len(index) == len(rows)
    assert sorted(hit.row for hit in index.search(encoder, "an animal", top=5)) == [0, 2, 4]
    for query in ("", "  \n"):
        with pytest.raises(InputError, match=r"query .*empty"):
            index.search(encoder, query)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], r"index: .*no rows"),
        ([{"txt": "a"}], "row 0 "),
        (["a", 3], "row 1 "),
    ],
)
def test_rows_that_make_no_index_leave_nothing_behind(
    encoder: Encoder, tmp_path: Path, rows: list[object], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        build_index(encoder, rows, tmp_path / "index")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_index_is_not_written_over(encoder: Encoder, folder: Path) -> None:
    with pytest.raises(FolderError, match=r"index.* exists"):
        build_index(encoder, ["a"], folder)


def test_another_model_is_refused_and_both_are_named(encoder: Encoder, folder: Path) -> None:
    other = load(encoder.name, device="cpu")
    other.name = "another"
    with torch.no_grad():
        next(iter(other.model.body.parameters())).view(-1)[0] += 1
    with pytest.raises(InputError, match=r'tiny-bert" .*"another"'):
        Index.open(folder).search(other, QUERY)


def test_the_same_model_in_another_folder_is_the_same(encoder: Encoder, folder: Path, tmp_path: Path) -> None:
    moved = load(encoder.save(tmp_path / "moved"), device="cpu")
    assert identity(moved) == identity(encoder)
    assert Index.open(folder).search(moved, QUERY) == Index.open(folder).search(encoder, QUERY)


def test_other_settings_of_the_model_are_refused(encoder: Encoder, folder: Path, tmp_path: Path) -> None:
    from kinfolk.checkpoints.folder import SentenceRecipe

    other = dataclasses.replace(encoder, recipe=SentenceRecipe(pool="max"))
    with pytest.raises(InputError, match=r"index .*settings"):
        Index.open(folder).search(other, QUERY)


@pytest.mark.parametrize("rows", ["lines.txt", b"abc", {"text": "one"}, 5])
def test_what_is_no_collection_of_rows_makes_no_index(encoder: Encoder, rows: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="texts or rows, found"):
        build_index(encoder, rows, tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_an_index_that_does_not_tell_a_later_setting_is_opened(encoder: Encoder, copy: Path) -> None:
    content = json.loads((copy / "index.json").read_text())
    del content["settings"]["stride"]
    (copy / "index.json").write_text(json.dumps(content))
    assert Index.open(copy).search(encoder, "snow")


def test_top_must_be_positive(encoder: Encoder, folder: Path) -> None:
    with pytest.raises(InputError, match="top=0"):
        Index.open(folder).search(encoder, QUERY, top=0)


@pytest.mark.parametrize("name", ["vectors.npy", "starts.npy", "rows.jsonl", "index.json"])
def test_a_missing_or_shortened_file_is_refused(copy: Path, name: str) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[:-3])
    with pytest.raises(FolderError, match=name.split(".")[0]):
        Index.open(copy)
    (copy / name).unlink()
    with pytest.raises(FolderError, match=name):
        Index.open(copy)


@pytest.mark.parametrize(
    "change", [{"format": 2}, {"count": "60"}, {"count": 0}, {"width": -1}, {"width": 64}, {"count": 61}, {"model": []}]
)
def test_a_changed_description_is_refused(copy: Path, change: dict[str, object]) -> None:
    content = json.loads((copy / "index.json").read_text()) | change
    (copy / "index.json").write_text(json.dumps(content))
    with pytest.raises(FolderError):
        Index.open(copy)


def test_damage_inside_a_file_shows_when_it_is_read(encoder: Encoder, copy: Path) -> None:
    rows = (copy / "rows.jsonl").read_bytes()
    (copy / "rows.jsonl").write_bytes(rows.replace(b'{"text"', b'["text"'))
    with pytest.raises(FolderError, match=r"rows.jsonl, row \d+"):
        Index.open(copy).search(encoder, QUERY)
    vectors = np.load(copy / "vectors.npy")
    vectors[5] = np.nan
    np.save(copy / "vectors.npy", vectors)
    with pytest.raises(FolderError, match=r"vectors\.npy .*NaN"):
        Index.open(copy).search(encoder, QUERY)
