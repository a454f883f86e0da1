"""Reads and writes sentencepiece's model file: its pieces with scores and kinds, and how it normalizes text.

The file is a protocol-buffer message, a list of numbered fields. The few we need are read here directly: the
sentencepiece package does not show the normalization table, its message classes need another package, and its C++
reader is not made for damaged files. Field numbers are those of sentencepiece_model.proto.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kinfolk.errors import TokenizerError
from kinfolk.text.components import LONGEST_TOKEN, MAX_TOKENS

UNIGRAM, BPE = 1, 2  # trainer_spec.model_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # kinds of pieces
MAX_MODEL_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary."""

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
    adds_space: bool
    removes_spaces: bool
    byte_fallback: bool
    space_after: bool = False  # a word owns the space after it, not before
    escapes_spaces: bool = True  # as ▁


def parse_spiece(content: bytes, location: str) -> SentencePieceModel:
    """The model in the bytes of a file."""
    try:
        return _model(content, location)
    except (ValueError, IndexError, struct.error):
        raise TokenizerError(f"{location}: not a sentencepiece model, or damaged") from None


def _model(content: bytes, location: str) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for field, value in parse_fields(content):
        if field == 1:
            pieces.append(_piece(_message(value)))
        elif field == 2:
            trainer = dict(parse_fields(_message(value)))
        elif field == 3:
            normalizer = dict(parse_fields(_message(value)))
    if not 0 < len(pieces) <= MAX_TOKENS:
        raise TokenizerError(f"{location}: not a sentencepiece model (no pieces)")
    unknown = [id for id, piece in enumerate(pieces) if piece.kind == UNKNOWN]
    kind = _integer(trainer.get(3, UNIGRAM))
    if kind not in (UNIGRAM, BPE) or len(unknown) != 1:
        raise TokenizerError(f"{location}: only unigram and BPE models with one unknown piece can be read")
    return SentencePieceModel(
        tuple(pieces),
        kind,
        unknown[0],
        _message(normalizer.get(2, b"")),
        adds_space=bool(_integer(normalizer.get(3, 1))),
        removes_spaces=bool(_integer(normalizer.get(4, 1))),
        byte_fallback=bool(_integer(trainer.get(35, 0))),
        space_after=bool(_integer(trainer.get(24, 0))),
        escapes_spaces=bool(_integer(normalizer.get(5, 1))),
    )


def _piece(content: bytes) -> Piece:
    fields = dict(parse_fields(content))
    text = _message(fields.get(1, b"")).decode()
    (score,) = struct.unpack("<f", _message(fields.get(2, b"\0\0\0\0")))
    kind = _integer(fields.get(3, NORMAL))
    if not 0 < len(text) <= LONGEST_TOKEN or not math.isfinite(score) or not NORMAL <= kind <= BYTE:
        raise ValueError("impossible piece")
    return Piece(text, score, kind)


def parse_fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: integers for varints, bytes for the rest."""
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
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("unknown wire type")
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


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("expected bytes")
    return value


def _integer(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("expected a number")
    return value


def write_spiece(model: SentencePieceModel) -> bytes:
    """The model as a sentencepiece file."""
    trainer = _number(3, model.kind) + _number(24, model.space_after) + _number(35, model.byte_fallback)
    normalizer = _bytes(2, model.charsmap) + _number(3, model.adds_space) + _number(4, model.removes_spaces)
    normalizer += _number(5, model.escapes_spaces)
    return (
        b"".join(_bytes(1, _piece_message(piece)) for piece in model.pieces)
        + _bytes(2, trainer)
        + _bytes(3, normalizer)
    )


def _piece_message(piece: Piece) -> bytes:
    return _bytes(1, piece.text.encode()) + b"\x15" + struct.pack("<f", piece.score) + _number(3, piece.kind)


def _bytes(field: int, content: bytes) -> bytes:
    return _write_varint(field << 3 | 2) + _write_varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _write_varint(field << 3) + _write_varint(int(value))


def _write_varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


UNKNOWN_PIECE = _bytes(1, _piece_message(Piece("<unk>", kind=UNKNOWN)))  # a file of rules alone has none
