"""Long texts: split into overlapping windows, and the scores of the windows combined again.

Each token belongs to the one window in which it is most central, that is, farthest from an edge: there it has seen
most of its context. A text's vector or score is the mean over its windows, weighted by how many tokens belong to each.
Training sees every window with the label of its text.

Of a pair the longer text moves through the windows, and each repeats the shorter one. Where that would leave the longer
one less than an eighth of the room, `shorten` keeps the beginning of the shorter one, half of the room, and counts what
is dropped; without it such a pair is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from kinfolk.data.batching import BATCH_TOKENS, token_batches
from kinfolk.errors import ConfigError, InputError, TooLongError, check_int, type_name, warn
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Batch, Objective, Sample
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
        """One more text."""
        self.texts, self.kept, self.dropped = self.texts + 1, self.kept + kept, self.dropped + dropped

    def report(self) -> None:
        """Warn, once for all texts."""
        if self.texts:
            warn(CutWarning(self.texts, self.kept, self.dropped))


@dataclass(frozen=True)
class Windows:
    """How long texts are read: `window` tokens at once, neighbours sharing `stride` of them.

    Without a window as many as the model reads; without a stride a quarter of what fits.
    """

    window: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None:
            check_int("window", self.window)
        if self.stride is not None:
            check_int("stride", self.stride, 0)

    def size(self, context: int, specials: int) -> int:
        """Tokens of a window, for a model that reads `context` at once, `specials` of them special ones."""
        if self.window is not None and self.window > context:
            raise InputError(f"window={self.window} is more than the {context} tokens that the model reads at once")
        size = context if self.window is None else self.window
        if size <= specials:
            raise InputError(f"window={size} leaves no room for text beside {specials} special tokens")
        if self.stride is not None and self.stride >= size - specials:
            raise InputError(f"stride={self.stride} leaves nothing new in a window of {size - specials} tokens of text")
        return size

    def to_hf(self) -> dict[str, Any]:
        """What config.json keeps of it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, Any]) -> Self:
        """What a saved model was trained with."""
        values = {name: hf_config.get(name) for name in ("window", "stride")}
        for name, value in values.items():
            if value is not None and not (type(value) is int and value >= 0):
                raise ConfigError(f"config.json: {name} is not a number of tokens")
        return cls(**values)


DEFAULT_WINDOWS = Windows()


def check_text(text: object, location: str) -> Text:
    """`text` if it is one, or a pair of them, else an InputError that says where it stands."""
    if isinstance(text, str):
        return text
    if isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text):
        return text
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
    shorten: bool = False,
) -> list[TextWindow]:
    """Every text as one window or, when it has more than `size` tokens, as several."""
    windows: list[TextWindow] = []
    for index, (text, encoding) in enumerate(zip(texts, tokenizer.encode_many(texts), strict=True)):
        if len(encoding) == 0:
            raise InputError(f"{location(index)} has no tokens: it is empty, and the tokenizer adds no special ones")
        if len(encoding) <= size:
            windows.append(TextWindow(index, encoding, (0, len(encoding))))
        elif on_long == "window":
            try:
                windows += split_text(tokenizer, text, index, size, stride, cut if shorten else None)
            except InputError as error:  # a pair whose shorter text fills the window, or a stride that does
                raise InputError(f"{location(index)}: {error}") from None
        elif on_long == "cut":
            kept_encoding, kept, total = tokenizer.truncate(text, size)
            cut.add(kept, total - kept)
            windows.append(TextWindow(index, kept_encoding, (0, len(kept_encoding))))
        else:
            raise TooLongError(
                f'{location(index)} has {len(encoding):,} tokens, the model reads {size:,}; on_long="window" reads '
                'long texts in windows, "cut" reads their beginning'
            )
    return windows


def split_text(
    tokenizer: Tokenizer, text: Text, index: int, size: int, stride: int | None = None, cut: CutCount | None = None
) -> list[TextWindow]:
    """The windows of one text, each with the rows that are its own; neighbours share `stride` tokens (or a quarter).

    With `cut`, the shorter text of a pair may be truncated.
    """
    room, moving, kept = size - tokenizer.special_tokens_count(isinstance(text, tuple)), 0, None
    if isinstance(text, tuple):
        lengths = [len(tokenizer.encode(part, add_special_tokens=False)) for part in text]
        moving = int(lengths[1] >= lengths[0])
        kept = _repeated(min(lengths), room, cut is not None)
        if cut is not None and kept < min(lengths):
            cut.add(max(lengths) + kept, min(lengths) - kept)
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


def _repeated(shorter: int, room: int, may_cut: bool) -> int:
    """How many tokens of a pair's shorter text each window repeats."""
    if may_cut and room - shorter < max(room // LEAST, 1):
        return room // 2
    if shorter >= room:
        raise InputError(
            f"the shorter text of the pair has {shorter:,} tokens, and a window has room for {max(room, 0):,} of both; "
            'shorten it, or use on_long="cut"'
        )
    return shorter


@dataclass(frozen=True)
class TextSamples:
    """Samples of some texts, with each sample's weight in the scores of its text."""

    samples: list[Sample]
    weights: list[int]
    texts: int


def text_samples(
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    targets: Sequence[Any],
    size: int,
    stride: int | None,
    cut: CutCount,
    location: Location,
) -> TextSamples:
    """One sample per text or, where it is longer than `size` tokens, per window; neighbours share `stride` tokens."""
    windows = split_texts(tokenizer, texts, size, "window", cut, location, stride, shorten=True)
    samples = [Sample(each.encoding.ids, each.encoding.segments, targets[each.text], each.text) for each in windows]
    return TextSamples(samples, [each.weight for each in windows], len(texts))


def batch_scores(
    model: Model, objective: Objective, samples: Sequence[Sample]
) -> Iterator[tuple[list[int], Batch, Tensor]]:
    """The indices of the samples in each batch, the batch, and the scores of its head."""
    for indices in token_batches([len(sample) for sample in samples], BATCH_TOKENS):
        with torch.inference_mode():
            batch = objective.prepare([samples[index] for index in indices], model.device)
            scores = objective.scores(model, batch).float().cpu()
        yield indices, batch, scores


def score_samples(model: Model, objective: Objective, data: TextSamples) -> np.ndarray:
    """(texts, labels): the mean over each text's windows, in the order of the texts."""
    rows: list[np.ndarray] = [np.empty(0)] * len(data.samples)
    for indices, _, scores in batch_scores(model, objective, data.samples):
        for index, row in zip(indices, scores.numpy(), strict=True):
            rows[index] = row
    owners = np.array([sample.example for sample in data.samples])
    weights = np.array(data.weights, dtype=np.float32)[:, None]
    totals = np.zeros((data.texts, len(rows[0])), dtype=np.float32)
    shares = np.zeros((data.texts, 1), dtype=np.float32)
    np.add.at(totals, owners, np.stack(rows) * weights)
    np.add.at(shares, owners, weights)
    return totals / shares
