"""Writes sentencepiece's model file: a model that was read and vetted, or a vocabulary that was learned here.

sentencepiece knows no merges: a piece may be made of any two others, and the one with the better score wins. BPE merges
in the order in which it learned them, so a piece's score is its rank. Where a piece can be made in several ways the two
might part; in thousands of sentences of Multi30k they do nowhere (tests/text/test_marian_writing.py). The rules for
letters differ in the zero-width joiner, the full-width tilde and some recent letters, and unknown letters beside an
unknown mark are one unknown piece with it. A unigram model is what sentencepiece itself has learned.
"""

from __future__ import annotations

import base64
import json
import string
import struct
import unicodedata
from typing import Any

import sentencepiece

from kinfolk.errors import TokenizerError
from kinfolk.text.documents import blank_parts
from kinfolk.text.spiece import BPE, CONTROL, NORMAL, UNIGRAM, UNKNOWN, Piece, SentencePieceModel, parse_spiece
from kinfolk.text.tokenizer import Tokenizer

NMT_NFKC = [{"type": "Nmt"}, {"type": "NFKC"}]  # how learn.py names sentencepiece's rule of that name
MARKS_ALONE = {"type": "Punctuation", "behavior": "Isolated"}
PLAIN = {"dropout": None, "byte_fallback": False, "ignore_merges": False}  # of a BPE, with nothing around its pieces


def spiece_of(tokenizer: Tokenizer) -> SentencePieceModel:
    """The pieces of a tokenizer as a model of sentencepiece, in the order of their ids; or a TokenizerError."""
    document = json.loads(tokenizer.to_json())["tokenizer"]
    model, entries = document["model"], document["added_tokens"]
    own = all(entry["special"] for entry in entries) and len(model["vocab"]) == tokenizer.vocabulary_size
    if not own or tokenizer.unk_id is None or not _fits(document, {entry["content"] for entry in entries}):
        raise TokenizerError(
            "this vocabulary cannot be written for sentencepiece; learn one of kind bpe or unigram without lowercase"
        )
    bpe, silent = model["type"] == "BPE", tokenizer.special_ids
    scored = model["vocab"]
    if bpe:
        scored = [(text, -float(number)) for text, number in sorted(scored.items(), key=lambda item: item[1])]
    pieces = tuple(
        Piece(text, score, UNKNOWN if number == tokenizer.unk_id else CONTROL if number in silent else NORMAL)
        for number, (text, score) in enumerate(scored)
    )
    table = _charsmap((document["normalizer"] or {}).get("normalizers", []))
    return SentencePieceModel(pieces, BPE if bpe else UNIGRAM, tokenizer.unk_id, table, True, True, False)


def _fits(document: dict[str, Any], specials: set[str]) -> bool:
    """Does it find words and pieces as sentencepiece does?"""
    model, normalizer = document["model"], document["normalizer"] or {"type": "Sequence", "normalizers": []}
    blanks = blank_parts([])["pre_tokenizer"]
    alone = {**blanks, "pretokenizers": [*blanks["pretokenizers"], MARKS_ALONE]}
    if document["pre_tokenizer"] not in (blanks, alone) or normalizer["type"] != "Sequence":
        return False
    steps = normalizer["normalizers"]
    if steps and steps != NMT_NFKC and [step["type"] for step in steps] != ["Precompiled"]:
        return False
    if model["type"] == "BPE":
        around = (model["continuing_subword_prefix"], model["end_of_word_suffix"])
        if any(around) or any(model.get(name) != value for name, value in PLAIN.items()):
            return False
        # sentencepiece cannot be told that marks stand alone, and need not be where no piece joins one to a letter.
        return document["pre_tokenizer"] == blanks or not any(map(_joins_a_mark, model["vocab"].keys() - specials))
    return model["type"] == "Unigram" and not model.get("byte_fallback") and document["pre_tokenizer"] == blanks


def _joins_a_mark(text: str) -> bool:
    marks = (letter in string.punctuation or unicodedata.category(letter).startswith("P") for letter in text)
    return len(text) > 1 and any(marks)


def _charsmap(steps: list[dict[str, Any]]) -> bytes:
    """The table of replacements that does what the steps do."""
    if not steps:
        return b""
    if steps != NMT_NFKC:
        return base64.b64decode(steps[0]["precompiled_charsmap"])
    rule = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    # parse_spiece wants a piece, and a file of rules alone has none
    return parse_spiece(rule + _bytes(1, _piece(Piece("<unk>", kind=UNKNOWN))), "nmt_nfkc").charsmap


def write_spiece(model: SentencePieceModel) -> bytes:
    """The model as a sentencepiece file; field numbers as in spiece.py."""
    trainer = _number(3, model.kind) + _number(24, model.blank_behind) + _number(35, model.byte_fallback)
    normaliser = _bytes(2, model.charsmap) + _number(3, model.adds_blank) + _number(4, model.removes_blanks)
    normaliser += _number(5, model.shows_blanks)
    return b"".join(_bytes(1, _piece(piece)) for piece in model.pieces) + _bytes(2, trainer) + _bytes(3, normaliser)


def _piece(piece: Piece) -> bytes:
    return _bytes(1, piece.text.encode()) + b"\x15" + struct.pack("<f", piece.score) + _number(3, piece.kind)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
