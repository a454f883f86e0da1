"""Reads sentencepiece's model file: its pieces with scores and kinds, and how it normalises text.

The file is a protocol-buffer message, a list of numbered fields. The few we need are read here directly: the
sentencepiece package does not show the normalisation table, its message classes need a further package, and its C++
reader is not made for damaged files. Field numbers are those of sentencepiece_model.proto.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kinfolk.errors import TokenizerError
from kinfolk.files import read_bytes
from kinfolk.text.vocabulary import LONGEST_TOKEN, MOST_TOKENS

UNIGRAM, BPE = 1, 2  # trainer_spec.model_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # kinds of pieces
MOST_BYTES = 64 * 2**20


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
    adds_blank: bool
    removes_blanks: bool
    byte_fallback: bool
    blank_behind: bool = False  # a word's blank is at its end
    shows_blanks: bool = True  # as ▁


def read_spiece(path: Path) -> SentencePieceModel:
    """The model in a file, or a TokenizerError when it is not one."""
    return parse_spiece(read_bytes(path, MOST_BYTES), str(path))


def parse_spiece(content: bytes, where: str) -> SentencePieceModel:
    """The model in the bytes of a file."""
    try:
        return _model(content, where)
    except (ValueError, IndexError, struct.error):
        raise TokenizerError(f"{where}: not a sentencepiece model, or damaged") from None


def _model(content: bytes, where: str) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normaliser: dict[int, int | bytes] = {}
    for number, value in parse_fields(content):
        if number == 1:
            pieces.append(_piece(_message(value)))
        elif number == 2:
            trainer = dict(parse_fields(_message(value)))
        elif number == 3:
            normaliser = dict(parse_fields(_message(value)))
    if not 0 < len(pieces) <= MOST_TOKENS:
        raise TokenizerError(f"{where}: not a sentencepiece model (no pieces)")
    unknown = [number for number, piece in enumerate(pieces) if piece.kind == UNKNOWN]
    kind = _integer(trainer.get(3, UNIGRAM))
    if kind not in (UNIGRAM, BPE) or len(unknown) != 1:
        raise TokenizerError(f"{where}: only unigram and BPE models with one unknown piece can be read")
    return SentencePieceModel(
        tuple(pieces),
        kind,
        unknown[0],
        _message(normaliser.get(2, b"")),
        adds_blank=bool(_integer(normaliser.get(3, 1))),
        removes_blanks=bool(_integer(normaliser.get(4, 1))),
        byte_fallback=bool(_integer(trainer.get(35, 0))),
        blank_behind=bool(_integer(trainer.get(24, 0))),
        shows_blanks=bool(_integer(normaliser.get(5, 1))),
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
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _varint(content, place)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(content, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("unknown wire type")
        if place + size > len(content) or number == 0:
            raise ValueError("field runs past the end")
        yield number, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("number too long")


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("expected bytes")
    return value


def _integer(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("expected a number")
    return value
