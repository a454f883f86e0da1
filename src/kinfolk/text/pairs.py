"""Tokenizers for translation: texts of two languages to ids and back, behind one small interface.

`PairTokenizer` uses one vocabulary that both languages share, or one for each; `learn_pair` learns them.
`MarianTokenizer` (marian.py) reads what published translation models ship. `load_pair` opens either kind of folder.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from kinfolk.errors import TokenizerError
from kinfolk.text.encoding import Offset
from kinfolk.text.learn import learn
from kinfolk.text.marian import MarianTokenizer
from kinfolk.text.tokenizer import Tokenizer

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
        """Write a folder for `load_pair`."""


class PairTokenizer:
    """One tokenizer for both languages, or one for each.

    A special token that is spelled out in a text is not obeyed: it reads as unknown.
    """

    def __init__(self, source: Tokenizer, target: Tokenizer | None = None):
        self.source, self.target = source, target or source
        self._source_end, self.end_id = _end(self.source), _end(self.target)
        begin = self.target.bos_id if self.target.bos_id is not None else self.target.cls_id
        if begin is None:
            raise TokenizerError("the tokenizer has no token that opens a text (bos or cls); learn one with learn_pair")
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
        offsets = self.source.encode(text, specials=False).offsets if text.strip() else []
        return [*offsets, (len(text), len(text))] if offsets else []

    def target_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_target(text)`; the end is an empty place after the text."""
        return [*self.target.encode(text, specials=False).offsets, (len(text), len(text))]

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        """The text of a translation; special tokens are left out, and unknown ones read as `unknown`."""
        return self.target.decode(ids, unknown=unknown)


def learn_pair(
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
    return PairTokenizer(*(learn(kind, texts, vocabulary_size, lowercase, ROLES, at_most) for texts in corpora))


def load_pair(path: str | Path) -> TranslationTokenizer:
    """The tokenizer of a translation model's folder: Marian's files, or what `PairTokenizer.save` wrote."""
    return MarianTokenizer.load(path) if (Path(path) / "source.spm").is_file() else PairTokenizer.load(path)


def _end(tokenizer: Tokenizer) -> int:
    end = tokenizer.eos_id if tokenizer.eos_id is not None else tokenizer.sep_id
    if end is None:
        raise TokenizerError("the tokenizer has no token that ends a text (eos or sep); learn one with learn_pair")
    return end


def _content(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text without special tokens around it, nor within it."""
    ids, specials, unknown = tokenizer.encode(text, specials=False).ids, tokenizer.special_ids, tokenizer.unk_id
    if unknown is None or specials.isdisjoint(ids):
        return ids
    return [unknown if number in specials else number for number in ids]
