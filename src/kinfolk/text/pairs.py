"""Tokenizers for translation: texts of two languages to ids and back, behind one small interface.

`PairTokenizer` uses one vocabulary that both languages share, or one for each; `MarianTokenizer` (marian.py) reads what
published translation models ship.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from kinfolk.errors import TokenizerError
from kinfolk.text.encoding import Offset
from kinfolk.text.tokenizer import Tokenizer


class TranslationTokenizer(ABC):
    """What translation needs of a tokenizer; a kind of tokenizer says what the content of a text is."""

    begin_id: int  # what the decoder is fed first
    end_id: int
    source_end_id: int
    pad_id: int | None  # never generated
    unknown_id: int | None  # of the target's vocabulary
    source_unknown_id: int | None
    source_size: int  # of the vocabulary
    target_size: int

    def encode_source(self, text: str) -> list[int]:
        """The ids of a text to translate, the end included; a blank text has none."""
        ids = self._ids(text, "source") if text.strip() else []
        return [*ids, self.source_end_id] if ids else []

    def encode_target(self, text: str) -> list[int]:
        """The ids of a translation, the end included."""
        return [*self._ids(text, "target"), self.end_id]

    def source_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_source(text)`; the end token is empty, after the text."""
        offsets = self._offsets(text, "source") if text.strip() else []
        return [*offsets, (len(text), len(text))] if offsets else []

    def target_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_target(text)`; the end token is empty, after the text."""
        return [*self._offsets(text, "target"), (len(text), len(text))]

    @abstractmethod
    def _ids(self, text: str, side: str) -> list[int]: ...

    @abstractmethod
    def _offsets(self, text: str, side: str) -> list[Offset]: ...

    @abstractmethod
    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        """The text of a translation; special tokens are left out, and unknown ones read as `unknown`."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write a folder for `load_pair_tokenizer`."""


class PairTokenizer(TranslationTokenizer):
    """One tokenizer for both languages, or one for each.

    A special token that is spelled out in a text is not obeyed: it reads as unknown.
    """

    def __init__(self, source: Tokenizer, target: Tokenizer | None = None):
        self.source, self.target = source, target or source
        self._sides = {"source": self.source, "target": self.target}
        self.source_end_id = _first_id("eos or sep", self.source.eos_id, self.source.sep_id)
        self.end_id = _first_id("eos or sep", self.target.eos_id, self.target.sep_id)
        self.begin_id = _first_id("bos or cls", self.target.bos_id, self.target.cls_id)
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
        sides = [Path(path) / side for side in ("source", "target")]
        return cls(*map(Tokenizer.load, sides if any(side.is_dir() for side in sides) else [path]))

    def save(self, folder: str | Path) -> None:
        if self.joint:
            self.source.save(folder)
        for side, tokenizer in self._sides.items() if not self.joint else ():
            tokenizer.save(Path(folder) / side)

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        return self.target.decode(ids, unknown=unknown)

    def _ids(self, text: str, side: str) -> list[int]:
        """Without special tokens around the text, nor within it."""
        ids, tokenizer = self._sides[side].encode(text, add_special_tokens=False).ids, self._sides[side]
        special, unknown = tokenizer.special_ids, tokenizer.unk_id
        return ids if unknown is None else [unknown if id in special else id for id in ids]

    def _offsets(self, text: str, side: str) -> list[Offset]:
        return self._sides[side].encode(text, add_special_tokens=False).offsets


def _first_id(roles: str, *ids: int | None) -> int:
    for id in ids:
        if id is not None:
            return id
    raise TokenizerError(f"the tokenizer has no token that starts or ends a text ({roles}); use train_pair_tokenizer")


def load_pair_tokenizer(path: str | Path) -> TranslationTokenizer:
    """The tokenizer of a translation model's folder: Marian's files, or what `PairTokenizer.save` wrote."""
    if (Path(path) / "source.spm").is_file():  # only then is sentencepiece needed
        return import_module("kinfolk.text.marian").MarianTokenizer.load(path)  # type: ignore[no-any-return]
    return PairTokenizer.load(path)
