"""The tokenizer of Marian's translation models (opus-mt): two sentencepiece models and one list of ids.

source.spm and target.spm split texts into pieces; vocab.json gives the pieces their ids, for both languages or, with
target_vocab.json beside it, for the source alone. Texts end in </s>; the decoder is started with <pad>. A text may
begin with the code of the wanted language, as in ">>fra<< Good morning".

sentencepiece's own program on a model that was vetted, for tokenizers whose reference runs it.

The program trusts its file: a damaged table or a strange piece can stop the process. So the file is read here first
(spiece.py), what could do harm is refused, and the program gets a model that is written anew from what was read:
nothing that this package does not know reaches it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import sentencepiece

from kinfolk.errors import FolderError, InputError, TokenizerError, shorten_list
from kinfolk.files import inside, read_bytes, read_object, write_bytes, write_json
from kinfolk.text.encoding import Offset, tidy
from kinfolk.text.families import flag, roles_of
from kinfolk.text.loading import read_settings
from kinfolk.text.sentencepiece import BYTE, MOST_BYTES, SentencePieceModel, parse_fields, parse_spiece, write_spiece
from kinfolk.text.tokenizer import SURROGATE
from kinfolk.text.validation import check_charsmap, numbered

MARIAN_ROLES = {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}
MODELS = ("source.spm", "target.spm")
KEPT = ("source_lang", "target_lang", "model_max_length", "separate_vocabs", "added_tokens_decoder")
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)
Part = tuple[int, str, bool]  # where it starts, its characters, is it one token?


class MarianTokenizer:
    """Texts of two languages to ids and back. Make one with `MarianTokenizer.load(folder)`."""

    def __init__(
        self, files: dict[str, bytes], vocabularies: list[dict[str, int]], settings: dict[str, Any], where: str
    ):
        """`files` are the two sentencepiece models by name, `vocabularies` the source's and the target's (or one)."""
        self._files, self._settings = files, settings
        self._source_ids, self._target_ids = vocabularies[0], vocabularies[-1]
        self.roles = MARIAN_ROLES | {role: token for role, token in roles_of(settings).items() if role in MARIAN_ROLES}
        specials = set(self.roles.values())
        for token in sorted(specials):
            if token not in self._source_ids or self._target_ids.get(token) != self._source_ids[token]:
                raise TokenizerError(f"{where}: the vocabulary lacks {token[:40]!r}, or two give it different ids")
        specials |= _further_specials(settings, self._source_ids, where)
        self._splitter = re.compile("|".join(map(re.escape, sorted(specials, key=len, reverse=True))))
        self._tokens = {number: token for token, number in self._target_ids.items()}
        self._silent = {self._source_ids[token] for token in specials}
        self.end_id, self.pad_id, self.unknown_id = (
            self._source_ids[self.roles[role]] for role in ("eos", "pad", "unk")
        )
        self.begin_id, self.source_unknown_id = self.pad_id, self.unknown_id
        self.source_size, self.target_size = (1 + max(ids.values()) for ids in (self._source_ids, self._target_ids))
        places = {name: f"{where}/{name}" for name in MODELS}
        engines = (Engine(parse_spiece(files[name], place), place) for name, place in places.items())
        self._source, self._target = engines

    @classmethod
    def load(cls, path: str | Path) -> MarianTokenizer:
        """Read source.spm, target.spm, vocab.json and the settings beside them."""
        folder = Path(path)
        try:
            settings = read_settings(folder)
            files = {name: read_bytes(inside(folder, name), MOST_BYTES) for name in MODELS}
            names = ["vocab.json", "target_vocab.json"] if flag(settings, "separate_vocabs", False) else ["vocab.json"]
            vocabularies = [numbered(read_object(inside(folder, name)), str(folder / name)) for name in names]
            return cls(files, vocabularies, settings, str(folder))
        except TokenizerError:
            raise
        except FolderError as error:
            raise TokenizerError(str(error)) from None
        except (OSError, ValueError) as error:  # a name that the system refuses, for one
            raise TokenizerError(f"{str(path)[:200]!r}: cannot be read ({error})") from None

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` and transformers' MarianTokenizer read with equal ids."""
        place = Path(folder)
        for name, content in self._files.items():
            write_bytes(place / name, content)
        write_json(place / "vocab.json", self._source_ids)
        if self._target_ids is not self._source_ids:
            write_json(place / "target_vocab.json", self._target_ids)
        settings = {name: self._settings[name] for name in KEPT if name in self._settings}
        roles = {f"{role}_token": token for role, token in self.roles.items()}
        write_json(place / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **roles, **settings})

    def encode_source(self, text: str) -> list[int]:
        """The ids of a text in the source language, the end included; a blank text has none."""
        ids = self._encode(text, self._source, self._source_ids)
        return [*ids, self.end_id] if ids else []

    def encode_target(self, text: str) -> list[int]:
        """The ids of a text in the target language, the end included."""
        return [*self._encode(text, self._target, self._target_ids), self.end_id]

    def source_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_source(text)`; the end is an empty place after the text."""
        offsets = self._offsets(text, self._source)
        return [*offsets, (len(text), len(text))] if offsets else []

    def target_offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each token of `encode_target(text)`; the end is an empty place after the text."""
        return [*self._offsets(text, self._target), (len(text), len(text))]

    def _offsets(self, text: str, engine: Engine) -> list[Offset]:
        offsets: list[Offset] = []
        for start, part, whole in self._parts(text):
            found = [(0, len(part))] if whole else engine.offsets(part)
            offsets += [(start + first, start + last) for first, last in found]
        return offsets

    def decode(self, ids: Iterable[int], unknown: str = "") -> str:
        """The text in the target language that ids stand for.

        Special tokens are left out, and unknown ones read as `unknown`.
        """
        numbers = (int(number) for number in ids)
        kept = (number for number in numbers if number not in self._silent or (unknown and number == self.unknown_id))
        pieces = (unknown if number == self.unknown_id else self._piece(number) for number in kept)
        return self._target.join(filter(None, pieces)).replace("▁", " ").strip()

    def _piece(self, number: int) -> str:
        if not 0 <= number < self.target_size:
            raise InputError(f"id {number} is outside the vocabulary (0 to {self.target_size - 1})")
        return self._tokens.get(number, "")

    def _encode(self, text: str, engine: Engine, known: dict[str, int]) -> list[int]:
        ids: list[int] = []
        for _, part, whole in self._parts(text):
            ids += [known.get(piece, self.unknown_id) for piece in ([part] if whole else engine.pieces(part))]
        return ids

    def _parts(self, text: str) -> Iterator[Part]:
        """A text cut at special tokens and behind the code of a language, as the reference does."""
        if not isinstance(text, str):
            raise InputError(f"expected a text, found {type(text).__name__} {str(text)[:40]!r}")
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


def _further_specials(settings: dict[str, Any], ids: dict[str, int], where: str) -> set[str]:
    """Tokens that the settings add to the roles'; they must be in the vocabulary."""
    listed = settings.get("added_tokens_decoder", {})
    if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
        raise TokenizerError(f"{where}: added_tokens_decoder is not a list of id -> token")
    added = [(entry.get("content"), number) for number, entry in listed.items()]
    added += [(token, str(number)) for token, number in settings.get("added_tokens", {}).items()]
    for token, number in added:
        if not isinstance(token, str) or not token or token not in ids or str(ids[token]) != number:
            raise TokenizerError(f"{where}: the added token {str(token)[:40]!r} is not in vocab.json with that id")
    return {token for token, _ in added}


BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
LONGEST_REPLACEMENT = 256  # bytes; Unicode's longest is 33
Result = TypeVar("Result")


class Engine:
    """Splits texts into pieces and joins pieces to texts, as the sentencepiece program does."""

    def __init__(self, model: SentencePieceModel, where: str):
        _check(model, where)
        self._where = where
        self._processor = sentencepiece.SentencePieceProcessor()
        self._guarded(lambda: self._processor.LoadFromSerializedProto(write_spiece(model)))

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text; what the model cannot spell appears in its own letters."""
        found: list[str] = self._guarded(lambda: self._processor.encode(text, out_type=str))
        return found

    def offsets(self, text: str) -> list[Offset]:
        """Characters (start, end) of each piece in the text, without blanks at their ends."""
        raw: bytes = self._guarded(lambda: self._processor.encode(text, out_type="serialized_proto"))
        found = [value for number, value in parse_fields(raw) if number == 2 and isinstance(value, bytes)]
        places, spans = _characters(text), []
        for piece in found:
            numbers = {number: value for number, value in parse_fields(piece) if isinstance(value, int)}
            spans.append((places[numbers.get(4, 0)], places[numbers.get(5, 0)]))
        return tidy(spans, [0] * len(spans), (text,))

    def join(self, pieces: Iterable[str]) -> str:
        """The text that pieces spell."""
        found: str = self._guarded(lambda: self._processor.decode_pieces(list(pieces)))
        return found

    def _guarded(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except (RuntimeError, ValueError, OSError) as error:
            raise TokenizerError(f"{self._where}: sentencepiece refuses it: {str(error)[:200]}") from None


def _check(model: SentencePieceModel, where: str) -> None:
    """Refuse what the program would stumble over."""
    texts = [piece.text for piece in model.pieces]
    if len(set(texts)) != len(texts):
        raise TokenizerError(f"{where}: a piece stands there twice; the file is damaged")
    strange = [piece.text for piece in model.pieces if "\0" in piece.text]
    strange += [piece.text for piece in model.pieces if piece.kind == BYTE and not BYTE_PIECE.fullmatch(piece.text)]
    if strange:
        raise TokenizerError(f"{where}: impossible piece {shorten_list(map(repr, strange))}; the file is damaged")
    if model.charsmap:
        check_charsmap(base64.b64encode(model.charsmap).decode(), where)
        replacements = model.charsmap[4 + int.from_bytes(model.charsmap[:4], "little") :].split(b"\0")
        if max(map(len, replacements)) > LONGEST_REPLACEMENT:
            raise TokenizerError(f"{where}: the normalisation table replaces letters by very long texts; refused")


def _characters(text: str) -> list[int]:
    """For each place in the UTF-8 bytes, the end included, the number of the character that it belongs to."""
    places = [number for number, letter in enumerate(text) for _ in letter.encode()]
    return [*places, len(text)]
