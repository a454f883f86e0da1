"""A file of vectors holds what `embed` gives, chunk by chunk, and is there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from kinfolk.api import embed
from kinfolk.api.embed import embed_file
from kinfolk.api.loaded import Encoder, load
from kinfolk.api.search import build_index
from kinfolk.data.formats import read_rows, read_texts
from kinfolk.demo import passages
from kinfolk.errors import DataError, InputError


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> Encoder:
    return load(tiny_bert, device="cpu")


def test_many_chunks_make_the_file_that_one_call_makes(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = encoder.embed(passages()[:11])
    monkeypatch.setattr(embed, "CHUNK_TEXTS", 4)
    reported: list[int] = []
    settings = encoder.embed_settings()
    count = embed_file(encoder, iter(passages()[:11]), tmp_path / "v.npy", settings, reported.append)
    assert (count, reported) == (11, [4, 4, 3])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-5)


def test_long_texts_make_small_chunks(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["short", "a rather long text of forty letters here", "tiny", "another text of about the same length"]
    expected = encoder.embed(texts)
    monkeypatch.setattr(embed, "CHUNK_CHARACTERS", 40)
    reported: list[int] = []
    embed_file(encoder, iter(texts), tmp_path / "v.npy", encoder.embed_settings(), reported.append)
    assert reported == [2, 2]
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-5)
    monkeypatch.setattr(embed, "TOKEN_NUMBERS", 1)
    with pytest.raises(InputError, match=r"text 2 .*int"):
        embed_file(encoder, [*texts[:2], 3], tmp_path / "v.jsonl", encoder.embed_settings(pool="none"))  # type: ignore[list-item]


def test_progress_is_reported_after_each_batch_and_each_text_counts_once(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "BATCH_TOKENS", 64)
    reported: list[int] = []
    texts = [*passages()[:6], " ".join(passages()[:4]) * 2, "short"]  # all in one chunk, one of them in windows
    embed_file(encoder, texts, tmp_path / "v.npy", encoder.embed_settings(window=40), reported.append)
    assert sum(reported) == len(texts)
    assert sum(count > 0 for count in reported) > 2


def test_no_texts_make_an_empty_file(encoder: Encoder, tmp_path: Path) -> None:
    assert embed_file(encoder, [], tmp_path / "v.npy", encoder.embed_settings()) == 0
    assert np.load(tmp_path / "v.npy").shape == (0, 32)


def test_tokens_keep_their_places_in_the_text(encoder: Encoder, tmp_path: Path) -> None:
    texts = ["Snow falls.", ""]
    embed_file(encoder, texts, tmp_path / "v.jsonl", encoder.embed_settings(pool="none"))
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    expected = encoder.embed(texts, pool="none")
    assert isinstance(expected, list)
    for row, tokens in zip(rows, expected, strict=True):
        assert row["tokens"] == tokens.tokens
        assert [tuple(pair) for pair in row["offsets"]] == tokens.offsets
        assert (np.array(row["vectors"], dtype=np.float32) == tokens.vectors).all()
    assert "".join(texts[0][start:end] for start, end in rows[0]["offsets"]) == "Snowfalls."


@pytest.mark.parametrize(("pool", "name"), [("mean", "v.jsonl"), ("mean", "v"), ("none", "v.npy")])
def test_a_name_that_does_not_fit_the_content_is_refused(
    encoder: Encoder, tmp_path: Path, pool: str, name: str
) -> None:
    with pytest.raises(InputError, match="ends in"):
        embed_file(encoder, ["a"], tmp_path / name, encoder.embed_settings(pool=pool))


def test_a_fault_on_the_way_leaves_the_old_file(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterator[str]:
        yield from ["a"] * 9
        raise DataError("line 10")

    monkeypatch.setattr(embed, "CHUNK_TEXTS", 2)
    (tmp_path / "v.npy").write_bytes(b"old")
    with pytest.raises(DataError, match="line 10"):
        embed_file(encoder, broken(), tmp_path / "v.npy", encoder.embed_settings())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("v.npy", b"old")]


def test_texts_of_a_parquet_file_are_read_like_any_other_table(encoder: Encoder, tmp_path: Path) -> None:
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    when = datetime(2020, 2, 3, tzinfo=UTC)
    parquet.write_table(
        arrow.table({"text": ["Cats sleep.", "Dogs bark."], "when": [when] * 2, "n": [float("nan")] * 2}),
        tmp_path / "a.parquet",
    )
    assert list(read_texts(tmp_path / "a.parquet")) == ["Cats sleep.", "Dogs bark."]
    with pytest.raises(DataError, match=r'a\.parquet:1: .*"body"; .*text, when, n'):
        list(read_texts(tmp_path / "a.parquet", "body"))
    index = build_index(encoder, read_rows(tmp_path / "a.parquet"), tmp_path / "index")
    (hit,) = index.search(encoder, "Dogs bark.", top=1)
    assert (hit.text, hit.columns["when"][:10], hit.columns["n"]) == ("Dogs bark.", "2020-02-03", None)
