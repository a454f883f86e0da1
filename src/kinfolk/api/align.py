"""Which source words a model looked at when it wrote each target word: attention, read off and put into words.

One pass with teacher forcing: row t of the weights belongs to the step that writes token t. Words are pieces that
follow each other without a blank or a mark between them; characters of scripts without blanks stay alone. A word's
weight on the source is the sum over its pieces, in the target their mean, so that every row still sums to one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from kinfolk.data.summary import UNSPACED
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.nn.packed import pack
from kinfolk.nn.trace import PairTrace
from kinfolk.text.encoding import Offset

END, BLANK, UNKNOWN = "<end>", "▁", "\ufffd"
UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True, eq=False)
class Alignment:
    """Source and target, as words or pieces, and who looked at whom: `weights` is (layers, heads, target, source).

    The last of each side is the end of the text; its offset is an empty place.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray
    source_offsets: list[Offset]
    target_offsets: list[Offset]
    source_text: str
    target_text: str

    @property
    def layers(self) -> int:
        return int(self.weights.shape[0])

    @property
    def heads(self) -> int:
        return int(self.weights.shape[1])

    def matrix(self, layer: int | None = None, head: int | None = None) -> np.ndarray:
        """(target, source) of one layer and head, both counted from 1; without `head` the mean over the heads.

        Without both it is the layer before the last, which follows the words most closely (Garg et al. 2019).
        """
        chosen = self.only(layer, head).weights
        found: np.ndarray = chosen[usual_layer(len(chosen))].mean(0)
        return found

    def only(self, layer: int | None = None, head: int | None = None) -> Alignment:
        """The same with the weights of one layer, or of one head of it, both counted from 1."""
        for name, number, most in (("layer", layer, self.layers), ("head", head, self.heads)):
            if number is not None and not 1 <= number <= most:
                raise InputError(f"{name}={number}: the model has {most}, counted from 1")
        if head is not None and layer is None and self.layers > 1:
            raise InputError(f"head={head}: say of which of the {self.layers} layers")
        layers, heads = (slice(None) if number is None else slice(number - 1, number) for number in (layer, head))
        return replace(self, weights=self.weights[layers, heads])

    def words(self) -> Alignment:
        """The same with pieces joined to words."""
        sources, targets = (
            words_of(self.source_text, self.source_offsets),
            words_of(self.target_text, self.target_offsets),
        )
        weights = np.add.reduceat(self.weights, [first for first, _ in sources], axis=3)
        weights = np.add.reduceat(weights, [first for first, _ in targets], axis=2)
        weights = weights / np.array([last - first for first, last in targets], dtype=weights.dtype)[:, None]
        source_offsets, target_offsets = (
            [(offsets[first][0], offsets[last - 1][1]) for first, last in groups]
            for groups, offsets in ((sources, self.source_offsets), (targets, self.target_offsets))
        )
        return replace(
            self,
            source=named(self.source_text, source_offsets),
            target=named(self.target_text, target_offsets),
            weights=weights,
            source_offsets=source_offsets,
            target_offsets=target_offsets,
        )

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "source": self.source,
            "target": self.target,
            "source_offsets": self.source_offsets,
            "target_offsets": self.target_offsets,
            "weights": self.weights.astype(np.float64).round(6).tolist(),
        }


def usual_layer(layers: int) -> int:
    """The layer, from 0, whose attention follows the words: the last but one, where there are several."""
    return max(layers - 2, 0)


def align(model: Any, tokenizer: Any, source: str, target: str) -> Alignment:
    """Where the model looks in `source` when it writes `target`, piece by piece."""
    written = target, tokenizer.target_offsets(target)
    return _aligned(model, tokenizer, source, written, tokenizer.encode_target(target))


def align_written(model: Any, tokenizer: Any, source: str, ids: Sequence[int]) -> Alignment:
    """The same for a target as the model wrote it, `ids` without the end.

    Its text, tokenised anew, may have other pieces, and an unknown one has no letters: here it reads as �.
    """
    return _aligned(model, tokenizer, source, spelled(tokenizer, ids), [*ids, model.config.end_id])


def _aligned(
    model: Any, tokenizer: Any, source: str, target: tuple[str, list[Offset]], written: list[int]
) -> Alignment:
    """`target` is the text of `written` and the characters of its tokens."""
    read, offsets = tokenizer.encode_source(source), tokenizer.source_offsets(source)
    if not read:
        raise InputError("the source is empty: there is nothing to look at")
    (weights,) = attention(model, [read], [written])
    return Alignment(named(source, offsets), named(*target), weights, offsets, target[1], source, target[0])


def spelled(tokenizer: Any, ids: Sequence[int]) -> tuple[str, list[Offset]]:
    """The text of ids, unknown ones as �, and the characters that each of them adds to it; the end adds none."""
    texts = [tokenizer.decode(ids[:count], unknown=UNKNOWN) for count in range(1, len(ids) + 1)]
    text, offsets, start = texts[-1] if texts else "", [], 0
    for so_far in texts:
        end = max(start, min(len(so_far), len(text)))
        blank = len(text[start:end]) - len(text[start:end].lstrip())
        offsets.append((start + blank, end) if start + blank < end else (start, end))
        start = end
    return text, [*offsets, (len(text), len(text))]


def attention(model: Any, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[np.ndarray]:
    """Of each pair (layers, heads, target tokens, source tokens); targets end with their end token."""
    require_attention(model)
    start = model.config.start_id
    shifted = [[start, *target[:-1]] for target in targets]
    trace = PairTrace(hidden=False)
    with torch.inference_mode():
        model(pack(sources, device=model.device), pack(shifted, device=model.device), trace)
    layers = trace.across.weights
    return [np.stack([layer[pair].float().cpu().numpy() for layer in layers]) for pair in range(len(sources))]


def require_attention(model: Any) -> None:
    """Refuse a model that does not look at its source while it writes."""
    if not model.body.attends:
        raise MissingHeadError("this model has no attention to its source, so nothing says which words belong together")


def named(text: str, offsets: Sequence[Offset]) -> list[str]:
    """The characters of each token; the last is the end, and one that is only the blank before a word reads as ▁."""
    starts = [start for start, _ in offsets[1:]]
    return [
        *(text[start : min(end, after)] or BLANK for (start, end), after in zip(offsets, starts, strict=False)),
        END,
    ]


def words_of(text: str, offsets: Sequence[Offset]) -> list[tuple[int, int]]:
    """(first token, last token + 1) of each word; the end of the text is one of its own.

    >>> words_of("some words.", [(0, 4), (5, 8), (8, 10), (10, 11), (11, 11)])
    [(0, 1), (1, 3), (3, 4), (4, 5)]
    >>> words_of("e\u0301te\u0301", [(0, 1), (1, 2), (2, 4), (4, 5), (5, 5)])  # accents of their own
    [(0, 4), (4, 5)]
    """
    groups: list[tuple[int, int]] = []
    for number, (start, _) in enumerate(offsets):
        last = number == len(offsets) - 1
        if groups and not last and _goes_on(text, offsets[number - 1], start):
            groups[-1] = (groups[-1][0], number + 1)
        else:
            groups.append((number, number + 1))
    return groups


def _goes_on(text: str, before: Offset, start: int) -> bool:
    """Does a token that starts here belong to the word of the token before it? (A blank may be a token of its own.)"""
    if start != before[1] or before[0] == before[1]:
        return start < before[1] or before[0] == before[1]
    if start == len(text):
        return False
    left, right = text[start - 1], text[start]
    return _is_mark(right) or (in_word(left) and in_word(right) and not UNSPACED_LETTER.search(left + right))


def in_word(letter: str) -> bool:
    """Is it a letter, a digit, or an accent that is a character of its own?"""
    return letter.isalnum() or letter == "_" or _is_mark(letter)


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M")
