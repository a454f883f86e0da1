"""Marian's tokenizer folders: the reference's ids, and no trust in the files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import transformers
from marian_folders import CODES, SOURCE, TARGET, marian_folder, trained
from mutations import damage_bytes, damage_json, is_refused_or_works
from small_tokenizers import NASTY, SENTENCES, strange_texts

from kinfolk.errors import InputError, TokenizerError
from kinfolk.text.marian import Engine, MarianTokenizer
from kinfolk.text.sentencepiece import BYTE, UNKNOWN, Piece, SentencePieceModel, parse_spiece
from kinfolk.text.tokenizer import SURROGATE

SPECIAL = ("a </s> b", "<unk>the<pad></s>", "</s>>>fra<< x")
SPECIAL += (">>fra<< the boat", ">>deu<<the", ">>xyz<< no", ">>fra", ">><<")
TEXTS = [*SOURCE[:8], *TARGET[:4], *NASTY, *SPECIAL, *(SURROGATE.sub("?", text) for text in strange_texts(150, 5))]
TEXTS = [text for text in TEXTS if text.strip()]


def reference(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends a package that it does not use
        return transformers.MarianTokenizer.from_pretrained(str(folder))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_ids_and_texts_are_the_references(kind: str, separate: bool, tmp_path: Path):
    ours, theirs = MarianTokenizer.load(marian_folder(tmp_path, kind, separate)), reference(tmp_path)
    assert (ours.end_id, ours.pad_id, ours.unknown_id) == (0, theirs.pad_token_id, theirs.unk_token_id)
    unknown = 0
    for text in TEXTS:
        source, target = ours.encode_source(text), ours.encode_target(text)
        assert source == (theirs(text).input_ids if source else []), text
        assert target == theirs(text_target=text).input_ids, text
        options = {"skip_special_tokens": True, "use_source_tokenizer": False}
        assert ours.decode(target) == theirs.decode(target, **options), text
        unknown += source.count(ours.unknown_id)
    assert unknown > 0


def test_known_texts_come_back(tmp_path: Path):
    tokenizer = MarianTokenizer.load(marian_folder(tmp_path))
    for text in ("Die Glocken über dem Fluß", "la neige tombait"):
        assert tokenizer.decode(tokenizer.encode_target(text)) == text


def test_blank_sources_are_empty_and_blank_targets_end_at_once(tmp_path: Path):
    tokenizer = MarianTokenizer.load(marian_folder(tmp_path))
    for text in ("", " ", "\t\n", "\u3000"):
        assert tokenizer.encode_source(text) == tokenizer.source_offsets(text) == []
        assert tokenizer.encode_target(text) == [tokenizer.end_id]
    assert tokenizer.decode([]) == ""


def test_offsets_point_at_the_words(tmp_path: Path):
    tokenizer = MarianTokenizer.load(marian_folder(tmp_path))
    text = f"{CODES[0]} the  café boat"
    offsets = tokenizer.source_offsets(text)
    assert len(offsets) == len(tokenizer.encode_source(text))
    assert text[slice(*offsets[0])] == CODES[0]
    assert "".join(text[start:end] for start, end in offsets[1:]) == "thecaféboat"
    assert offsets[-1] == (len(text), len(text))
    for strange in TEXTS:
        actual = tokenizer.source_offsets(strange)
        assert len(actual) == len(tokenizer.encode_source(strange))
        assert all(0 <= start <= end <= len(strange) for start, end in actual)


def test_a_saved_folder_gives_the_same_ids_here_and_there(tmp_path: Path):
    for separate in (False, True):
        (folder := tmp_path / str(separate)).mkdir()
        tokenizer = MarianTokenizer.load(marian_folder(folder, separate=separate))
        tokenizer.save(saved := tmp_path / f"saved-{separate}")
        again, theirs = MarianTokenizer.load(saved), reference(saved)
        theirs.save_pretrained(tmp_path / f"theirs-{separate}")
        third = MarianTokenizer.load(tmp_path / f"theirs-{separate}")
        for text in SENTENCES:
            ids = tokenizer.encode_target(text)
            assert again.encode_target(text) == third.encode_target(text) == theirs(text_target=text).input_ids == ids
            assert again.encode_source(text) == third.encode_source(text) == tokenizer.encode_source(text)


def test_long_lines_and_lone_surrogates_are_read(tmp_path: Path):
    tokenizer = MarianTokenizer.load(marian_folder(tmp_path))
    assert len(tokenizer.encode_source("boat" * 50_000)) > 50_000
    assert tokenizer.encode_source("a \ud800 b") == tokenizer.encode_source("a \ufffd b")


def test_an_id_outside_the_vocabulary_is_refused(tmp_path: Path):
    tokenizer = MarianTokenizer.load(marian_folder(tmp_path))
    for number in (-1, tokenizer.target_size):
        with pytest.raises(InputError, match="outside"):
            tokenizer.decode([number])


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json", "tokenizer_config.json"])
def test_a_missing_file_is_named_unless_it_is_not_needed(name: str, tmp_path: Path):
    (marian_folder(tmp_path) / name).unlink()
    if name == "tokenizer_config.json":
        assert MarianTokenizer.load(tmp_path).encode_source("the boat")
        return
    with pytest.raises(TokenizerError, match=name):
        MarianTokenizer.load(tmp_path)


def test_a_vocabulary_without_its_special_tokens_is_refused(tmp_path: Path):
    file = marian_folder(tmp_path) / "vocab.json"
    file.write_text(json.dumps({"</s>": 0, "<unk>": 1, "▁the": 2}))
    with pytest.raises(TokenizerError, match="<pad>"):
        MarianTokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "added",
    [{"9": {"content": "<new>"}}, {"0": {"content": "<pad>"}}, {"None": {}}, {"5": {"content": ""}}, [1], {"0": 3}],
)
def test_added_tokens_that_do_not_fit_are_refused(added: Any, tmp_path: Path):
    (marian_folder(tmp_path) / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    with pytest.raises(TokenizerError):
        MarianTokenizer.load(tmp_path)


MUTATIONS = 25  # of each file
DAMAGE = {
    "source.spm": damage_bytes,
    "target.spm": damage_bytes,
    "vocab.json": damage_json,
    "tokenizer_config.json": damage_json,
}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused_in_one_line_or_works(name: str, kind: str, tmp_path: Path):
    def use() -> None:
        tokenizer = MarianTokenizer.load(tmp_path)
        for text in ("The wörld 猫 \x10 a  b", "x" * 300, "</s> >>fra<< e\u0301"):
            assert len(tokenizer.source_offsets(text)) == len(tokenizer.encode_source(text))
            tokenizer.decode(tokenizer.encode_target(text))

    is_refused_or_works(marian_folder(tmp_path, kind) / name, DAMAGE[name], MUTATIONS, name + kind, use)


@pytest.mark.parametrize(
    "pieces",
    [
        [Piece("a"), Piece("a")],
        [Piece("a\0b")],
        [Piece("oops", kind=BYTE)],
        [],
    ],
)
def test_models_that_would_stop_the_program_are_refused(pieces: list[Piece]):
    model = SentencePieceModel((Piece("<unk>", 0.0, UNKNOWN), *pieces), 1, 0, b"", True, True, False)
    with pytest.raises(TokenizerError):
        Engine(model, "made up")


def test_a_table_that_blows_texts_up_is_refused():
    result = parse_spiece(trained("source", "unigram"), "source")
    size = 4 + int.from_bytes(result.charsmap[:4], "little")
    table = result.charsmap[:size] + b"x" * 100_000 + b"\0"
    with pytest.raises(TokenizerError, match="long"):
        Engine(SentencePieceModel(result.pieces, 1, 0, table, True, True, False), "made up")
