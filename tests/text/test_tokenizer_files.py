"""Reading and writing: folders and single files, settings beside them, and folders that others can read."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from small_tokenizers import KINDS, NASTY, SENTENCES, small

from kinfolk.errors import InputError, TokenizerError
from kinfolk.text.tokenizer import Tokenizer
from surroundings import shared_fixture

TEXTS = [*SENTENCES, *NASTY]
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat ##s on Mat mat"


def ids(tokenizer: Tokenizer) -> list[list[int]]:
    return [result.ids for result in tokenizer.encode_many(TEXTS)]


def write_vocabulary(folder: Path, **settings: object) -> Path:
    (folder / "vocab.txt").write_text("\n".join(WORDS.split()) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading_changes_nothing(kind: str, tmp_path: Path):
    ours = small(kind)
    ours.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert ids(again) == ids(ours)
    assert (again.special_tokens, again.vocabulary_size, again.kind) == (
        ours.special_tokens,
        ours.vocabulary_size,
        ours.kind,
    )
    again.save(tmp_path / "second")
    assert (tmp_path / "second" / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_reads_our_folders_with_equal_ids(kind: str, tmp_path: Path):
    small(kind).save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert theirs(TEXTS)["input_ids"] == ids(small(kind))
    assert {f"{role}_token": token for role, token in small(kind).special_tokens.items()} == theirs.special_tokens_map
    assert ("token_type_ids" in theirs("the boat")) == (kind != "byte_bpe")


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_the_plain_vocabulary_says_the_same_as_tokenizer_json(kind: str, tmp_path: Path):
    small(kind).save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert ids(Tokenizer.load(tmp_path)) == ids(small(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickled_tokenizer_comes_back_whole(kind: str):
    again = pickle.loads(pickle.dumps(small(kind)))
    assert ids(again) == ids(small(kind))
    assert again.special_tokens == small(kind).special_tokens


def test_every_kind_of_file_loads_alone(tmp_path: Path):
    small("byte_bpe").save(tmp_path)
    assert ids(Tokenizer.load(tmp_path / "vocab.json")) == ids(small("byte_bpe"))
    assert ids(Tokenizer.load(tmp_path / "tokenizer.json")) == ids(small("byte_bpe"))
    small("wordpiece").save(tmp_path / "other")
    assert ids(Tokenizer.load(tmp_path / "other" / "vocab.txt")) == ids(small("wordpiece"))
    assert Tokenizer.load(shared_fixture("vocab/albert-base/spiece.model")).kind == "Unigram"


def test_settings_beside_a_vocabulary_are_obeyed(tmp_path: Path):
    lower = Tokenizer.load(write_vocabulary(tmp_path, do_lower_case=True, model_max_length=128))
    assert lower.encode("The Mat", add_special_tokens=False).tokens == ["the", "mat"]
    assert lower.max_length == 128
    cased = Tokenizer.load(write_vocabulary(tmp_path, do_lower_case=False, model_max_length=1e30))
    assert cased.encode("the Mat", add_special_tokens=False).tokens == ["the", "Mat"]
    assert cased.max_length is None
    with pytest.raises(TokenizerError, match="do_lower_case"):
        Tokenizer.load(write_vocabulary(tmp_path, do_lower_case="yes"))


def test_a_bare_vocabulary_with_capitals_keeps_them(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nThe\nMat\nParis\n")
    assert Tokenizer.load(tmp_path).encode("The Mat the", add_special_tokens=False).tokens == ["The", "Mat", "the"]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')  # said is said
    assert Tokenizer.load(tmp_path).encode("The Mat the", add_special_tokens=False).tokens == ["the", "[UNK]", "the"]


def test_settings_beside_a_tokenizer_json_overrule_its_normaliser(tmp_path: Path):
    Tokenizer.load(write_vocabulary(tmp_path, do_lower_case=False)).save(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text()) | {"do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert Tokenizer.load(tmp_path).encode("The Mat", add_special_tokens=False).tokens == ["the", "mat"]


def test_stored_truncation_and_padding_are_switched_off(tmp_path: Path):
    small("wordpiece").save(tmp_path)
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    document["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    document["padding"] = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert ids(Tokenizer.load(tmp_path)) == ids(small("wordpiece"))


def test_added_tokens_follow_the_vocabulary(tmp_path: Path):
    (write_vocabulary(tmp_path) / "added_tokens.json").write_text('{"[NEW]": 12}')
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("the [NEW] cat", add_special_tokens=False).ids == [5, 12, 6]
    assert ours.vocabulary_size == 13
    (tmp_path / "added_tokens.json").write_text('{"[NEW]": 14}')
    with pytest.raises(TokenizerError, match="id 14"):
        Tokenizer.load(tmp_path)


def test_roles_ids_and_word_starts_are_known(tmp_path: Path):
    ours = Tokenizer.load(write_vocabulary(tmp_path))
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == (0, 1, 2, 3, 4)
    assert (ours.bos_id, ours.eos_id) == (None, None)
    assert ours.special_ids == {0, 1, 2, 3, 4}
    assert (ours.token_to_id("cat"), ours.token_to_id("dog"), ours.id_to_token(6)) == (6, None, "cat")
    assert [ours.starts_word(number) for number in (2, 6, 8)] == [False, True, False]
    assert (ours.special_tokens_count(), ours.special_tokens_count(pair=True)) == (2, 3)
    for kind, token in (("byte_bpe", "Ġthe"), ("unigram", "▁the"), ("bpe", "▁the")):
        number = small(kind).token_to_id(token)
        assert number is not None
        assert small(kind).starts_word(number)
    with pytest.raises(InputError, match="outside"):
        ours.id_to_token(12)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_gives_the_text_back(kind: str):
    ours, text = small(kind), "the old mill and the boat"
    assert ours.decode(ours.encode(text).ids) == text
    assert ours.special_tokens["sep"] in ours.decode(ours.encode(text).ids, skip_special_tokens=False)
    with pytest.raises(InputError):
        ours.decode([-1])


def encode_in_child(texts: list[str]) -> list[list[int]]:
    return [result.ids for result in small("wordpiece").encode_many(texts)]


def test_a_forked_process_encodes_without_hanging(capfd: pytest.CaptureFixture[str]):
    expected = encode_in_child(list(SENTENCES))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(encode_in_child, (list(SENTENCES),)).get(timeout=30) == expected
    assert "fork" not in capfd.readouterr().err


def test_what_is_missing_is_named(tmp_path: Path):
    with pytest.raises(TokenizerError, match="no such"):
        Tokenizer.load(tmp_path / "nothing")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json, vocab\.txt"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(TokenizerError, match=r"merges\.txt"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_text("the\ncat\n")
    with pytest.raises(TokenizerError, match=r"\[CLS\], \[SEP\], \[UNK\]"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(TokenizerError, match="not UTF-8"):
        Tokenizer.load(tmp_path)


def test_many_texts_may_come_one_by_one():
    tokenizer = small("wordpiece")
    for texts in ([], ["one text"], ["one", "two"], ["a" * 200_000]):
        encodings = tokenizer.encode_many(text for text in texts)  # type: ignore[arg-type]
        assert [encoding.ids for encoding in encodings] == [tokenizer.encode(text).ids for text in texts]


def test_only_the_readers_that_a_folder_needs_are_loaded(tmp_path: Path):
    small("wordpiece").save(tmp_path)
    code = f"import sys, kinfolk; kinfolk.Tokenizer.load({str(tmp_path)!r}); print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {f"kinfolk.text.{name}" for name in ("sentencepiece", "pairs", "marian", "train")} | {"sentencepiece"}
    assert others.isdisjoint(finished.stdout.split())
