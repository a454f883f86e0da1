"""Long texts: cut into overlapping windows, and their vectors put together again.

Each token belongs to the one window in which it is most central, that is, farthest from an edge: there it has seen
most of its surroundings. A text's vector is the mean of its windows' vectors, weighted by how many tokens belong to
each.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from kinfolk.errors import InputError, TooLongError
from kinfolk.text.tokenizer import Encoding, Text, Tokenizer

ON_LONG = ("window", "cut", "error")
OVERLAP = 4  # neighbours share a quarter of a window


class CutWarning(UserWarning):
    """Texts were cut because the caller asked for it; says how many tokens were kept and dropped."""

    def __init__(self, texts: int, kept: int, dropped: int):
        self.texts, self.kept, self.dropped = texts, kept, dropped
        super().__init__(f"{texts:,} texts were cut: {kept:,} of their tokens kept, {dropped:,} dropped")


@dataclass(frozen=True, slots=True)
class Piece:
    """A text, or one window of it: `own` are the rows of its encoding that belong to it and to no other window."""

    text: int
    encoding: Encoding
    own: tuple[int, int]

    @property
    def weight(self) -> int:
        return self.own[1] - self.own[0]


@dataclass
class CutCount:
    """What was cut so far."""

    texts: int = 0
    kept: int = 0
    dropped: int = 0

    def report(self) -> None:
        """Warn, once for all texts."""
        if self.texts:
            warnings.warn(CutWarning(self.texts, self.kept, self.dropped), stacklevel=4)


def pieces(
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    size: int,
    on_long: str,
    cut: CutCount,
    first: int = 0,
    stride: int | None = None,
) -> list[Piece]:
    """Every text as one piece or, when it has more than `size` tokens, as its windows."""
    found: list[Piece] = []
    for number, (text, encoding) in enumerate(zip(texts, tokenizer.encode_many(texts), strict=True)):
        if len(encoding) == 0:
            raise InputError(
                f"text {first + number} has no tokens: it is empty, and the tokenizer adds no special ones"
            )
        if len(encoding) <= size:
            found.append(Piece(number, encoding, (0, len(encoding))))
        elif on_long == "window":
            try:
                found += window_pieces(tokenizer, text, number, size, stride)
            except InputError as error:  # a pair whose shorter text already fills the window
                raise InputError(f"text {first + number}: {error}") from None
        elif on_long == "cut":
            kept_encoding, kept, total = tokenizer.fit(text, size)
            cut.texts, cut.kept, cut.dropped = cut.texts + 1, cut.kept + kept, cut.dropped + total - kept
            found.append(Piece(number, kept_encoding, (0, len(kept_encoding))))
        else:
            raise TooLongError(
                f'text {first + number} has {len(encoding):,} tokens, the model reads {size:,}; use on_long="window"'
            )
    return found


def window_pieces(tokenizer: Tokenizer, text: Text, number: int, size: int, stride: int | None = None) -> list[Piece]:
    """The windows of one text, each with the rows that are its own; neighbours share `stride` tokens (or a quarter)."""
    room, moving = size - tokenizer.specials_count(isinstance(text, tuple)), 0
    if isinstance(text, tuple):  # the longer text moves through the windows, the shorter one is repeated in each
        lengths = [len(tokenizer.encode(part, specials=False)) for part in text]
        room, moving = room - min(lengths), int(lengths[1] >= lengths[0])
    overlap = max(room // OVERLAP, 0) if stride is None else stride
    windows = tokenizer.windows(text, size, overlap)
    found = []
    for place, window in enumerate(windows):
        rows = [row for row, side in enumerate(window.sequences) if side == moving]
        # Two neighbours share `overlap` tokens: the left one keeps the first half of them, the right one the rest.
        start = 0 if place == 0 else rows[0] + overlap // 2
        end = len(window) if place == len(windows) - 1 else rows[-1] + 1 - (overlap - overlap // 2)
        found.append(Piece(number, window, (start, end)))
    return found
