"""One tokenizer for the whole family: text <-> ids, with offsets, words, pairs and windows.

The work is done by the tokenizers library; this class loads every kind of file in one validated way, never truncates
or pads unasked, places special tokens for windows, and keeps offsets in the user's own string. The same text gives the
same ids alone, twice and in any batch.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tokenizers

from kinfolk.errors import InputError, TokenizerError
from kinfolk.files import parse_json
from kinfolk.text.encoding import Content, Encoding, Range, TemplateEncoding, Text, read_template, split_long_words
from kinfolk.text.families import ROLES, TokenizerSource, kept_settings, read_source, save_folder
from kinfolk.text.validation import check_tokenizer

__all__ = ["Encoding", "Text", "Tokenizer"]

SURROGATE = re.compile("[\ud800-\udfff]")
CONTROL = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]")  # deleted by sentencepiece's normalization table
Result = TypeVar("Result")


class Tokenizer:
    """Text to ids and back. Make one with `Tokenizer.load(path)` or `kinfolk.train_tokenizer(...)`.

    Special tokens: cls_id stands for the whole text, sep_id ends a text, bos_id and eos_id start and end one of a
    language model; there are pad_id, unk_id and mask_id. They are None where the vocabulary has no such token.
    """

    def __init__(self, source: TokenizerSource):
        document = check_tokenizer(source.document, source.location)
        merged = document["model"].get("merges") != []
        self.kind: str = document["model"]["type"] if merged else "characters"  # or WordPiece, BPE, Unigram, WordLevel
        message = f"{source.location}: the tokenizers library refuses it"
        self._library: Any = guarded(lambda: tokenizers.Tokenizer.from_str(json.dumps(document)), message)
        for entry in document.get("added_tokens") or []:
            if self._library.token_to_id(entry["content"]) != entry["id"]:
                token = entry["content"][:40]
                raise TokenizerError(f"{source.location}: added token {token!r} cannot have id {entry['id']}")
        self._template = read_template(document.get("post_processor"))
        for texts, slots in enumerate(self._template, 1):
            if len(slots) - texts != self.special_tokens_count(texts == 2):
                raise TokenizerError(f"{source.location}: its post_processor adds special tokens more than once")
        self._settings = kept_settings(source.settings)
        self._ids: dict[str, int] = self._library.get_vocab(with_added_tokens=True)
        self._tokens = {id: token for token, id in self._ids.items()}
        self._word_marks = _word_marks(document)
        self._mask_controls = _control_mask(document)
        roles = source.roles.items()
        self.special_tokens = {role: token for role, token in roles if isinstance(token, str) and token in self._ids}
        ids = (self._ids.get(self.special_tokens.get(role, "")) for role in ROLES)
        self.cls_id, self.sep_id, self.pad_id, self.unk_id, self.mask_id, self.bos_id, self.eos_id = ids
        self.vocabulary_size = 1 + max(self._tokens)
        self.segments = 1 + max(slot.type_ids for slots in self._template for slot in slots)  # ids of a pair's segments
        self.max_length: int | None = self._settings.get("model_max_length")  # of the model's input, if the files say
        added = {entry["content"] for entry in document.get("added_tokens") or [] if entry["special"]}
        self.special_ids = frozenset(self._ids[token] for token in added.union(self.special_tokens.values()))

    @classmethod
    def load(cls, path: str | Path, family: str | None = None) -> Tokenizer:
        """Read a folder or a single file; `family` is the model's public type, by default that of config.json."""
        return cls(read_source(Path(path), family))

    def save(self, folder: str | Path, max_length: int | None = None) -> None:
        """Write tokenizer.json, its settings and, where the kind has them, vocab.txt or vocab.json and merges.txt.

        `max_length` is what the model reads at once, unless the tokenizer has a `max_length` of its own.
        """
        length = {} if max_length is None else {"model_max_length": max_length}
        save_folder(Path(folder), self._library.to_str(), self.special_tokens, length | self._settings)

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
        return cls(TokenizerSource(parts["tokenizer"], parts["special"], parts["settings"], "tokenizer"))

    def __reduce__(self) -> tuple[Callable[[str], Tokenizer], tuple[str]]:
        return Tokenizer.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.vocabulary_size} ids)"

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it."""
        return self._ids.get(token)

    def id_to_token(self, id: int) -> str:
        """The token with an id; ids without one (gaps in the vocabulary) are an empty string."""
        if not 0 <= id < self.vocabulary_size:
            raise InputError(f"id {id} is outside the vocabulary (0 to {self.vocabulary_size - 1})")
        return self._tokens.get(id, "")

    def starts_word(self, id: int) -> bool:
        """Does this token begin a word? Special tokens do not.

        Vocabularies that mark the end of words instead (the first GPT) cannot say; there it means: does it end one.
        """
        token, (prefix, space, suffix) = self.id_to_token(id), self._word_marks
        if not token or id in self.special_ids:
            return False
        if space:
            return token.startswith(space)
        return token.endswith(suffix) if suffix else not (prefix and token.startswith(prefix))

    def special_tokens_count(self, pair: bool = False) -> int:
        """The number of special tokens that are added to a text, or to a pair."""
        return self._library.num_special_tokens_to_add(pair)  # type: ignore[no-any-return]

    def encode(self, text: Text, add_special_tokens: bool = True) -> Encoding:
        """The tokens of a text or pair."""
        texts = self._texts(text)
        if any(map(_has_long_word, texts)):
            contents = self._contents(texts)
            return self._arrange(contents, [(0, len(content)) for content in contents], add_special_tokens)
        return Encoding(guarded(lambda: self._library.encode(*texts, add_special_tokens=add_special_tokens)), texts)

    def encode_many(self, texts: Sequence[Text], add_special_tokens: bool = True) -> list[Encoding]:
        """As `encode`, for many texts at once on all cores."""
        if isinstance(texts, str):  # a sequence of texts to a type checker
            raise InputError("encode_many takes a list of texts; use encode for a single one")
        batch = [self._texts(text) for text in texts]
        if len(batch) == 1 or any(_has_long_word(text) for item in batch for text in item):  # one needs no threads
            return [self.encode(item if len(item) == 2 else item[0], add_special_tokens) for item in batch]
        inputs = [item[0] if len(item) == 1 else item for item in batch]
        encodings = guarded(lambda: self._library.encode_batch(inputs, add_special_tokens=add_special_tokens))
        return [Encoding(raw, item) for raw, item in zip(encodings, batch, strict=True)]

    def windows(self, text: Text, size: int, stride: int = 0, kept: int | None = None) -> list[Encoding]:
        """Windows of at most `size` tokens, special tokens included, that together hold every token.

        Neighbours share `stride` tokens. Of a pair only the longer text is windowed; every window repeats the other, or
        its first `kept` tokens.
        """
        contents = self._contents(self._texts(text))
        lengths, special = [len(content) for content in contents], self.special_tokens_count(len(contents) == 2)
        moving = len(lengths) - 1 if lengths[-1] >= lengths[0] else 0
        if kept is not None and len(lengths) == 2:
            lengths[1 - moving] = min(lengths[1 - moving], kept)
        ranges: list[Range] = [(0, length) for length in lengths]
        if sum(lengths) + special <= size:
            return [self._arrange(contents, ranges)]
        length, shorter = lengths[moving], sum(lengths) - lengths[moving]
        room = size - special - shorter
        if room < 1:
            partner = f" and {shorter} tokens of the shorter text" if len(lengths) > 1 else ""
            raise InputError(f"size={size} leaves no room beside {special} special tokens{partner}; use a larger size")
        if not 0 <= stride < room:
            raise InputError(f"stride={stride} must be from 0 to {room - 1}: {room} tokens of text fit in a window")
        windows = []
        for start in range(0, length - stride, room - stride):
            ranges[moving] = (start, min(start + room, length))
            windows.append(self._arrange(contents, list(ranges)))
        return windows

    def truncate(self, text: Text, size: int) -> tuple[Encoding, int, int]:
        """At most `size` tokens, special ones included, from the start; with the text tokens that were kept and all.

        Of a pair the longer text is cut first, then both share the room.
        """
        contents = self._contents(self._texts(text))
        lengths = [len(content) for content in contents]
        room = size - self.special_tokens_count(len(lengths) == 2)
        if room < 0:
            raise InputError(f"size is {-room} less than the number of special tokens; use a larger size")
        kept = [min(length, room) for length in lengths]
        if sum(kept) > room:  # the longer text is cut first, then both share
            shorter = min(*lengths, room // 2)
            kept = [shorter, room - shorter] if lengths[0] <= lengths[1] else [room - shorter, shorter]
        return self._arrange(contents, [(0, length) for length in kept]), sum(kept), sum(lengths)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True, unknown: str = "") -> str:
        """The text of ids, as well as the vocabulary can spell it (lower case stays lower).

        Special tokens are left out; `unknown`, if not empty, is written for unknown tokens.
        """
        kept = [int(id) for id in ids]
        for id in kept:
            self.id_to_token(id)
        shown = self.unk_id if unknown and self.unk_id in kept else None
        if shown is not None:
            skipped = self.special_ids - {shown}
            kept, skip_special_tokens = [id for id in kept if id not in skipped], False
        text: str = guarded(lambda: self._library.decode(kept, skip_special_tokens=skip_special_tokens))
        return text if shown is None else text.replace(self.id_to_token(shown), unknown)

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

    def _arrange(self, contents: list[Content], ranges: list[Range], add_special_tokens: bool = True) -> Encoding:
        """Those tokens of a text or pair, with special tokens around them."""
        slots = self._template[len(contents) == 2]
        kept = slots if add_special_tokens else [slot for slot in slots if slot.sequence_ids is not None]
        return Encoding(TemplateEncoding(kept, contents, ranges))


def _has_long_word(text: str) -> bool:
    return len(split_long_words(text)) > 1


def guarded(work: Callable[[], Result], message: str = "the tokenizers library failed") -> Result:
    """Run library code; its failures, panics included (they are not Exceptions), become one line."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise TokenizerError(f"{message}: {str(error)[:200]}") from None


def _word_marks(document: dict[str, Any]) -> tuple[str, str, str]:
    """How tokens show words: prefix of continuing tokens, the space before a word, suffix of a word's last token."""
    model, splitter = document["model"], document.get("pre_tokenizer") or {"type": ""}
    steps = splitter.get("pretokenizers", [splitter])
    space = "Ġ" if any(step["type"] == "ByteLevel" for step in steps) else ""
    space = next((step.get("replacement", "▁") for step in steps[::-1] if step["type"] == "Metaspace"), space)
    return model.get("continuing_subword_prefix") or "", space, model.get("end_of_word_suffix") or ""


def _control_mask(document: dict[str, Any]) -> Callable[[str], str] | None:
    """What to do to each text before the library reads it; None for tokenizers without the following bug.

    Where a control character that sentencepiece's table deletes opens a stretch of text (at the start, or right after
    an added token), the library forgets that it was there and every offset of the stretch comes out too small. A space
    in its place is dropped as well, gives the same ids, and keeps the offsets right.
    """
    normalizer, splitter = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    names = [step["type"] for step in normalizer.get("normalizers", [normalizer]) if "type" in step]
    first = splitter.get("pretokenizers", [splitter])[:1]
    if "Precompiled" not in names or not first or first[0].get("type") != "WhitespaceSplit":
        return None
    added = sorted((entry["content"] for entry in document.get("added_tokens") or []), key=len, reverse=True)
    opening = re.compile("|".join(map(re.escape, added))) if added else None

    def mask(text: str) -> str:
        if not CONTROL.search(text):
            return text
        characters = list(text)
        for start in (0, *(match.end() for match in opening.finditer(text))) if opening else (0,):
            end = start  # of the run of deleted characters
            for index in range(start, len(text)):
                if CONTROL.match(text, index):
                    end = index + 1
                elif "StripAccents" not in names or unicodedata.category(text[index]) != "Mn":
                    break
            characters[start:end] = " " * (end - start)
        return "".join(characters)

    return mask


def _serial_in_forks() -> None:
    """The library's threads do not survive a fork; children work serially, and without its warning."""
    name = "TOKENIZERS_PARALLELISM"
    before: list[dict[str, str]] = []

    def prepare() -> None:
        before.append({key: value for key, value in os.environ.items() if key == name})
        os.environ[name] = "false"

    def restore() -> None:
        del os.environ[name]
        os.environ.update(before.pop())

    os.register_at_fork(before=prepare, after_in_parent=restore)


if hasattr(os, "register_at_fork"):
    _serial_in_forks()
