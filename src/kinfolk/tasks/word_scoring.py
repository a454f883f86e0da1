"""Scores of words: the first piece of a word speaks for it.

The words of a sentence are joined by single blanks, and a word's piece is the first token that starts in it. A long
sentence is read in windows, and each word in the one window where its piece is most central: so every word is learned
from once and judged once, in the surroundings in which it will be asked for. A word that leaves no token (an empty
one, or one of control characters) has no piece.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.objectives.supervised import IGNORED
from kinfolk.tasks.scoring import scored_batches
from kinfolk.tasks.tagged import word_starts
from kinfolk.tasks.windows import CutCount, Piece, pieces
from kinfolk.text.tokenizer import Tokenizer

Words = Sequence[str]


@dataclass(frozen=True)
class WordItems:
    """Windows that hold words of sentences; for each, which of its rows speak, and for which words."""

    items: list[Sample]
    rows: list[list[int]]
    words: list[list[int]]
    sentences: int


@dataclass(frozen=True)
class WordScores:
    """Of one sentence: the numbers of the words that have a piece, (seen,), and their scores, (seen, labels)."""

    words: np.ndarray
    scores: np.ndarray


def word_items(
    tokenizer: Tokenizer,
    sentences: Sequence[Words],
    targets: Sequence[Sequence[int]] | None,
    size: int,
    stride: int | None = None,
    place: Callable[[int], str] = "text {}".format,
) -> WordItems:
    """One item per sentence or window of `size` tokens; `targets` are tag numbers, which go to words' first pieces.

    `place` says where a sentence stands, for a message.
    """
    found = WordItems([], [], [], len(sentences))
    texts = [" ".join(words) for words in sentences]
    read = pieces(tokenizer, texts, size, "window", CutCount(), place, stride)
    for number, parts in groupby(read, key=lambda part: part.text):
        for part, rows, words in _first_pieces(list(parts), word_starts(sentences[number]), sentences[number]):
            target = [IGNORED] * len(part.encoding)
            for row, word in zip(rows, words, strict=True):
                target[row] = IGNORED if targets is None else targets[number][word]
            found.items.append(Sample(part.encoding.ids, part.encoding.segments, target, number))
            found.rows.append(rows)
            found.words.append(words)
    return found


def _first_pieces(parts: list[Piece], starts: list[int], words: Words) -> Iterator[tuple[Piece, list[int], list[int]]]:
    """For each window its own rows that are first pieces, and their words; windows without one are left out."""
    reached = -1  # the last word that has its piece: a window may begin in the middle of it
    for part in parts:
        offsets, sequences = part.encoding.offsets, part.encoding.sequence_ids
        rows, numbers = [], []
        for row in range(*part.own):
            start = offsets[row][0]
            word = bisect_right(starts, start) - 1
            if sequences[row] is not None and word > reached and start < starts[word] + len(words[word]):
                rows.append(row)
                numbers.append(word)
                reached = word
        if rows:
            yield part, rows, numbers


def score_words(model: Model, objective: Objective, found: WordItems, labels: int) -> list[WordScores]:
    """What the head says of the words of each sentence."""
    scores: list[np.ndarray] = [np.empty(0)] * len(found.items)
    for batch, prepared, said in scored_batches(model, objective, found.items):
        for number, part in zip(batch, prepared.tokens.layout.split(said), strict=True):
            scores[number] = part[found.rows[number]].numpy()
    windows: list[list[int]] = [[] for _ in range(found.sentences)]
    for number, item in enumerate(found.items):
        windows[item.example].append(number)
    nothing = np.zeros((0, labels), dtype=np.float32)
    return [
        WordScores(
            np.array([word for number in own for word in found.words[number]], dtype=int),
            np.concatenate([scores[number] for number in own]) if own else nothing,
        )
        for own in windows
    ]
