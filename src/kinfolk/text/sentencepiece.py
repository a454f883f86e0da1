"""sentencepiece's model file: its pieces with scores and kinds, and how it normalizes text; read, written, taken over.

The file is a protocol-buffer message, a list of numbered fields. The few we need are read here directly: the
sentencepiece package does not show the normalization table, its message classes need another package, and its C++
reader is not made for damaged files. Field numbers are those of sentencepiece_model.proto.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kinfolk.errors import TokenizerError
from kinfolk.files import read_bytes
from kinfolk.text import families
from kinfolk.text.families import Recipe, TokenizerSource, flag
from kinfolk.text.validation import LONGEST_TOKEN, MAX_TOKENS

UNIGRAM, BPE = 1, 2  # trainer_spec.model_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # kinds of pieces
PIECE, TRAINER, NORMALIZER = 1, 2, 3  # messages of a model, by their field
FLAGS = {  # name: message, field, default
    "space_after": (TRAINER, 24, 0),
    "byte_fallback": (TRAINER, 35, 0),
    "adds_space": (NORMALIZER, 3, 1),
    "removes_spaces": (NORMALIZER, 4, 1),
    "escapes_spaces": (NORMALIZER, 5, 1),
}
MAX_MODEL_BYTES = 64 * 2**20
Value = TypeVar("Value", int, bytes)


class Piece(NamedTuple):
    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """What a spiece.model says, as far as tokenising needs it."""

    pieces: tuple[Piece, ...]
    kind: int
    unknown: int
    charsmap: bytes
    adds_space: bool = True
    removes_spaces: bool = True
    byte_fallback: bool = False
    space_after: bool = False  # a word owns the space after it, not before
    escapes_spaces: bool = True  # as ▁

    def vocabulary(self, location: str) -> dict[str, int]:
        """Piece -> id; the file is damaged where two pieces are the same."""
        tokens = {piece.text: id for id, piece in enumerate(self.pieces)}
        if len(tokens) != len(self.pieces):
            raise TokenizerError(f"{location}: duplicate piece; the file is damaged")
        return tokens


def parse_spiece(content: bytes, location: str) -> SentencePieceModel:
    pieces: list[Piece] = []
    messages: dict[int, dict[int, int | bytes]] = {TRAINER: {}, NORMALIZER: {}}
    try:
        for field, value in parse_fields(content):
            if field == PIECE:
                fields = dict(parse_fields(value))
                text, kind = get_field(fields, 1, b"").decode(), get_field(fields, 3, NORMAL)
                (score,) = struct.unpack("<f", get_field(fields, 2, b"\0\0\0\0"))
                if not 0 < len(text) <= LONGEST_TOKEN or not math.isfinite(score) or not NORMAL <= kind <= BYTE:
                    raise ValueError("impossible piece")
                pieces.append(Piece(text, score, kind))
            elif field in messages:
                messages[field] = dict(parse_fields(value))
        unknown = [id for id, piece in enumerate(pieces) if piece.kind == UNKNOWN]
        kind, charsmap = get_field(messages[TRAINER], 3, UNIGRAM), get_field(messages[NORMALIZER], 2, b"")
        flags = {name: bool(get_field(messages[part], field, on)) for name, (part, field, on) in FLAGS.items()}
    except (ValueError, IndexError, struct.error):
        raise TokenizerError(f"{location}: not a sentencepiece model, or damaged") from None
    if not 0 < len(pieces) <= MAX_TOKENS:
        raise TokenizerError(f"{location}: not a sentencepiece model (no pieces)")
    if kind not in (UNIGRAM, BPE) or len(unknown) != 1:
        raise TokenizerError(f"{location}: only unigram and BPE models with one unknown piece can be read")
    return SentencePieceModel(tuple(pieces), kind, unknown[0], charsmap, **flags)


def get_field(fields: Mapping[int, int | bytes], field: int, default: Value) -> Value:
    """A field of a message, of the type of its default."""
    value = fields.get(field, default)
    if not isinstance(value, type(default)):
        raise ValueError("a field of another type")
    return value


def parse_fields(content: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: integers for varints, bytes for the rest."""
    if isinstance(content, int):
        raise ValueError("a number in place of a message")
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(content, position)
            yield field, value
            continue
        if wire == 2:
            size, position = _varint(content, position)
        else:
            size = {1: 8, 5: 4}.get(wire, len(content))  # other types are unknown
        if position + size > len(content) or field == 0:
            raise ValueError("field runs past the end")
        yield field, content[position : position + size]
        position += size


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("number too long")


def write_spiece(model: SentencePieceModel) -> bytes:
    messages: dict[int, dict[int, Any]] = {TRAINER: {3: model.kind}, NORMALIZER: {2: model.charsmap}}
    for name, (part, field, _) in FLAGS.items():
        messages[part][field] = getattr(model, name)
    pieces = (_message({1: piece.text.encode(), 2: piece.score, 3: piece.kind}) for piece in model.pieces)
    settings = {part: _message(fields) for part, fields in messages.items()}
    return b"".join(_message({PIECE: piece}) for piece in pieces) + _message(settings)


def _message(fields: Mapping[int, bytes | float | int]) -> bytes:
    message = b""
    for field, value in fields.items():
        if isinstance(value, bytes):
            message += _write_varint(field << 3 | 2) + _write_varint(len(value)) + value
        elif isinstance(value, float):
            message += _write_varint(field << 3 | 5) + struct.pack("<f", value)
        else:
            message += _write_varint(field << 3) + _write_varint(value)
    return message


def _write_varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + _write_varint(value >> 7) if value > 127 else bytes([value])


def read_spiece(file: Path, settings: dict[str, Any], family: str | None) -> TokenizerSource:
    """A sentencepiece file as a tokenizer, with the special tokens and templates of its family."""
    location = str(file)
    model_file = parse_spiece(read_bytes(file, MAX_MODEL_BYTES), location)
    tokens = model_file.vocabulary(location)
    guess = "albert" if "[CLS]" in tokens else "xlnet" if "<cls>" in tokens else "sentencepiece"
    recipe = families.recipe_for(family, guess)
    if recipe.roberta or recipe.word_suffix:
        raise TokenizerError(f"{location}: {family} is not read from a sentencepiece file; it needs a tokenizer.json")
    if recipe is families.RECIPES["sentencepiece"]:
        present = {role: token for role, token in recipe.roles.items() if token in tokens}
        recipe = replace(recipe, roles={**present, "unk": model_file.pieces[model_file.unknown].text})
    extra = [  # matched in a text before anything else
        families.added_token(id, piece.text, special=piece.kind == CONTROL)
        for id, piece in enumerate(model_file.pieces)
        if piece.kind in (CONTROL, USER_DEFINED)
    ]
    model, parts = spiece_model(model_file, tokens), spiece_parts(model_file, recipe, settings)
    return families.assemble(model, parts, recipe, settings, location, extra)


def spiece_model(model_file: SentencePieceModel, tokens: dict[str, int]) -> dict[str, Any]:
    fallback = {"byte_fallback": model_file.byte_fallback}
    if model_file.kind != BPE:
        scored = [[piece.text, piece.score] for piece in model_file.pieces]
        return {"type": "Unigram", "unk_id": model_file.unknown, "vocab": scored} | fallback
    # sentencepiece stores no merges: a piece may be made of any two others, and earlier pieces win
    merges = []
    for piece, id in tokens.items():
        halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        merges += [(id, len(one), one, two) for one, two in halves if one in tokens and two in tokens]
    ordered = [[one, two] for *_, one, two in sorted(merges)]
    return families.bpe_model(tokens, ordered, model_file.pieces[model_file.unknown].text, fuse=True) | fallback


def spiece_parts(model_file: SentencePieceModel, recipe: Recipe, settings: dict[str, Any]) -> dict[str, Any]:
    """ALBERT and XLNet unify quotes and strip accents before sentencepiece's own table; other models do not."""
    steps: list[dict[str, Any]] = []
    if recipe.quotes:
        steps += [{"type": "Replace", "pattern": {"String": quote}, "content": '"'} for quote in ("``", "''")]
        if recipe.strip_accents or not flag(settings, "keep_accents", False):
            steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if flag(settings, "do_lower_case", recipe.lowercase):
        steps.append({"type": "Lowercase"})
    if model_file.charsmap:
        table = base64.b64encode(model_file.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    return families.metaspace_parts(steps, model_file.adds_space, model_file.removes_spaces)
