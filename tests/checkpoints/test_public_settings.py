"""Settings that other readers want of a folder: written where there are none, kept where there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kinfolk
from kinfolk.text.tokenizer import Tokenizer
from support.tiny import write_folder


def settings(folder: Path, name: str = "config.json") -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / name).read_text())
    return found


@pytest.mark.parametrize(("own", "expected"), [(None, 2), (1, 1)])
def test_gpt2_begins_texts_with_what_ends_them_unless_the_folder_says_otherwise(
    own: int | None, expected: int, tmp_path: Path
) -> None:
    write_folder(tmp_path / "theirs", "gpt2", "LMHeadModel", "byte_bpe", n_positions=60)
    found = settings(tmp_path / "theirs") | {"eos_token_id": 2, "bos_token_id": own}
    kept = {name: value for name, value in found.items() if value is not None}
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(kept))
    kinfolk.load_encoder(tmp_path / "theirs").save(tmp_path / "ours")
    assert settings(tmp_path / "ours")["bos_token_id"] == expected


def test_a_tokenizer_says_what_the_model_reads_unless_it_says_something_itself(tmp_path: Path) -> None:
    write_folder(tmp_path / "theirs")
    kinfolk.load_encoder(tmp_path / "theirs").save(tmp_path / "ours")
    assert settings(tmp_path / "ours", "tokenizer_config.json")["model_max_length"] == 60
    Tokenizer.load(tmp_path / "theirs").save(tmp_path / "theirs", max_length=40)
    kinfolk.load_encoder(tmp_path / "theirs").save(tmp_path / "shorter")
    assert settings(tmp_path / "shorter", "tokenizer_config.json")["model_max_length"] == 40
