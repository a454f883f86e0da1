"""One tokenizer for the whole family: text <-> ids, with offsets, words, pairs and windows.

The work is done by the tokenizers library; this class loads every kind of file in one checked way, never cuts or pads
unasked, places special tokens for windows, and keeps offsets in the user's own string. The same text gives the same
ids alone, twice and in any company.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tokenizers

from kinfolk.errors import InputError, TokenizerError
from kinfolk.files import parse_json
from kinfolk.text.encoding import Content, Encoding, Text
from kinfolk.text.families import TokenizerSource
from kinfolk.text.loading import read_source
from kinfolk.text.preprocessing import long_word_cuts, mask_controls, split_long_words
from kinfolk.text.saving import kept_settings, save_folder
from kinfolk.text.validation import check_tokenizer
from kinfolk.text.windows import Placed, kept_lengths, read_layout, window_ranges

__all__ = ["Encoding", "Text", "Tokenizer"]

WRITTEN = ("tokenizer", "special", "settings")
SURROGATE = re.compile("[\ud800-\udfff]")
Result = TypeVar("Result")


class Tokenizer:
    """Text to ids and back. Make one with `Tokenizer.load(path)` or `learn(...)`."""

    def __init__(self, source: TokenizerSource):
        document = check_tokenizer(source.document, source.where)
        self.kind: str = document["model"]["type"]  # WordPiece, BPE, Unigram or WordLevel
        self._library: Any = _build(document, source.where)
        self._layout = read_layout(document.get("post_processor"))
        if any(self._layout.specials(pair) != self._library.num_special_tokens_to_add(pair) for pair in (False, True)):
            raise TokenizerError(f"{source.where}: its post_processor places special tokens more than once")
        self._settings = kept_settings(source.settings)
        self._ids: dict[str, int] = self._library.get_vocab(with_added_tokens=True)
        self._tokens = {number: token for token, number in self._ids.items()}
        self._marks = _word_marks(document)
        self._soften = mask_controls(document)
        roles = source.roles.items()
        self.special_tokens = {role: token for role, token in roles if isinstance(token, str) and token in self._ids}
        self.vocabulary_size = 1 + max(self._tokens)
        self._specials = frozenset(
            entry["content"] for entry in document.get("added_tokens") or [] if entry["special"]
        ) | frozenset(self.special_tokens.values())

    @classmethod
    def load(cls, path: str | Path, family: str | None = None) -> Tokenizer:
        """Read a folder or a single file; `family` is the model's public type, read from config.json if not given."""
        return cls(read_source(Path(path), family))

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, its settings and, where the kind has them, vocab.txt or vocab.json and merges.txt."""
        save_folder(Path(folder), self._library.to_str(), self.special_tokens, self._settings)

    def to_json(self) -> str:
        """Everything as one text, for `from_json`."""
        content = {
            "tokenizer": json.loads(self._library.to_str()),
            "special": self.special_tokens,
            "settings": self._settings,
        }
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The tokenizer that `to_json` wrote down."""
        found = parse_json(text, "tokenizer")
        if not isinstance(found, dict) or not all(isinstance(found.get(name), dict) for name in WRITTEN):
            raise TokenizerError("this text was not written by Tokenizer.to_json")
        return cls(TokenizerSource(found["tokenizer"], found["special"], found["settings"], "tokenizer"))

    def __reduce__(self) -> tuple[Callable[[str], Tokenizer], tuple[str]]:
        return Tokenizer.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.vocabulary_size} ids)"

    @property
    def max_length(self) -> int | None:
        """The longest input of the model, if the files say so."""
        return self._settings.get("model_max_length")

    def token_to_id(self, token: str) -> int | None:
        """The id of a piece as the vocabulary spells it."""
        return self._ids.get(token)

    def id_to_token(self, id: int) -> str:
        """The piece with an id; ids without a piece (holes in the vocabulary) read as an empty text."""
        if not 0 <= id < self.vocabulary_size:
            raise InputError(f"id {id} is outside the vocabulary (0 to {self.vocabulary_size - 1})")
        token: str = self._tokens.get(id, "")
        return token

    def _role_id(self, role: str) -> int | None:
        return self._ids[self.special_tokens[role]] if role in self.special_tokens else None

    @property
    def cls_id(self) -> int | None:
        """Id of the token that stands for the whole text."""
        return self._role_id("cls")

    @property
    def sep_id(self) -> int | None:
        """Id of the token that ends a text."""
        return self._role_id("sep")

    @property
    def pad_id(self) -> int | None:
        """Id of the token that fills up a batch."""
        return self._role_id("pad")

    @property
    def unk_id(self) -> int | None:
        """Id of the token for what the vocabulary cannot spell."""
        return self._role_id("unk")

    @property
    def mask_id(self) -> int | None:
        """Id of the token that hides a word."""
        return self._role_id("mask")

    @property
    def bos_id(self) -> int | None:
        """Id of the token that opens a text for models that write on."""
        return self._role_id("bos")

    @property
    def eos_id(self) -> int | None:
        """Id of the token that ends a text for models that write on."""
        return self._role_id("eos")

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of all special tokens."""
        return frozenset(self._ids[token] for token in self._specials)

    def starts_word(self, id: int) -> bool:
        """Does this piece begin a word? Special tokens do not.

        Vocabularies that mark the end of words instead (the first GPT) cannot say; there it means: does it end one.
        """
        token, (prefix, blank, suffix) = self.id_to_token(id), self._marks
        if not token or token in self._specials:
            return False
        if blank:
            return token.startswith(blank)
        return token.endswith(suffix) if suffix else not (prefix and token.startswith(prefix))

    @property
    def segments(self) -> int:
        """How many kinds of segments a pair has: the largest number that is given to a token, plus one."""
        return 1 + max(slot.segment for slot in (*self._layout.single, *self._layout.pair))

    def special_tokens_count(self, pair: bool = False) -> int:
        """How many special tokens are added to a text, or to a pair."""
        return self._layout.specials(pair)

    def encode(self, text: Text, add_special_tokens: bool = True) -> Encoding:
        """The tokens of a text or pair."""
        texts = self._texts(text)
        if any(map(long_word_cuts, texts)):
            contents = self._contents(texts)
            whole = [(0, len(content)) for content in contents]
            return Encoding(Placed(self._layout.slots(len(texts) == 2, add_special_tokens), contents, whole))
        return Encoding(guarded(lambda: self._library.encode(*texts, add_special_tokens=add_special_tokens)), texts)

    def encode_many(self, texts: Sequence[Text], add_special_tokens: bool = True) -> list[Encoding]:
        """As `encode`, for many texts at once on all cores."""
        if isinstance(texts, str):
            raise InputError("encode_many takes a list of texts; use encode for a single one")
        batch = [self._texts(text) for text in texts]
        if len(batch) == 1 or any(long_word_cuts(text) for item in batch for text in item):  # one needs no threads
            return [self.encode(item if len(item) == 2 else item[0], add_special_tokens) for item in batch]
        inputs = [item[0] if len(item) == 1 else item for item in batch]
        found = guarded(lambda: self._library.encode_batch(inputs, add_special_tokens=add_special_tokens))
        return [Encoding(raw, item) for raw, item in zip(found, batch, strict=True)]

    def windows(self, text: Text, size: int, stride: int = 0, kept: int | None = None) -> list[Encoding]:
        """Windows of at most `size` tokens, specials included, that together hold every token.

        Neighbours share `stride` tokens. Of a pair only the longer text is windowed; every window repeats the other or,
        where `kept` is given, so many tokens of its beginning.
        """
        texts = self._texts(text)
        contents = self._contents(texts)
        lengths = [len(content) for content in contents]
        if kept is not None and len(lengths) == 2:
            shorter = int(lengths[0] > lengths[1])
            lengths[shorter] = min(lengths[shorter], kept)
        ranges = window_ranges(lengths, size, stride, self.special_tokens_count(len(texts) == 2))
        slots = self._layout.slots(pair=len(texts) == 2)
        return [Encoding(Placed(slots, contents, window)) for window in ranges]

    def truncate(self, text: Text, size: int) -> tuple[Encoding, int, int]:
        """At most `size` tokens, specials included, from the start; with how many of how many text tokens were kept.

        Of a pair the longer text gives way first, then both share the room.
        """
        texts = self._texts(text)
        contents = self._contents(texts)
        lengths = [len(content) for content in contents]
        kept = kept_lengths(lengths, size - self.special_tokens_count(len(texts) == 2))
        placed = Placed(self._layout.slots(pair=len(texts) == 2), contents, [(0, length) for length in kept])
        return Encoding(placed), sum(kept), sum(lengths)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True, unknown: str = "") -> str:
        """The text that ids stand for, as well as the vocabulary can say (lower case stays lower).

        Special tokens are left out; `unknown`, if given, stands in the place of those that stand for unknown letters.
        """
        numbers = [int(number) for number in ids]
        for number in numbers:
            self.id_to_token(number)
        own = self.unk_id
        shown = bool(unknown) and own in numbers
        if shown:
            silent = self.special_ids - {own}
            numbers, skip_special_tokens = [number for number in numbers if number not in silent], False
        text: str = guarded(lambda: self._library.decode(numbers, skip_special_tokens=skip_special_tokens))
        return text.replace(self.id_to_token(own), unknown) if shown and own is not None else text

    def _texts(self, text: Text) -> tuple[str, ...]:
        """A text or pair as a tuple; what is replaced is replaced one character for one, so that offsets hold."""
        texts: tuple[str, ...] = text if isinstance(text, tuple) else (text,)
        if len(texts) > 2 or not texts or not all(isinstance(part, str) for part in texts):
            raise InputError(f"expected a text or a pair of texts, found {type(text).__name__} {str(text)[:40]!r}")
        if not all(part.isascii() for part in texts):
            texts = tuple(SURROGATE.sub("\ufffd", part) for part in texts)
        return tuple(map(self._soften, texts)) if self._soften else texts

    def _contents(self, texts: tuple[str, ...]) -> list[Content]:
        """The tokens of each text on its own, without special tokens."""
        split = [split_long_words(text) for text in texts]
        flat = [piece for parts in split for _, piece in parts]
        found = iter(guarded(lambda: self._library.encode_batch(flat, add_special_tokens=False)))
        return [Content([(start, piece, next(found)) for start, piece in parts]) for parts in split]


def guarded(work: Callable[[], Result]) -> Result:
    """Run library code; its failures, panics included (they are not Exceptions), become one line."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise TokenizerError(f"the tokenizers library failed: {str(error)[:200]}") from None


def _build(document: dict[str, Any], where: str) -> Any:
    try:
        library = tokenizers.Tokenizer.from_str(json.dumps(document))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic is not an Exception
        raise TokenizerError(f"{where}: the tokenizers library refuses it: {str(error)[:200]}") from None
    for entry in document.get("added_tokens") or []:
        if library.token_to_id(entry["content"]) != entry["id"]:
            raise TokenizerError(f"{where}: added token {entry['content'][:40]!r} cannot have id {entry['id']}")
    return library


def _word_marks(document: dict[str, Any]) -> tuple[str, str, str]:
    """How pieces show words: prefix of continuing pieces, blank before a word, suffix of the last piece."""
    model, found = document["model"], document.get("pre_tokenizer") or {"type": ""}
    steps = found.get("pretokenizers", [found])
    names = [step["type"] for step in steps]
    blank = "Ġ" if "ByteLevel" in names else ""
    for step in steps:
        blank = step.get("replacement", "▁") if step["type"] == "Metaspace" else blank
    return model.get("continuing_subword_prefix") or "", blank, model.get("end_of_word_suffix") or ""


def _serial_in_forks() -> None:
    """The library's threads do not survive a fork; children work serially, and without its warning."""
    name, before = "TOKENIZERS_PARALLELISM", []

    def prepare() -> None:
        before.append(os.environ.get(name))
        os.environ[name] = "false"

    def restore() -> None:
        value = before.pop() if before else None
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=prepare, after_in_parent=restore)


_serial_in_forks()
