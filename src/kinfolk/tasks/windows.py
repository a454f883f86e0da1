"""Long texts: cut into overlapping windows, and their vectors put together again.

Each token belongs to the one window in which it is most central, that is, farthest from an edge: there it has seen
most of its surroundings. A text's vector is the mean of its windows' vectors, weighted by how many tokens belong to
each.

Of a pair the longer text moves through the windows, and each repeats the shorter one. Where that would leave the longer
one less than an eighth of the room, `shorten` keeps the beginning of the shorter one, half of the room, and counts what
is dropped; without it such a pair is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kinfolk.errors import InputError, TooLongError, warn
from kinfolk.text.tokenizer import Encoding, Text, Tokenizer

ON_LONG = ("window", "cut", "error")
OVERLAP = 4  # neighbours share a quarter of a window
LEAST = 8  # the longer text of a pair has an eighth of the room, or more


class CutWarning(UserWarning):
    """Texts were cut because the caller asked for it; says how many tokens were kept and dropped."""

    def __init__(self, texts: int, kept: int, dropped: int):
        self.texts, self.kept, self.dropped = texts, kept, dropped
        told, whose = ("1 text was", "its") if texts == 1 else (f"{texts:,} texts were", "their")
        super().__init__(f"{told} cut: {kept:,} of {whose} tokens kept, {dropped:,} dropped")


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
    """What was cut so far, and whether texts of another form than the model's were told of."""

    texts: int = 0
    kept: int = 0
    dropped: int = 0
    other_form: bool = False

    def add(self, kept: int, dropped: int) -> None:
        """One more text."""
        self.texts, self.kept, self.dropped = self.texts + 1, self.kept + kept, self.dropped + dropped

    def report(self) -> None:
        """Warn, once for all texts."""
        if self.texts:
            warn(CutWarning(self.texts, self.kept, self.dropped))


def pieces(
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    size: int,
    on_long: str,
    cut: CutCount,
    place: Callable[[int], str] = "text {}".format,
    stride: int | None = None,
    shorten: bool = False,
) -> list[Piece]:
    """Every text as one piece or, when it has more than `size` tokens, as its windows.

    `place` says where a text stands, for a message. `shorten` is told above.
    """
    found: list[Piece] = []
    for number, (text, encoding) in enumerate(zip(texts, tokenizer.encode_many(texts), strict=True)):
        if len(encoding) == 0:
            raise InputError(f"{place(number)} has no tokens: it is empty, and the tokenizer adds no special ones")
        if len(encoding) <= size:
            found.append(Piece(number, encoding, (0, len(encoding))))
        elif on_long == "window":
            try:
                found += window_pieces(tokenizer, text, number, size, stride, cut if shorten else None)
            except InputError as error:  # a pair whose shorter text fills the window, or a stride that does
                raise InputError(f"{place(number)}: {error}") from None
        elif on_long == "cut":
            kept_encoding, kept, total = tokenizer.truncate(text, size)
            cut.add(kept, total - kept)
            found.append(Piece(number, kept_encoding, (0, len(kept_encoding))))
        else:
            raise TooLongError(
                f'{place(number)} has {len(encoding):,} tokens, the model reads {size:,}; on_long="window" reads long '
                'texts in windows, "cut" reads their beginning'
            )
    return found


def window_pieces(
    tokenizer: Tokenizer, text: Text, number: int, size: int, stride: int | None = None, cut: CutCount | None = None
) -> list[Piece]:
    """The windows of one text, each with the rows that are its own; neighbours share `stride` tokens (or a quarter).

    With `cut`, the shorter text of a pair may be cut.
    """
    room, moving, kept = size - tokenizer.special_tokens_count(isinstance(text, tuple)), 0, None
    if isinstance(text, tuple):
        lengths = [len(tokenizer.encode(part, add_special_tokens=False)) for part in text]
        moving = int(lengths[1] >= lengths[0])
        kept = _kept(min(lengths), room, cut is not None)
        if cut is not None and kept < min(lengths):
            cut.add(max(lengths) + kept, min(lengths) - kept)
        room -= kept
        stride = stride if stride is None else min(stride, room // 2)
    overlap = max(room // OVERLAP, 0) if stride is None else stride
    windows = tokenizer.windows(text, size, overlap, kept)
    found = []
    for place, window in enumerate(windows):
        rows = [row for row, side in enumerate(window.sequence_ids) if side == moving]
        # Two neighbours share `overlap` tokens: the left one keeps the first half of them, the right one the rest.
        start = 0 if place == 0 else rows[0] + overlap // 2
        end = len(window) if place == len(windows) - 1 else rows[-1] + 1 - (overlap - overlap // 2)
        found.append(Piece(number, window, (start, end)))
    return found


def _kept(shorter: int, room: int, may_cut: bool) -> int:
    """How many tokens of a pair's shorter text each window repeats."""
    if may_cut and room - shorter < max(room // LEAST, 1):
        return room // 2
    if shorter >= room:
        raise InputError(
            f"the shorter text of the pair has {shorter:,} tokens, and a window has room for {max(room, 0):,} of both; "
            'shorten it, or use on_long="cut"'
        )
    return shorter
