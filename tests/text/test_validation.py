"""A tokenizer.json that could do harm never reaches the library."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_tokenizers import KINDS, SENTENCES, small

from kinfolk.errors import TokenizerError
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.validation import check_tokenizer

EVIL = {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Removed", "invert": False}
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"}
ENDLESS = {"type": "Replace", "pattern": {"String": ""}, "content": ""}


def document(kind: str = "wordpiece") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(small(kind).to_json())["tokenizer"]
    return copy.deepcopy(content)


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        inner: Any = content
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value

    return change


FAULTS = {
    "a hostile pattern": (put("pre_tokenizer", value=EVIL), r"\(a\*\)\*b"),
    "a broken pattern": (put("pre_tokenizer", value={**EVIL, "pattern": {"Regex": "("}}), r"'\('"),
    "a growing text": (put("normalizer", value=GROWING), "Replace"),
    "an empty pattern": (put("normalizer", value=ENDLESS), r"\{'String': ''\}"),
    "an empty prefix": (put("normalizer", value={"type": "Prepend", "prepend": ""}), "prepend"),
    "a deep strip": (put("decoder", value={"type": "Strip", "content": "a", "start": 0, "stop": 9}), "stop"),
    "a hidden pattern": (put("decoder", value={"type": "Sequence", "decoders": [EVIL]}), "decoder 'Split'"),
    "an unknown component": (put("normalizer", "type", value="BertNormaliser"), '"BertNormalizer"'),
    "an unknown field": (put("normalizer", "lower", value=True), "'lower'"),
    "a wrong kind": (put("normalizer", "lowercase", value="yes"), "lowercase"),
    "an unknown entry": (put("modle", value={}), 'modle.* "model"'),
    "endless words": (put("model", "max_input_chars_per_word", value=10**9), "max_input_chars"),
    "a missing unknown token": (put("model", "unk_token", value="[NONE]"), r"\[NONE\]"),
    "a negative id": (put("model", "vocab", "the", value=-1), "'the'"),
    "a huge id": (put("model", "vocab", "the", value=2**40), "'the'"),
    "a shared id": (put("model", "vocab", "the", value=0), "same id"),
    "no vocabulary": (put("model", "vocab", value={}), "4,000,000 tokens"),
    "a colliding added token": (put("added_tokens", 0, "id", value=7), "collides"),
    "a floating added token": (put("added_tokens", 0, value={"id": 9000, "content": "x"}), r"added token .*9000"),
    "a foreign template id": (
        put("post_processor", "special_tokens", "[CLS]", "ids", value=[9]),
        r"\[CLS\]",
    ),
    "an undeclared token": (put("post_processor", "special_tokens", value={}), "undeclared"),
    "a text used twice": (put("post_processor", "pair", value=[{"Sequence": {"id": "A", "type_id": 0}}] * 2), "once"),
    "a far segment": (put("post_processor", "single", 0, "SpecialToken", "type_id", value=99), r"template .*step"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_harmful_entry_is_refused_in_one_line(name: str):
    change, message = FAULTS[name]
    content = document()
    change(content)
    with pytest.raises(TokenizerError, match=message) as caught:
        check_tokenizer(content, "tokenizer.json")
    assert str(caught.value).startswith("tokenizer.json: ")


@pytest.mark.parametrize("kind", KINDS)
def test_what_we_write_passes(kind: str):
    check_tokenizer(document(kind), "tokenizer.json")


def test_sequences_may_not_be_nested_without_end():
    content, nested = document(), {"type": "Lowercase"}
    for _ in range(10):
        nested = {"type": "Sequence", "normalizers": [nested]}
    content["normalizer"] = nested
    with pytest.raises(TokenizerError, match=r"normalizer .*nested"):
        check_tokenizer(content, "tokenizer.json")
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 100}
    with pytest.raises(TokenizerError, match="32 normalizer"):
        check_tokenizer(content, "tokenizer.json")


def test_merges_must_be_made_of_known_tokens():
    for merge in (["zz", "q"], ["a"], "a b c", 7, [1, 2]):
        content = document("bpe")
        content["model"]["merges"][3] = merge
        with pytest.raises(TokenizerError, match="merge 3"):
            check_tokenizer(content, "tokenizer.json")


def test_pieces_need_finite_scores_and_a_known_unknown():
    for number, entry in ((2, ["a", "b"]), (2, ["a"]), (2, ["", 1.0])):
        content = document("unigram")
        content["model"]["vocab"][number] = entry
        with pytest.raises(TokenizerError, match="token 2 "):
            check_tokenizer(content, "tokenizer.json")
    content = document("unigram")
    content["model"]["unk_id"] = 10_000
    with pytest.raises(TokenizerError, match="unk_id 10000"):
        check_tokenizer(content, "tokenizer.json")


def test_a_normalisation_table_that_points_outside_itself_is_refused():
    content = document("unigram")
    step = content["normalizer"]["normalizers"][-1]
    table = base64.b64decode(step["precompiled_charsmap"])
    for index in range(4, 2004, 8):
        broken = table[:index] + b"\xff\xff\xff\x7f" + table[index + 4 :]
        step["precompiled_charsmap"] = base64.b64encode(broken).decode()
        with pytest.raises(TokenizerError, match=r"precompiled_charsmap .*outside"):
            check_tokenizer(content, "tokenizer.json")


def test_an_old_file_without_a_model_type_loads(tmp_path: Path):
    for kind in KINDS:
        content = document(kind)
        del content["model"]["type"]
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        again = Tokenizer.load(tmp_path)
        assert [again.encode(text).ids for text in SENTENCES] == [small(kind).encode(text).ids for text in SENTENCES]


def test_special_tokens_may_not_be_placed_twice(tmp_path: Path):
    content = document()
    content["post_processor"] = {"type": "Sequence", "processors": [content["post_processor"]] * 2}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=r"post_processor .*more than once"):
        Tokenizer.load(tmp_path)


def test_dropout_is_switched_off():
    content = document("bpe")
    content["model"]["dropout"] = 0.9
    assert check_tokenizer(content, "tokenizer.json")["model"]["dropout"] is None
