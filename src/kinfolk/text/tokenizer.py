"""One tokenizer for the whole family: text <-> ids, with offsets, words, pairs and windows.

The work is done by the tokenizers library; this class loads every kind of file in one validated way, never truncates
or pads unasked, places special tokens for windows, and keeps offsets in the user's own string. The same text gives the
same ids alone, twice and in any batch.
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
from kinfolk.text.encoding import (
    Content,
    Encoding,
    TemplateEncoding,
    Text,
    read_template,
    truncated_lengths,
    window_ranges,
)
from kinfolk.text.families import ROLES, TokenizerSource
from kinfolk.text.loading import kept_settings, read_source, save_folder
from kinfolk.text.preprocessing import long_word_cuts, mask_controls, split_long_words
from kinfolk.text.validation import check_tokenizer

__all__ = ["Encoding", "Text", "Tokenizer"]

SURROGATE = re.compile("[\ud800-\udfff]")
Result = TypeVar("Result")


class Tokenizer:
    """Text to ids and back. Make one with `Tokenizer.load(path)` or `kinfolk.train_tokenizer(...)`.

    The ids of special tokens are None where the vocabulary has no such token.
    """

    cls_id: int | None  # stands for the whole text
    sep_id: int | None  # ends a text
    pad_id: int | None
    unk_id: int | None
    mask_id: int | None
    bos_id: int | None  # starts a text of a language model
    eos_id: int | None  # ends it

    def __init__(self, source: TokenizerSource):
        document = check_tokenizer(source.document, source.location)
        self.kind: str = document["model"]["type"]  # WordPiece, BPE, Unigram or WordLevel
        self._library: Any = _build(document, source.location)
        self._template = read_template(document.get("post_processor"))
        if any(self._template.count(pair) != self._library.num_special_tokens_to_add(pair) for pair in (False, True)):
            raise TokenizerError(f"{source.location}: its post_processor adds special tokens more than once")
        self._settings = kept_settings(source.settings)
        self._ids: dict[str, int] = self._library.get_vocab(with_added_tokens=True)
        self._tokens = {id: token for token, id in self._ids.items()}
        self._word_marks = _word_marks(document)
        self._mask_controls = mask_controls(document)
        roles = source.roles.items()
        self.special_tokens = {role: token for role, token in roles if isinstance(token, str) and token in self._ids}
        ids = (self._ids.get(self.special_tokens.get(role, "")) for role in ROLES)
        self.cls_id, self.sep_id, self.pad_id, self.unk_id, self.mask_id, self.bos_id, self.eos_id = ids
        self.vocabulary_size = 1 + max(self._tokens)
        added = {entry["content"] for entry in document.get("added_tokens") or [] if entry["special"]}
        self._special = frozenset(added | set(self.special_tokens.values()))

    @classmethod
    def load(cls, path: str | Path, family: str | None = None) -> Tokenizer:
        """Read a folder or a single file; `family` is the model's public type, by default that of config.json."""
        return cls(read_source(Path(path), family))

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, its settings and, where the kind has them, vocab.txt or vocab.json and merges.txt."""
        save_folder(Path(folder), self._library.to_str(), self.special_tokens, self._settings)

    def to_json(self) -> str:
        """Everything as one string, for `from_json`."""
        document = json.loads(self._library.to_str())
        return json.dumps({"tokenizer": document, "special": self.special_tokens, "settings": self._settings})

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The tokenizer that `to_json` wrote."""
        parts = parse_json(text, "tokenizer")
        names = ("tokenizer", "special", "settings")
        if not isinstance(parts, dict) or not all(isinstance(parts.get(name), dict) for name in names):
            raise TokenizerError("this text was not written by Tokenizer.to_json")
        document, special_tokens, settings = (parts[name] for name in names)
        return cls(TokenizerSource(document, special_tokens, settings, "tokenizer"))

    def __reduce__(self) -> tuple[Callable[[str], Tokenizer], tuple[str]]:
        return Tokenizer.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.vocabulary_size} ids)"

    @property
    def max_length(self) -> int | None:
        """The longest input of the model, if the files say so."""
        return self._settings.get("model_max_length")

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it."""
        return self._ids.get(token)

    def id_to_token(self, id: int) -> str:
        """The token with an id; ids without one (gaps in the vocabulary) are an empty string."""
        if not 0 <= id < self.vocabulary_size:
            raise InputError(f"id {id} is outside the vocabulary (0 to {self.vocabulary_size - 1})")
        token: str = self._tokens.get(id, "")
        return token

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of all special tokens."""
        return frozenset(self._ids[token] for token in self._special)

    def starts_word(self, id: int) -> bool:
        """Does this token begin a word? Special tokens do not.

        Vocabularies that mark the end of words instead (the first GPT) cannot say; there it means: does it end one.
        """
        token, (prefix, space, suffix) = self.id_to_token(id), self._word_marks
        if not token or token in self._special:
            return False
        if space:
            return token.startswith(space)
        return token.endswith(suffix) if suffix else not (prefix and token.startswith(prefix))

    @property
    def segments(self) -> int:
        """The number of segment ids of a pair."""
        return 1 + max(slot.segment for slot in (*self._template.single, *self._template.pair))

    def special_tokens_count(self, pair: bool = False) -> int:
        """The number of special tokens that are added to a text, or to a pair."""
        return self._template.count(pair)

    def encode(self, text: Text, add_special_tokens: bool = True) -> Encoding:
        """The tokens of a text or pair."""
        texts = self._texts(text)
        if any(map(long_word_cuts, texts)):
            contents = self._contents(texts)
            ranges = [(0, len(content)) for content in contents]
            return Encoding(
                TemplateEncoding(self._template.slots(len(texts) == 2, add_special_tokens), contents, ranges)
            )
        return Encoding(guarded(lambda: self._library.encode(*texts, add_special_tokens=add_special_tokens)), texts)

    def encode_many(self, texts: Sequence[Text], add_special_tokens: bool = True) -> list[Encoding]:
        """As `encode`, for many texts at once on all cores."""
        if isinstance(texts, str):  # a sequence of texts to a type checker
            raise InputError("encode_many takes a list of texts; use encode for a single one")
        batch = [self._texts(text) for text in texts]
        if len(batch) == 1 or any(long_word_cuts(text) for item in batch for text in item):  # one needs no threads
            return [self.encode(item if len(item) == 2 else item[0], add_special_tokens) for item in batch]
        inputs = [item[0] if len(item) == 1 else item for item in batch]
        encodings = guarded(lambda: self._library.encode_batch(inputs, add_special_tokens=add_special_tokens))
        return [Encoding(raw, item) for raw, item in zip(encodings, batch, strict=True)]

    def windows(self, text: Text, size: int, stride: int = 0, kept: int | None = None) -> list[Encoding]:
        """Windows of at most `size` tokens, special tokens included, that together hold every token.

        Neighbours share `stride` tokens. Of a pair only the longer text is windowed; every window repeats the other, or
        its first `kept` tokens.
        """
        texts = self._texts(text)
        contents = self._contents(texts)
        lengths = [len(content) for content in contents]
        if kept is not None and len(lengths) == 2:
            shorter = int(lengths[0] > lengths[1])
            lengths[shorter] = min(lengths[shorter], kept)
        ranges = window_ranges(lengths, size, stride, self.special_tokens_count(len(texts) == 2))
        slots = self._template.slots(pair=len(texts) == 2)
        return [Encoding(TemplateEncoding(slots, contents, window)) for window in ranges]

    def truncate(self, text: Text, size: int) -> tuple[Encoding, int, int]:
        """At most `size` tokens, special ones included, from the start; with the text tokens that were kept and all.

        Of a pair the longer text is cut first, then both share the room.
        """
        texts = self._texts(text)
        contents = self._contents(texts)
        lengths = [len(content) for content in contents]
        kept = truncated_lengths(lengths, size - self.special_tokens_count(len(texts) == 2))
        slots = self._template.slots(pair=len(texts) == 2)
        return Encoding(TemplateEncoding(slots, contents, [(0, length) for length in kept])), sum(kept), sum(lengths)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True, unknown: str = "") -> str:
        """The text of ids, as well as the vocabulary can spell it (lower case stays lower).

        Special tokens are left out; `unknown`, if not empty, is written for unknown tokens.
        """
        numbers = [int(id) for id in ids]
        for id in numbers:
            self.id_to_token(id)
        unk_id = self.unk_id
        shown = bool(unknown) and unk_id in numbers
        if shown:
            skipped = self.special_ids - {unk_id}
            numbers, skip_special_tokens = [id for id in numbers if id not in skipped], False
        text: str = guarded(lambda: self._library.decode(numbers, skip_special_tokens=skip_special_tokens))
        return text.replace(self.id_to_token(unk_id), unknown) if shown and unk_id is not None else text

    def _texts(self, text: Text) -> tuple[str, ...]:
        """A text or pair as a tuple; what is replaced is replaced one character for one, so that offsets hold."""
        texts: tuple[str, ...] = text if isinstance(text, tuple) else (text,)
        if len(texts) > 2 or not texts or not all(isinstance(part, str) for part in texts):
            raise InputError(f"expected a text or a pair of texts, found {type(text).__name__} {str(text)[:40]!r}")
        if not all(part.isascii() for part in texts):
            texts = tuple(SURROGATE.sub("\ufffd", part) for part in texts)
        return tuple(map(self._mask_controls, texts)) if self._mask_controls else texts

    def _contents(self, texts: tuple[str, ...]) -> list[Content]:
        """The tokens of each text on its own, without special tokens."""
        split = [split_long_words(text) for text in texts]
        flat = [part for parts in split for _, part in parts]
        encodings = iter(guarded(lambda: self._library.encode_batch(flat, add_special_tokens=False)))
        return [Content([(start, part, next(encodings)) for start, part in parts]) for parts in split]


def guarded(work: Callable[[], Result], message: str = "the tokenizers library failed") -> Result:
    """Run library code; its failures, panics included (they are not Exceptions), become one line."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise TokenizerError(f"{message}: {str(error)[:200]}") from None


def _build(document: dict[str, Any], location: str) -> Any:
    text = json.dumps(document)
    library = guarded(lambda: tokenizers.Tokenizer.from_str(text), f"{location}: the tokenizers library refuses it")
    for entry in document.get("added_tokens") or []:
        if library.token_to_id(entry["content"]) != entry["id"]:
            raise TokenizerError(f"{location}: added token {entry['content'][:40]!r} cannot have id {entry['id']}")
    return library


def _word_marks(document: dict[str, Any]) -> tuple[str, str, str]:
    """How tokens show words: prefix of continuing tokens, the space before a word, suffix of a word's last token."""
    model, splitter = document["model"], document.get("pre_tokenizer") or {"type": ""}
    steps = splitter.get("pretokenizers", [splitter])
    space = "Ġ" if "ByteLevel" in [step["type"] for step in steps] else ""
    for step in steps:
        space = step.get("replacement", "▁") if step["type"] == "Metaspace" else space
    return model.get("continuing_subword_prefix") or "", space, model.get("end_of_word_suffix") or ""


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
