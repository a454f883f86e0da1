"""The tokenizer of Marian's translation models (opus-mt): two sentencepiece models and one list of ids.

source.spm and target.spm split texts into pieces; vocab.json gives the pieces their ids, for both languages or, with
target_vocab.json beside it, for the source alone. Texts end in </s>; the decoder is started with <pad>. A text may
begin with the code of the wanted language, as in ">>fra<< Good morning".

The reference runs the sentencepiece library, which trusts its file: a damaged table or a strange piece can stop the
process. So the file is read and validated here first, and the library gets a model that is written anew from what was
read: nothing that this package does not know reaches it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import sentencepiece

from kinfolk.errors import InputError, TokenizerError, shorten_list
from kinfolk.files import inside, read_bytes, read_object, write_bytes, write_json
from kinfolk.text.encoding import Offset, clean_offsets
from kinfolk.text.families import flag, roles_of
from kinfolk.text.loading import read_settings, tokenizer_errors
from kinfolk.text.sentencepiece import (
    BYTE,
    MAX_MODEL_BYTES,
    SentencePieceModel,
    parse_fields,
    parse_spiece,
    write_spiece,
)
from kinfolk.text.tokenizer import SURROGATE
from kinfolk.text.validation import check_charsmap, check_vocabulary

MARIAN_ROLES = {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}
MODELS = ("source.spm", "target.spm")
KEPT = ("source_lang", "target_lang", "model_max_length", "separate_vocabs", "added_tokens_decoder")
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)
Part = tuple[int, str, bool]  # (start, characters, is it one token?)


class MarianTokenizer:
    """Texts of two languages to ids and back. Make one with `MarianTokenizer.load(folder)`."""

    def __init__(
        self, files: dict[str, bytes], vocabularies: list[dict[str, int]], settings: dict[str, Any], location: str
    ):
        """`files` are the two sentencepiece models by name, `vocabularies` the source's and the target's (or one)."""
        self._files, self._settings = files, settings
        self._source_ids, self._target_ids = vocabularies[0], vocabularies[-1]
        self.roles = MARIAN_ROLES | {role: token for role, token in roles_of(settings).items() if role in MARIAN_ROLES}
        special = set(self.roles.values())
        for token in sorted(special):
            if token not in self._source_ids or self._target_ids.get(token) != self._source_ids[token]:
                raise TokenizerError(f"{location}: the vocabulary lacks {token[:40]!r}, or two give it different ids")
        special |= _added_tokens(settings, self._source_ids, location)
        self._splitter = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))))
        self._tokens = {id: token for token, id in self._target_ids.items()}
        self._special_ids = {self._source_ids[token] for token in special}
        end, pad, unknown = (self._source_ids[self.roles[role]] for role in ("eos", "pad", "unk"))
        self.begin_id, self.end_id = pad, end
        self.pad_id: int | None = pad
        self.unknown_id: int | None = unknown
        self.source_unknown_id: int | None = unknown
        self._unknown = unknown
        self.source_size, self.target_size = (1 + max(ids.values()) for ids in (self._source_ids, self._target_ids))
        paths = {name: f"{location}/{name}" for name in MODELS}
        engines = (Engine(parse_spiece(files[name], path), path) for name, path in paths.items())
        self._source, self._target = engines

    @classmethod
    def load(cls, path: str | Path) -> MarianTokenizer:
        """Read source.spm, target.spm, vocab.json and the settings beside them."""
        folder = Path(path)
        with tokenizer_errors(path):
            settings = read_settings(folder)
            files = {name: read_bytes(inside(folder, name), MAX_MODEL_BYTES) for name in MODELS}
            names = ["vocab.json", "target_vocab.json"] if flag(settings, "separate_vocabs", False) else ["vocab.json"]
            vocabularies = [check_vocabulary(read_object(inside(folder, name)), str(folder / name)) for name in names]
            return cls(files, vocabularies, settings, str(folder))

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` and transformers' MarianTokenizer read with equal ids."""
        folder = Path(folder)
        for name, content in self._files.items():
            write_bytes(folder / name, content)
        write_json(folder / "vocab.json", self._source_ids)
        if self._target_ids is not self._source_ids:
            write_json(folder / "target_vocab.json", self._target_ids)
        settings = {name: self._settings[name] for name in KEPT if name in self._settings}
        roles = {f"{role}_token": token for role, token in self.roles.items()}
        write_json(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **roles, **settings})

    def encode_source(self, text: str) -> list[int]:
        ids = self._encode(text, self._source, self._source_ids)
        return [*ids, self.end_id] if ids else []

    def encode_target(self, text: str) -> list[int]:
        return [*self._encode(text, self._target, self._target_ids), self.end_id]

    def source_offsets(self, text: str) -> list[Offset]:
        offsets = self._offsets(text, self._source)
        return [*offsets, (len(text), len(text))] if offsets else []

    def target_offsets(self, text: str) -> list[Offset]:
        return [*self._offsets(text, self._target), (len(text), len(text))]

    def _offsets(self, text: str, engine: Engine) -> list[Offset]:
        offsets: list[Offset] = []
        for start, part, whole in self._parts(text):
            spans = [(0, len(part))] if whole else engine.offsets(part)
            offsets += [(start + first, start + last) for first, last in spans]
        return offsets

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        skipped = self._special_ids - {self._unknown} if unknown else self._special_ids
        kept = (id for id in map(int, ids) if id not in skipped)
        pieces = (unknown if id == self._unknown else self._piece(id) for id in kept)
        return self._target.join(filter(None, pieces)).replace("▁", " ").strip()

    def _piece(self, id: int) -> str:
        if not 0 <= id < self.target_size:
            raise InputError(f"id {id} is outside the vocabulary (0 to {self.target_size - 1})")
        return self._tokens.get(id, "")

    def _encode(self, text: str, engine: Engine, known: dict[str, int]) -> list[int]:
        ids: list[int] = []
        for _, part, whole in self._parts(text):
            ids += [known.get(piece, self._unknown) for piece in ([part] if whole else engine.pieces(part))]
        return ids

    def _parts(self, text: str) -> Iterator[Part]:
        """A text cut at special tokens and behind the code of a language, as the reference does."""
        text, start = SURROGATE.sub("\ufffd", text), 0
        for match in (*self._splitter.finditer(text), None):
            end = match.start() if match else len(text)
            if language := LANGUAGE.match(text, start, end):
                yield start, language[0], True
                start = language.end()
            if start < end:
                yield start, text[start:end], False
            if match:
                yield end, match[0], True
                start = match.end()


def _added_tokens(settings: dict[str, Any], ids: dict[str, int], location: str) -> set[str]:
    """Tokens that the settings add to the roles'; they must be in the vocabulary."""
    listed = settings.get("added_tokens_decoder", {})
    if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
        raise TokenizerError(f"{location}: added_tokens_decoder is not a list of id -> token")
    added = [(entry.get("content"), id) for id, entry in listed.items()]
    added += [(token, str(id)) for token, id in settings.get("added_tokens", {}).items()]
    for token, id in added:
        if not isinstance(token, str) or not token or token not in ids or str(ids[token]) != id:
            raise TokenizerError(f"{location}: the added token {str(token)[:40]!r} is not in vocab.json with that id")
    return {token for token, _ in added}


BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
LONGEST_REPLACEMENT = 256  # bytes; Unicode's longest is 33
Result = TypeVar("Result")


class Engine:
    """Splits texts into pieces and joins pieces to texts, with the sentencepiece library."""

    def __init__(self, model: SentencePieceModel, location: str):
        _check(model, location)
        self._location = location
        self._processor = sentencepiece.SentencePieceProcessor()
        self._guarded(lambda: self._processor.LoadFromSerializedProto(write_spiece(model)))

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text; unknown ones appear as they are in the text."""
        pieces: list[str] = self._guarded(lambda: self._processor.encode(text, out_type=str))
        return pieces

    def offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each piece in the text, without spaces at their ends."""
        raw: bytes = self._guarded(lambda: self._processor.encode(text, out_type="serialized_proto"))
        pieces = [value for field, value in parse_fields(raw) if field == 2 and isinstance(value, bytes)]
        # for each index of the UTF-8 bytes, the end included, the index of its character
        characters = [*(index for index, char in enumerate(text) for _ in char.encode()), len(text)]
        spans = []
        for piece in pieces:
            fields = {field: value for field, value in parse_fields(piece) if isinstance(value, int)}
            spans.append((characters[fields.get(4, 0)], characters[fields.get(5, 0)]))
        return clean_offsets(spans, [0] * len(spans), (text,))

    def join(self, pieces: Iterable[str]) -> str:
        """The text that pieces spell."""
        text: str = self._guarded(lambda: self._processor.decode_pieces(list(pieces)))
        return text

    def _guarded(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except (RuntimeError, ValueError, OSError) as error:
            raise TokenizerError(f"{self._location}: sentencepiece refuses it: {str(error)[:200]}") from None


def _check(model: SentencePieceModel, location: str) -> None:
    """Refuse what the library would stumble over."""
    texts = [piece.text for piece in model.pieces]
    if len(set(texts)) != len(texts):
        raise TokenizerError(f"{location}: duplicate piece; the file is damaged")
    strange = [piece.text for piece in model.pieces if "\0" in piece.text]
    strange += [piece.text for piece in model.pieces if piece.kind == BYTE and not BYTE_PIECE.fullmatch(piece.text)]
    if strange:
        raise TokenizerError(f"{location}: invalid piece {shorten_list(map(repr, strange))}; the file is damaged")
    if model.charsmap:
        check_charsmap(base64.b64encode(model.charsmap).decode(), location)
        replacements = model.charsmap[4 + int.from_bytes(model.charsmap[:4], "little") :].split(b"\0")
        if max(map(len, replacements)) > LONGEST_REPLACEMENT:
            raise TokenizerError(f"{location}: the normalization table has very long replacements; refused")
