"""Tokenizers for translation: texts of two languages to ids and back, behind one small interface.

`PairTokenizer` uses one vocabulary that both languages share, or one for each; `train_pair_tokenizer` learns them.
`MarianTokenizer` (marian.py) reads what published translation models ship. `load_pair_tokenizer` opens
either kind of folder.
"""

from __future__ import annotations

import base64
import itertools
import json
import string
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import sentencepiece

from kinfolk.errors import TokenizerError
from kinfolk.text.encoding import Offset
from kinfolk.text.families import blank_parts
from kinfolk.text.marian import MARIAN_ROLES, MODELS, MarianTokenizer
from kinfolk.text.sentencepiece import (
    BPE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    UNKNOWN_PIECE,
    Piece,
    SentencePieceModel,
    parse_spiece,
    write_spiece,
)
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer

ROLES = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"}
SIDES = ("source", "target")


class TranslationTokenizer(Protocol):
    """What translation needs of a tokenizer."""

    @property
    def begin_id(self) -> int:
        """What the decoder is fed first."""

    @property
    def end_id(self) -> int:
        """What ends a translation."""

    @property
    def pad_id(self) -> int | None:
        """What is never written."""

    @property
    def unknown_id(self) -> int | None:
        """What stands for letters that the target's vocabulary cannot spell."""

    @property
    def source_unknown_id(self) -> int | None:
        """The same of the source's."""

    @property
    def source_size(self) -> int:
        """Ids of the source's vocabulary."""

    @property
    def target_size(self) -> int:
        """Ids of the target's vocabulary."""

    def encode_source(self, text: str) -> list[int]:
        """The ids of a text to translate, the end included; a blank text has none."""

    def encode_target(self, text: str) -> list[int]:
        """The ids of a translation, the end included."""

    def source_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_source(text)`; the end is an empty place after the text."""

    def target_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_target(text)`; the end is an empty place after the text."""

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        """The text of a translation; special tokens are left out, and unknown ones read as `unknown`."""

    def save(self, folder: str | Path) -> None:
        """Write a folder for `load_pair_tokenizer`."""


class PairTokenizer:
    """One tokenizer for both languages, or one for each.

    A special token that is spelled out in a text is not obeyed: it reads as unknown.
    """

    def __init__(self, source: Tokenizer, target: Tokenizer | None = None):
        self.source, self.target = source, target or source
        self._source_end, self.end_id = _end(self.source), _end(self.target)
        begin = self.target.bos_id if self.target.bos_id is not None else self.target.cls_id
        if begin is None:
            raise TokenizerError("the tokenizer has no token that opens a text (bos or cls); use train_pair_tokenizer")
        self.begin_id = begin
        self.pad_id, self.unknown_id = self.target.pad_id, self.target.unk_id
        self.source_unknown_id = self.source.unk_id
        self.source_size, self.target_size = self.source.vocabulary_size, self.target.vocabulary_size

    @property
    def joint(self) -> bool:
        """Do both languages share one vocabulary?"""
        return self.source is self.target

    @classmethod
    def load(cls, path: str | Path) -> PairTokenizer:
        """Read a folder with one tokenizer, or with the folders `source` and `target`."""
        sides = [Path(path) / side for side in SIDES]
        if any(side.is_dir() for side in sides):
            return cls(*map(Tokenizer.load, sides))
        return cls(Tokenizer.load(path))

    def save(self, folder: str | Path) -> None:
        """Write one tokenizer, or one in each of the folders `source` and `target`."""
        if self.joint:
            self.source.save(folder)
            return
        for side, tokenizer in zip(SIDES, (self.source, self.target), strict=True):
            tokenizer.save(Path(folder) / side)

    def encode_source(self, text: str) -> list[int]:
        """The ids of a text to translate, the end included; a blank text has none."""
        ids = _content(self.source, text) if text.strip() else []
        return [*ids, self._source_end] if ids else []

    def encode_target(self, text: str) -> list[int]:
        """The ids of a translation, the end included."""
        return [*_content(self.target, text), self.end_id]

    def source_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_source(text)`; the end is an empty place after the text."""
        offsets = self.source.encode(text, add_special_tokens=False).offsets if text.strip() else []
        return [*offsets, (len(text), len(text))] if offsets else []

    def target_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_target(text)`; the end is an empty place after the text."""
        return [*self.target.encode(text, add_special_tokens=False).offsets, (len(text), len(text))]

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        """The text of a translation; special tokens are left out, and unknown ones read as `unknown`."""
        return self.target.decode(ids, unknown=unknown)


def train_pair_tokenizer(
    kind: str,
    source_texts: Iterable[str],
    target_texts: Iterable[str],
    vocabulary_size: int,
    joint: bool = True,
    lowercase: bool = False,
    at_most: bool = False,
) -> PairTokenizer:
    """Learn a vocabulary of both languages together, or with joint=False one of that size for each.

    `kind` is one of learn's: bpe, unigram, byte_bpe, wordpiece or words. `at_most` is learn's too.
    """
    corpora = [itertools.chain(source_texts, target_texts)] if joint else [source_texts, target_texts]
    return PairTokenizer(
        *(train_tokenizer(kind, texts, vocabulary_size, lowercase, ROLES, at_most) for texts in corpora)
    )


def load_pair_tokenizer(path: str | Path) -> TranslationTokenizer:
    """The tokenizer of a translation model's folder: Marian's files, or what `PairTokenizer.save` wrote."""
    return MarianTokenizer.load(path) if (Path(path) / "source.spm").is_file() else PairTokenizer.load(path)


def _end(tokenizer: Tokenizer) -> int:
    end = tokenizer.eos_id if tokenizer.eos_id is not None else tokenizer.sep_id
    if end is None:
        raise TokenizerError("the tokenizer has no token that ends a text (eos or sep); use train_pair_tokenizer")
    return end


def _content(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text without special tokens around it, nor within it."""
    ids, specials, unknown = (
        tokenizer.encode(text, add_special_tokens=False).ids,
        tokenizer.special_ids,
        tokenizer.unk_id,
    )
    if unknown is None or specials.isdisjoint(ids):
        return ids
    return [unknown if number in specials else number for number in ids]


def as_marian(tokenizer: PairTokenizer, longest: int) -> tuple[MarianTokenizer, list[int]]:
    """The tokenizer, and for each of its ids the one that the piece had before (the start's for <pad>).

    `longest` is how many tokens a text may have.
    """
    if not tokenizer.joint:
        raise TokenizerError("CTranslate2 wants one vocabulary for both languages, and this translator has two")
    found = spiece_of(tokenizer.source)
    named = {tokenizer.end_id: MARIAN_ROLES["eos"], found.unknown: MARIAN_ROLES["unk"]}
    before = [*named, *(number for number, piece in enumerate(found.pieces) if piece.kind == NORMAL)]
    pieces = tuple(
        replace(found.pieces[number], text=named.get(number, found.pieces[number].text)) for number in before
    )
    content = write_spiece(replace(found, pieces=pieces, unknown=1))
    ids = {piece.text: number for number, piece in enumerate(pieces)} | {MARIAN_ROLES["pad"]: len(pieces)}
    made = MarianTokenizer(dict.fromkeys(MODELS, content), [ids], {"model_max_length": longest}, "Marian's layout")
    return made, [*before, tokenizer.begin_id]


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
    return parse_spiece(rule + UNKNOWN_PIECE, "nmt_nfkc").charsmap
