"""Long texts: split into overlapping windows, each token owned by the one in which it is farthest from an edge.

There it has seen most of its context. A text's vector or score is the mean over its windows, weighted by how many
tokens belong to each. Training sees every window with the label of its text.

Of a pair the longer text moves through the windows, and each repeats the shorter one. Where that would leave the longer
one less than an eighth of the room, on_long="shorten" keeps the beginning of the shorter one, half of the room, and
counts what is dropped; otherwise such a pair is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from kinfolk.errors import ConfigError, InputError, TooLongError, check_int, type_name, warn
from kinfolk.text.encoding import Slot, TemplateEncoding
from kinfolk.text.tokenizer import Encoding, Text, Tokenizer

ON_LONG = ("window", "cut", "error")
OVERLAP = 4  # neighbours share a quarter of a window
LEAST = 8  # the longer text of a pair has an eighth of the room, or more
Location = Callable[[int], str]  # where a text stands, for a message


class CutWarning(UserWarning):
    """Texts were truncated; says how many tokens were kept and dropped."""

    def __init__(self, texts: int, kept: int, dropped: int):
        self.texts, self.kept, self.dropped = texts, kept, dropped
        subject, whose = ("1 text was", "its") if texts == 1 else (f"{texts:,} texts were", "their")
        super().__init__(f"{subject} cut: {kept:,} of {whose} tokens kept, {dropped:,} dropped")


@dataclass
class CutCount:
    """What was truncated so far, and whether a warning about the form of texts was given."""

    texts: int = 0
    kept: int = 0
    dropped: int = 0
    warned_of_form: bool = False

    def add(self, kept: int, dropped: int) -> None:
        self.texts, self.kept, self.dropped = self.texts + 1, self.kept + kept, self.dropped + dropped

    def report(self) -> None:
        """Warn, once for all texts."""
        if self.texts:
            warn(CutWarning(self.texts, self.kept, self.dropped))


class TokenCounts:
    """Lengths and unknown tokens of whole texts and pairs, counted as they are encoded."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.lengths: list[int] = []  # special tokens included
        self.subwords = 0  # without them
        self.unknown = 0

    def add(self, encoding: Encoding, pair: bool) -> None:
        self.lengths.append(len(encoding))
        self.subwords += len(encoding) - self.tokenizer.special_tokens_count(pair)
        if self.tokenizer.unk_id is not None:
            self.unknown += encoding.ids.count(self.tokenizer.unk_id)


@dataclass(frozen=True)
class Windows:
    """How long texts are read: `window` tokens at once, neighbours sharing `stride` of them.

    Without a window as many as the model reads; without a stride a quarter of what fits.
    """

    window: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.to_hf().items():
            check_int(name, value, int(name == "window"))

    def size(self, context: int, specials: int) -> int:
        """Tokens of a window, for a model that reads `context` at once, `specials` of them special ones."""
        size = context if self.window is None else self.window
        if size > context:
            raise InputError(f"window={size} is more than the {context} tokens that the model reads at once")
        if size <= specials:
            raise InputError(f"window={size} leaves no room for text beside {specials} special tokens")
        if self.stride is not None and self.stride >= size - specials:
            raise InputError(f"stride={self.stride} leaves nothing new in a window of {size - specials} tokens of text")
        return size

    def split(
        self,
        tokenizer: Tokenizer,
        texts: Sequence[Text],
        context: int,
        location: Location,
        cut: CutCount,
        counts: TokenCounts | None = None,
        pair: bool = False,
    ) -> list[TextWindow]:
        """Texts for a model that reads `context` tokens at once; of a pair of two long ones the shorter may be cut."""
        size = self.size(context, tokenizer.special_tokens_count(pair))
        return split_texts(tokenizer, texts, size, "shorten", cut, location, self.stride, counts)

    def to_hf(self) -> dict[str, Any]:
        """What config.json keeps of it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, Any]) -> Self:
        """What a saved model was trained with."""
        try:
            return cls(hf_config.get("window"), hf_config.get("stride"))
        except InputError as error:
            raise ConfigError(f"config.json: {error}") from None


DEFAULT_WINDOWS = Windows()


def check_text(text: object, location: str) -> Text:
    """`text` if it is one, or a pair of them, else an InputError that says where it stands."""
    parts = text if isinstance(text, tuple) and len(text) == 2 else (text,)
    if all(isinstance(part, str) for part in parts):
        return text  # type: ignore[return-value]
    kind = "a tuple that is not a pair of texts" if isinstance(text, tuple) else type_name(text)
    raise InputError(f"{location} is {kind} ({str(text)[:40]!r}); expected a string, or a tuple of two")


@dataclass(frozen=True, slots=True)
class TextWindow:
    """A text, or one window of it: `own` are the rows of its encoding that belong to it and to no other window."""

    text: int
    encoding: Encoding
    own: tuple[int, int]

    @property
    def weight(self) -> int:
        return self.own[1] - self.own[0]


def split_texts(
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    size: int,
    on_long: str,
    cut: CutCount,
    location: Location = "text {}".format,
    stride: int | None = None,
    counts: TokenCounts | None = None,
) -> list[TextWindow]:
    """Every text as one window or, when it has more than `size` tokens, as several; `counts` hears of whole texts.

    A text without any tokens is read as the end of one.
    """
    windows: list[TextWindow] = []
    for index, (text, encoding) in enumerate(zip(texts, tokenizer.encode_many(texts), strict=True)):
        if counts is not None:
            counts.add(encoding, isinstance(text, tuple))
        if len(encoding) == 0:
            encoding = _end_alone(tokenizer, location(index))
        if len(encoding) > size and on_long in ("window", "shorten"):
            try:
                windows += split_text(tokenizer, text, index, size, stride, cut if on_long == "shorten" else None)
            except InputError as error:  # a pair whose shorter text fills the window, or a stride that does
                raise InputError(f"{location(index)}: {error}") from None
            continue
        if len(encoding) > size and on_long != "cut":
            advice = 'on_long="window" reads long texts in windows, "cut" reads their beginning'
            raise TooLongError(f"{location(index)} has {len(encoding):,} tokens, the model reads {size:,}; {advice}")
        if len(encoding) > size:
            encoding, kept, total = tokenizer.truncate(text, size)
            cut.add(kept, total - kept)
        windows.append(TextWindow(index, encoding, (0, len(encoding))))
    return windows


def _end_alone(tokenizer: Tokenizer, location: str) -> Encoding:
    """An empty text, where no special tokens stand around texts: the token that ends them (or begins them)."""
    end = tokenizer.bos_id if tokenizer.eos_id is None else tokenizer.eos_id
    if end is None:
        raise InputError(f"{location} has no tokens: it is empty, and the tokenizer has none that ends a text")
    return Encoding(TemplateEncoding([Slot(0, None, end, tokenizer.id_to_token(end))], [], []))


def split_text(
    tokenizer: Tokenizer, text: Text, index: int, size: int, stride: int | None = None, cut: CutCount | None = None
) -> list[TextWindow]:
    """The windows of one text, each with the rows that are its own; neighbours share `stride` tokens (or a quarter).

    With `cut`, the shorter text of a pair may be truncated.
    """
    room, moving, kept = size - tokenizer.special_tokens_count(isinstance(text, tuple)), 0, None
    if isinstance(text, tuple):
        lengths = [len(tokenizer.encode(part, add_special_tokens=False)) for part in text]
        moving, shorter = int(lengths[1] >= lengths[0]), min(lengths)
        kept = shorter  # repeated by each window
        if cut is not None and room - shorter < max(room // LEAST, 1):
            kept = room // 2
            cut.add(max(lengths) + kept, shorter - kept)
        elif shorter >= room:
            fits = f"a window has room for {max(room, 0):,} of both"
            advice = 'shorten it, or use on_long="cut"'
            raise InputError(f"the shorter text of the pair has {shorter:,} tokens, and {fits}; {advice}")
        room -= kept
        stride = stride if stride is None else min(stride, room // 2)
    overlap = max(room // OVERLAP, 0) if stride is None else stride
    encodings = tokenizer.windows(text, size, overlap, kept)
    windows = []
    for position, encoding in enumerate(encodings):
        rows = [row for row, side in enumerate(encoding.sequence_ids) if side == moving]
        # Two neighbours share `overlap` tokens: the left one keeps the first half of them, the right one the rest.
        start = 0 if position == 0 else rows[0] + overlap // 2
        last = position == len(encodings) - 1
        end = len(encoding) if last else rows[-1] + 1 - (overlap - overlap // 2)
        windows.append(TextWindow(index, encoding, (start, end)))
    return windows
