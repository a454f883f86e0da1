"""Which source words a translator attends to when it writes each target word: as numbers, as a picture, and to copy.

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
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import torch

from kinfolk.checkpoints.folder import TextModel
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.nn.packed import pack
from kinfolk.nn.trace import PairTrace
from kinfolk.text.encoding import UNSPACED, Offset

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

    def matrix(self, layer: int | None = None, head: int | None = None) -> np.ndarray:
        """(target, source) of one layer and head, both counted from 1; without `head` the mean over the heads.

        Without both it is the layer before the last, which follows the words most closely (Garg et al. 2019).
        """
        weights = self.only(layer, head).weights
        return np.asarray(weights[alignment_layer(len(weights))].mean(0))

    def only(self, layer: int | None = None, head: int | None = None) -> Alignment:
        """The same with the weights of one layer, or of one head of it, both counted from 1."""
        layers = len(self.weights)
        for name, index, count in (("layer", layer, layers), ("head", head, self.weights.shape[1])):
            if index is not None and not 1 <= index <= count:
                raise InputError(f"{name}={index}: the model has {count}, counted from 1")
        if head is not None and layer is None and layers > 1:
            raise InputError(f"head={head}: name one of the {layers} layers too")
        chosen = tuple(slice(None) if index is None else slice(index - 1, index) for index in (layer, head))
        return replace(self, weights=self.weights[chosen])

    def words(self) -> Alignment:
        sides = ((self.source_text, self.source_offsets), (self.target_text, self.target_offsets))
        sources, targets = groups = [word_groups(text, offsets) for text, offsets in sides]
        weights = np.add.reduceat(self.weights, [first for first, _ in sources], axis=3)
        weights = np.add.reduceat(weights, [first for first, _ in targets], axis=2)
        weights = weights / np.array([last - first for first, last in targets], dtype=weights.dtype)[:, None]
        joined = [
            [(offsets[first][0], offsets[last - 1][1]) for first, last in side]
            for side, (_, offsets) in zip(groups, sides, strict=True)
        ]
        texts = token_texts(self.source_text, joined[0]), token_texts(self.target_text, joined[1])
        return Alignment(*texts, weights, joined[0], joined[1], self.source_text, self.target_text)

    def as_json(self) -> dict[str, Any]:
        names = ("source", "target", "source_offsets", "target_offsets")
        weights = self.weights.astype(np.float64).round(6).tolist()
        return {name: getattr(self, name) for name in names} | {"weights": weights}


def alignment_layer(layers: int) -> int:
    """The layer, from 0, whose attention follows the words: the last but one, where there are several."""
    return max(layers - 2, 0)


def align(translator: TextModel, source: str, target: str | None, ids: Sequence[int] = ()) -> Alignment:
    """The attention over the subwords of `source` for each subword of `target`.

    Without it the target is what the model generated, `ids` without the end: its text, tokenized again, may have other
    subwords, and an unknown one has no letters; here it reads as �.
    """
    tokenizer, source_ids = translator.tokenizer, translator.tokenizer.encode_source(source)
    if not source_ids:
        raise InputError("the source is empty: there is nothing to look at")
    if target is None:
        target, target_offsets = _decode(tokenizer, ids)
        target_ids = [*ids, translator.model.config.end_id]
    else:
        target_offsets, target_ids = tokenizer.target_offsets(target), tokenizer.encode_target(target)
    (weights,) = attention(translator.model, [source_ids], [target_ids])
    offsets = tokenizer.source_offsets(source)
    texts = token_texts(source, offsets), token_texts(target, target_offsets)
    return Alignment(*texts, weights, offsets, target_offsets, source, target)


def _decode(tokenizer: Any, ids: Sequence[int]) -> tuple[str, list[Offset]]:
    """The text of ids, unknown ones as �, and the characters that each of them adds to it; the end adds none."""
    prefixes = [tokenizer.decode(ids[:count], unknown=UNKNOWN) for count in range(len(ids) + 1)]
    text, offsets, start = prefixes[-1], [], 0
    for prefix in prefixes[1:]:
        end = max(start, min(len(prefix), len(text)))
        blank = len(text[start:end]) - len(text[start:end].lstrip())
        offsets.append((start + blank, end) if start + blank < end else (start, end))
        start = end
    return text, [*offsets, (len(text), len(text))]


def attention(model: Any, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[np.ndarray]:
    """Cross-attention of each pair, (layers, heads, target tokens, source tokens); targets end with their end token."""
    require_attention(model)
    shifted = [[model.config.start_id, *target[:-1]] for target in targets]
    trace = PairTrace(hidden=False)
    with torch.inference_mode():
        model(pack(sources, device=model.device), pack(shifted, device=model.device), trace)
    layers = trace.across.weights
    return [np.stack([layer[pair].float().cpu().numpy() for layer in layers]) for pair in range(len(sources))]


def require_attention(model: Any) -> None:
    if not model.body.attends:
        raise MissingHeadError("this model has no attention to its source, so its words cannot be aligned")


def token_texts(text: str, offsets: Sequence[Offset]) -> list[str]:
    """The characters of each token; the last is the end, and one that is only the blank before a word reads as ▁."""
    tokens = [text[start : min(end, after)] or BLANK for (start, end), (after, _) in pairwise(offsets)]
    return [*tokens, END]


def word_groups(text: str, offsets: Sequence[Offset]) -> list[tuple[int, int]]:
    """(first token, last token + 1) of each word; the end of the text is one of its own.

    >>> word_groups("some words.", [(0, 4), (5, 8), (8, 10), (10, 11), (11, 11)])
    [(0, 1), (1, 3), (3, 4), (4, 5)]
    >>> word_groups("e\u0301te\u0301", [(0, 1), (1, 2), (2, 4), (4, 5), (5, 5)])  # accents of their own
    [(0, 4), (4, 5)]
    """
    inner, end = range(1, len(offsets) - 1), len(offsets) - 1
    starts = [index for index in inner if not _continues_word(text, offsets[index - 1], offsets[index][0])]
    return list(pairwise(sorted({0, *starts, end, end + 1})))


def _continues_word(text: str, before: Offset, start: int) -> bool:
    """Does a token that starts here belong to the word of the token before it? (A blank may be a token of its own.)"""
    if start != before[1] or before[0] == before[1]:
        return start < before[1] or before[0] == before[1]
    if start == len(text):
        return False
    left, right = text[start - 1], text[start]
    return _is_mark(right) or (_in_word(left) and _in_word(right) and not UNSPACED_LETTER.search(left + right))


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_" or _is_mark(letter)


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M")


def copy_unknown(translator: TextModel, translations: Sequence[tuple[str, list[int], list[int]]]) -> list[str]:
    """Translations, their unknown words copied: each is a source, as text and ids, and its own ids without the end."""
    tokenizer, end = translator.tokenizer, translator.model.config.end_id
    texts = [tokenizer.decode(ids) for _, _, ids in translations]
    gaps = [index for index, (_, _, ids) in enumerate(translations) if tokenizer.unknown_id in ids]
    if gaps:
        sources, targets = [translations[gap][1] for gap in gaps], [[*translations[gap][2], end] for gap in gaps]
        for index, weights in zip(gaps, attention(translator.model, sources, targets), strict=True):
            texts[index] = copy_words(tokenizer, translations[index][0], translations[index][2], weights)
    return texts


def copy_words(tokenizer: Any, text: str, target: list[int], weights: np.ndarray) -> str:
    """The translation of a text; `weights` is (layers, heads, target tokens, source tokens).

    The whole word around an unknown token is replaced, by the source word with the most attention.
    """
    mean = weights[alignment_layer(len(weights))].mean(0)
    rows = iter([row for row, token in zip(mean, target, strict=False) if token == tokenizer.unknown_id])
    offsets = tokenizer.source_offsets(text)
    words, nothing = word_groups(text, offsets)[:-1], np.zeros(mean.shape[1])

    def source_word(word: str) -> str:
        attended = np.sum([next(rows, nothing) for letter in word if letter == MARK], axis=0)
        first, last = max(words, key=lambda group: float(attended[group[0] : group[1]].sum()))
        return text[offsets[first][0] : offsets[last - 1][1]]

    letters = groupby(tokenizer.decode(target, MARK), lambda letter: letter == MARK or _in_word(letter))
    runs = ("".join(run) for _, run in letters)
    return "".join(source_word(run) if MARK in run else run for run in runs)
