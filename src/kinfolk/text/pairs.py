"""Tokenizers for translation: texts of two languages to ids and back, behind one small interface.

`PairTokenizer` uses one vocabulary that both languages share, or one for each; `train_pair_tokenizer` trains them.
`MarianTokenizer` (marian.py) reads what published translation models ship. `load_pair_tokenizer` opens either kind of
folder.

`as_marian` writes a shared vocabulary as Marian's files: one sentencepiece model for both languages, with Marian's ids
(</s> and <unk> first, <pad> last, where CTranslate2 looks for it; a start token is not needed). sentencepiece knows no
merges: a piece may be made of any two others, and the one with the better score wins. BPE merges in the order in which
it was trained, so a piece's score is its rank. Where a piece can be made in several ways the two might differ; in
thousands of sentences of Multi30k they never do (tests/text/test_marian_writing.py). Normalization differs in the
zero-width joiner, the full-width tilde and some recent characters, unknown characters beside an unknown punctuation
mark are one unknown piece with it, and a special token spelled out in a text is obeyed.
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
from kinfolk.text.families import metaspace_parts
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
NMT_NFKC = [{"type": "Nmt"}, {"type": "NFKC"}]  # how train.py writes sentencepiece's rule of that name
ISOLATED_PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}
PLAIN_BPE = {"dropout": None, "byte_fallback": False, "ignore_merges": False}


class TranslationTokenizer(Protocol):
    """What translation needs of a tokenizer."""

    begin_id: int  # what the decoder is fed first
    end_id: int
    pad_id: int | None  # never generated
    unknown_id: int | None  # of the target's vocabulary
    source_unknown_id: int | None
    source_size: int  # of the vocabulary
    target_size: int

    def encode_source(self, text: str) -> list[int]:
        """The ids of a text to translate, the end included; a blank text has none."""

    def encode_target(self, text: str) -> list[int]:
        """The ids of a translation, the end included."""

    def source_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_source(text)`; the end token is empty, after the text."""

    def target_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_target(text)`; the end token is empty, after the text."""

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        """The text of a translation; special tokens are left out, and unknown ones read as `unknown`."""

    def save(self, folder: str | Path) -> None:
        """Write a folder for `load_pair_tokenizer`."""


class PairTokenizer(TranslationTokenizer):
    """One tokenizer for both languages, or one for each.

    A special token that is spelled out in a text is not obeyed: it reads as unknown.
    """

    def __init__(self, source: Tokenizer, target: Tokenizer | None = None):
        self.source, self.target = source, target or source
        self._source_end, self.end_id = _end(self.source), _end(self.target)
        begin = self.target.bos_id if self.target.bos_id is not None else self.target.cls_id
        if begin is None:
            raise TokenizerError("the tokenizer has no token that starts a text (bos or cls); use train_pair_tokenizer")
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
        if self.joint:
            self.source.save(folder)
            return
        for side, tokenizer in zip(SIDES, (self.source, self.target), strict=True):
            tokenizer.save(Path(folder) / side)

    def encode_source(self, text: str) -> list[int]:
        ids = _content(self.source, text) if text.strip() else []
        return [*ids, self._source_end] if ids else []

    def encode_target(self, text: str) -> list[int]:
        return [*_content(self.target, text), self.end_id]

    def source_offsets(self, text: str) -> list[Offset]:
        offsets = self.source.encode(text, add_special_tokens=False).offsets if text.strip() else []
        return [*offsets, (len(text), len(text))] if offsets else []

    def target_offsets(self, text: str) -> list[Offset]:
        return [*self.target.encode(text, add_special_tokens=False).offsets, (len(text), len(text))]

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
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
    """Train one tokenizer on both languages together, or with joint=False one of that size for each.

    `kind` and `at_most` are as in `train_tokenizer`.
    """
    corpora = [itertools.chain(source_texts, target_texts)] if joint else [source_texts, target_texts]
    tokenizers = (train_tokenizer(kind, texts, vocabulary_size, lowercase, ROLES, at_most) for texts in corpora)
    return PairTokenizer(*tokenizers)


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
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    special, unknown = tokenizer.special_ids, tokenizer.unk_id
    if unknown is None or special.isdisjoint(ids):
        return ids
    return [unknown if id in special else id for id in ids]


def as_marian(tokenizer: PairTokenizer, max_length: int) -> tuple[MarianTokenizer, list[int]]:
    """Marian's tokenizer, and for each of its ids the one that the piece had before (the start's for <pad>).

    `max_length` is the number of tokens that a text may have.
    """
    if not tokenizer.joint:
        raise TokenizerError("CTranslate2 wants one vocabulary for both languages, and this translator has two")
    model = _sentencepiece_model(tokenizer.source)
    renamed = {tokenizer.end_id: MARIAN_ROLES["eos"], model.unknown: MARIAN_ROLES["unk"]}
    before = [*renamed, *(id for id, piece in enumerate(model.pieces) if piece.kind == NORMAL)]
    pieces = tuple(replace(model.pieces[id], text=renamed.get(id, model.pieces[id].text)) for id in before)
    content = write_spiece(replace(model, pieces=pieces, unknown=1))
    ids = {piece.text: id for id, piece in enumerate(pieces)} | {MARIAN_ROLES["pad"]: len(pieces)}
    settings = {"model_max_length": max_length}
    marian = MarianTokenizer(dict.fromkeys(MODELS, content), [ids], settings, "the converted tokenizer")
    return marian, [*before, tokenizer.begin_id]


def _sentencepiece_model(tokenizer: Tokenizer) -> SentencePieceModel:
    """The vocabulary of a tokenizer as a sentencepiece model, in the order of ids; or a TokenizerError."""
    document = json.loads(tokenizer.to_json())["tokenizer"]
    model, added = document["model"], document["added_tokens"]
    complete = all(entry["special"] for entry in added) and len(model["vocab"]) == tokenizer.vocabulary_size
    if not complete or tokenizer.unk_id is None or not _is_expressible(document, {entry["content"] for entry in added}):
        raise TokenizerError(
            "this vocabulary cannot be written for sentencepiece; train one of kind bpe or unigram without lowercase"
        )
    is_bpe, special = model["type"] == "BPE", tokenizer.special_ids
    scored = model["vocab"]
    if is_bpe:
        scored = [(text, -float(id)) for text, id in sorted(scored.items(), key=lambda item: item[1])]
    pieces = tuple(
        Piece(text, score, UNKNOWN if id == tokenizer.unk_id else CONTROL if id in special else NORMAL)
        for id, (text, score) in enumerate(scored)
    )
    table = _charsmap((document["normalizer"] or {}).get("normalizers", []))
    return SentencePieceModel(pieces, BPE if is_bpe else UNIGRAM, tokenizer.unk_id, table, True, True, False)


def _is_expressible(document: dict[str, Any], special_tokens: set[str]) -> bool:
    """Does it split text into words and pieces as sentencepiece does?"""
    model, normalizer = document["model"], document["normalizer"] or {"type": "Sequence", "normalizers": []}
    spaces = metaspace_parts([])["pre_tokenizer"]
    isolated = {**spaces, "pretokenizers": [*spaces["pretokenizers"], ISOLATED_PUNCTUATION]}
    if document["pre_tokenizer"] not in (spaces, isolated) or normalizer["type"] != "Sequence":
        return False
    steps = normalizer["normalizers"]
    if steps and steps != NMT_NFKC and [step["type"] for step in steps] != ["Precompiled"]:
        return False
    if model["type"] == "BPE":
        affixes = (model["continuing_subword_prefix"], model["end_of_word_suffix"])
        if any(affixes) or any(model.get(name) != value for name, value in PLAIN_BPE.items()):
            return False
        # sentencepiece cannot isolate punctuation, and need not where no piece joins a mark to a letter
        tokens = model["vocab"].keys() - special_tokens
        return document["pre_tokenizer"] == spaces or not any(map(_joins_punctuation, tokens))
    return model["type"] == "Unigram" and not model.get("byte_fallback") and document["pre_tokenizer"] == spaces


def _joins_punctuation(text: str) -> bool:
    marks = (char in string.punctuation or unicodedata.category(char).startswith("P") for char in text)
    return len(text) > 1 and any(marks)


def _charsmap(steps: list[dict[str, Any]]) -> bytes:
    """The normalization table that does what the steps do."""
    if not steps:
        return b""
    if steps != NMT_NFKC:
        return base64.b64decode(steps[0]["precompiled_charsmap"])
    rule = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    return parse_spiece(rule + UNKNOWN_PIECE, "nmt_nfkc").charsmap
