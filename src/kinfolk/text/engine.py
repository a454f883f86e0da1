"""sentencepiece's own program on a model that was vetted, for tokenizers whose reference runs it.

The program trusts its file: a damaged table or a strange piece can stop the process. So the file is read here first
(spiece.py), what could do harm is refused, and the program gets a model that is written anew from what was read:
nothing that this package does not know reaches it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import sentencepiece

from kinfolk.errors import TokenizerError, first_few
from kinfolk.text.charsmap import check_charsmap
from kinfolk.text.encoding import Offset, tidy
from kinfolk.text.spiece import BYTE, SentencePieceModel, parse_fields
from kinfolk.text.spiece_writing import write_spiece

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
        raise TokenizerError(f"{where}: impossible piece {first_few(map(repr, strange))}; the file is damaged")
    if model.charsmap:
        check_charsmap(base64.b64encode(model.charsmap).decode(), where)
        replacements = model.charsmap[4 + int.from_bytes(model.charsmap[:4], "little") :].split(b"\0")
        if max(map(len, replacements)) > LONGEST_REPLACEMENT:
            raise TokenizerError(f"{where}: the normalisation table replaces letters by very long texts; refused")


def _characters(text: str) -> list[int]:
    """For each place in the UTF-8 bytes, the end included, the number of the character that it belongs to."""
    places = [number for number, letter in enumerate(text) for _ in letter.encode()]
    return [*places, len(text)]
