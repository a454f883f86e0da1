"""Which source words a translator attends to when it writes each target word, and what can be copied from them.

One pass with teacher forcing: row t of the weights belongs to the step that writes token t. Words are subwords that
follow each other without a blank or a mark between them; characters of scripts without blanks stay alone. A word's
weight on the source is the sum over its subwords, in the target their mean, so that every row still sums to one.

Unknown words of a translation can be replaced by the source words with the most attention, as they stand in the
user's text (Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from kinfolk.data.summary import UNSPACED
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.nn.packed import pack
from kinfolk.nn.trace import PairTrace
from kinfolk.text.encoding import Offset

END, BLANK, UNKNOWN = "<end>", "▁", "\ufffd"
MARK = "\ufffc"  # stands for an unknown token while a text is put together
UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True, eq=False)
class Alignment:
    """Source and target, as words or subwords, and the attention: `weights` is (layers, heads, target, source).

    The last of each side is the end of the text; its offset is empty.
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
        weights = self.only(layer, head).weights
        matrix: np.ndarray = weights[alignment_layer(len(weights))].mean(0)
        return matrix

    def only(self, layer: int | None = None, head: int | None = None) -> Alignment:
        """The same with the weights of one layer, or of one head of it, both counted from 1."""
        for name, index, count in (("layer", layer, self.layers), ("head", head, self.heads)):
            if index is not None and not 1 <= index <= count:
                raise InputError(f"{name}={index}: the model has {count}, counted from 1")
        if head is not None and layer is None and self.layers > 1:
            raise InputError(f"head={head}: name one of the {self.layers} layers too")
        layers, heads = (slice(None) if index is None else slice(index - 1, index) for index in (layer, head))
        return replace(self, weights=self.weights[layers, heads])

    def words(self) -> Alignment:
        """The same with subwords joined to words."""
        sources = word_groups(self.source_text, self.source_offsets)
        targets = word_groups(self.target_text, self.target_offsets)
        weights = np.add.reduceat(self.weights, [first for first, _ in sources], axis=3)
        weights = np.add.reduceat(weights, [first for first, _ in targets], axis=2)
        weights = weights / np.array([last - first for first, last in targets], dtype=weights.dtype)[:, None]
        source_offsets, target_offsets = (
            [(offsets[first][0], offsets[last - 1][1]) for first, last in groups]
            for groups, offsets in ((sources, self.source_offsets), (targets, self.target_offsets))
        )
        return replace(
            self,
            source=token_texts(self.source_text, source_offsets),
            target=token_texts(self.target_text, target_offsets),
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


def alignment_layer(layers: int) -> int:
    """The layer, from 0, whose attention follows the words: the last but one, where there are several."""
    return max(layers - 2, 0)


def align(model: Any, tokenizer: Any, source: str, target: str) -> Alignment:
    """The attention over the subwords of `source` for each subword of `target`."""
    return _align(model, tokenizer, source, target, tokenizer.target_offsets(target), tokenizer.encode_target(target))


def align_generated(model: Any, tokenizer: Any, source: str, ids: Sequence[int]) -> Alignment:
    """The same for a target as the model generated it, `ids` without the end.

    Its text, tokenized again, may have other subwords, and an unknown one has no letters: here it reads as �.
    """
    return _align(model, tokenizer, source, *_decode(tokenizer, ids), [*ids, model.config.end_id])


def _align(
    model: Any, tokenizer: Any, source: str, target: str, target_offsets: list[Offset], target_ids: list[int]
) -> Alignment:
    source_ids, offsets = tokenizer.encode_source(source), tokenizer.source_offsets(source)
    if not source_ids:
        raise InputError("the source is empty: there is nothing to look at")
    (weights,) = attention(model, [source_ids], [target_ids])
    texts = token_texts(source, offsets), token_texts(target, target_offsets)
    return Alignment(*texts, weights, offsets, target_offsets, source, target)


def _decode(tokenizer: Any, ids: Sequence[int]) -> tuple[str, list[Offset]]:
    """The text of ids, unknown ones as �, and the characters that each of them adds to it; the end adds none."""
    prefixes = [tokenizer.decode(ids[:count], unknown=UNKNOWN) for count in range(1, len(ids) + 1)]
    text, offsets, start = prefixes[-1] if prefixes else "", [], 0
    for prefix in prefixes:
        end = max(start, min(len(prefix), len(text)))
        blank = len(text[start:end]) - len(text[start:end].lstrip())
        offsets.append((start + blank, end) if start + blank < end else (start, end))
        start = end
    return text, [*offsets, (len(text), len(text))]


def attention(model: Any, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[np.ndarray]:
    """Cross-attention of each pair, (layers, heads, target tokens, source tokens); targets end with their end token."""
    require_attention(model)
    start = model.config.start_id
    shifted = [[start, *target[:-1]] for target in targets]
    trace = PairTrace(hidden=False)
    with torch.inference_mode():
        model(pack(sources, device=model.device), pack(shifted, device=model.device), trace)
    layers = trace.across.weights
    return [np.stack([layer[pair].float().cpu().numpy() for layer in layers]) for pair in range(len(sources))]


def require_attention(model: Any) -> None:
    """Refuse a model without cross-attention."""
    if not model.body.attends:
        raise MissingHeadError("this model has no attention to its source, so its words cannot be aligned")


def token_texts(text: str, offsets: Sequence[Offset]) -> list[str]:
    """The characters of each token; the last is the end, and one that is only the blank before a word reads as ▁."""
    starts = [start for start, _ in offsets[1:]]
    return [
        *(text[start : min(end, after)] or BLANK for (start, end), after in zip(offsets, starts, strict=False)),
        END,
    ]


def word_groups(text: str, offsets: Sequence[Offset]) -> list[tuple[int, int]]:
    """(first token, last token + 1) of each word; the end of the text is one of its own.

    >>> word_groups("some words.", [(0, 4), (5, 8), (8, 10), (10, 11), (11, 11)])
    [(0, 1), (1, 3), (3, 4), (4, 5)]
    >>> word_groups("e\u0301te\u0301", [(0, 1), (1, 2), (2, 4), (4, 5), (5, 5)])  # accents of their own
    [(0, 4), (4, 5)]
    """
    groups: list[tuple[int, int]] = []
    for index, (start, _) in enumerate(offsets):
        last = index == len(offsets) - 1
        if groups and not last and _continues_word(text, offsets[index - 1], start):
            groups[-1] = (groups[-1][0], index + 1)
        else:
            groups.append((index, index + 1))
    return groups


def _continues_word(text: str, before: Offset, start: int) -> bool:
    """Does a token that starts here belong to the word of the token before it? (A blank may be a token of its own.)"""
    if start != before[1] or before[0] == before[1]:
        return start < before[1] or before[0] == before[1]
    if start == len(text):
        return False
    left, right = text[start - 1], text[start]
    return _is_mark(right) or (_in_word(left) and _in_word(right) and not UNSPACED_LETTER.search(left + right))


def _in_word(letter: str) -> bool:
    """Is it a letter, a digit, or an accent that is a character of its own?"""
    return letter.isalnum() or letter == "_" or _is_mark(letter)


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M")


@dataclass(frozen=True)
class UnknownSpan:
    """A translation with unknown tokens: its source, as text and ids, and its own ids without the end."""

    text: str
    source: list[int]
    target: list[int]


def copy_unknown(model: Any, tokenizer: Any, spans: Sequence[UnknownSpan]) -> list[str]:
    """The texts of translations, their unknown words copied from the source."""
    targets = [[*span.target, model.config.end_id] for span in spans]
    weights = attention(model, [span.source for span in spans], targets) if spans else []
    return [copy_words(tokenizer, span, own) for span, own in zip(spans, weights, strict=True)]


def copy_words(tokenizer: Any, span: UnknownSpan, weights: np.ndarray) -> str:
    """The text of one translation; `weights` is (layers, heads, target tokens, source tokens).

    The whole word around an unknown token is replaced, by the source word with the most attention.
    """
    mean = weights[alignment_layer(len(weights))].mean(0)
    rows = iter([row for row, token in zip(mean, span.target, strict=False) if token == tokenizer.unknown_id])
    offsets = tokenizer.source_offsets(span.text)
    words, nothing = word_groups(span.text, offsets)[:-1], np.zeros(mean.shape[1])

    def source_word(word: str) -> str:
        attended = np.sum([next(rows, nothing) for letter in word if letter == MARK], axis=0)
        first, last = max(words, key=lambda group: float(attended[group[0] : group[1]].sum()))
        return span.text[offsets[first][0] : offsets[last - 1][1]]

    letters = groupby(tokenizer.decode(span.target, MARK), lambda letter: letter == MARK or _in_word(letter))
    runs = ("".join(run) for _, run in letters)
    return "".join(source_word(run) if MARK in run else run for run in runs)
