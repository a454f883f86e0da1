"""Copying what a vocabulary cannot spell: an unknown word of a translation becomes the source word it looked at most.

Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation". The word is taken from the user's
own text, character by character as it stands there, not from a vocabulary. Of the translation, the whole word around an
unknown piece gives way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from kinfolk.api.align import attention, in_word, usual_layer, words_of

MARK = "\ufffc"  # stands for an unknown piece while the text is put together


@dataclass(frozen=True)
class UnknownSpan:
    """A translation with unknown pieces: its source, as text and ids, and its own ids without the end."""

    text: str
    source: list[int]
    target: list[int]


def copied(model: Any, tokenizer: Any, found: Sequence[UnknownSpan]) -> list[str]:
    """The texts of translations, their unknown words copied from the source."""
    sources = [item.source for item in found]
    targets = [[*item.target, model.config.end_id] for item in found]
    weights = attention(model, sources, targets) if found else []
    return [filled(tokenizer, item, looks) for item, looks in zip(found, weights, strict=True)]


def filled(tokenizer: Any, item: UnknownSpan, weights: np.ndarray) -> str:
    """The text of one translation; `weights` is (layers, heads, target tokens, source tokens)."""
    looks = weights[usual_layer(len(weights))].mean(0)
    rows = iter([row for row, number in zip(looks, item.target, strict=False) if number == tokenizer.unknown_id])
    offsets = tokenizer.source_offsets(item.text)
    words, nothing = words_of(item.text, offsets)[:-1], np.zeros(looks.shape[1])

    def most_seen(word: str) -> str:
        seen = np.sum([next(rows, nothing) for letter in word if letter == MARK], axis=0)
        first, last = max(words, key=lambda word: float(seen[word[0] : word[1]].sum()))
        return item.text[offsets[first][0] : offsets[last - 1][1]]

    letters = groupby(tokenizer.decode(item.target, MARK), lambda letter: letter == MARK or in_word(letter))
    runs = ("".join(run) for _, run in letters)
    return "".join(most_seen(run) if MARK in run else run for run in runs)
