"""Exact match and F1 of answers by the rules of SQuAD's own scorer, version 2.0.

Texts are compared in lower case, without punctuation, articles and extra blanks; F1 is over their words. Of several
right answers the one that fits best counts. A question without an answer is right only with an empty answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """What is compared of an answer.

    >>> normalized("The  Duke's  (first) answer!")
    'dukes first answer'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(guess: str, truths: Sequence[str]) -> float:
    """1 if the guess is one of the right answers."""
    return float(normalized(guess) in [normalized(truth) for truth in _possible(truths)])


def f1(guess: str, truths: Sequence[str]) -> float:
    """How well the words of the guess fit those of the best right answer."""
    return max(_f1(normalized(guess).split(), normalized(truth).split()) for truth in _possible(truths))


def _possible(truths: Sequence[str]) -> Sequence[str]:
    """The right answers of which something is left to compare; none: the empty answer is right."""
    return [truth for truth in truths if normalized(truth)] or [""]


def _f1(guess: list[str], truth: list[str]) -> float:
    if not guess or not truth:
        return float(guess == truth)
    shared = (Counter(guess) & Counter(truth)).total()
    return 2 * shared / (len(guess) + len(truth))


def answering(guesses: Sequence[str], truths: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1 and exact match; where some questions have no answer, also of those with one and those without apart."""
    scores = np.array([(f1(guess, right), exact(guess, right)) for guess, right in zip(guesses, truths, strict=True)])
    answerable = np.array([bool(right) for right in truths])
    groups = {"": scores}
    if not answerable.all():
        groups |= {"answerable_": scores[answerable], "unanswerable_": scores[~answerable]}
    metrics = {}
    for prefix, rows in groups.items():
        if len(rows):
            metrics[f"{prefix}f1"], metrics[f"{prefix}exact"] = rows.mean(0).tolist()
    return metrics


def best_threshold(margins: np.ndarray, answered: np.ndarray, unanswered: np.ndarray) -> float:
    """The margin up to which it pays to answer.

    `margins` say how far "no answer" is ahead of the best answer; the others what each question scores when it is
    answered and when it is not. The threshold lies halfway between two margins, so that rounding decides nothing.
    """
    if not len(margins):
        return 0.0
    order = np.argsort(margins, kind="stable")
    margins = margins[order]
    gains = np.concatenate([[0.0], np.cumsum((answered - unanswered)[order])])  # of answering the first k questions
    between = np.concatenate([[True], np.diff(margins) > 0, [True]])  # equal margins cannot be told apart
    best = int(np.where(between, gains, -np.inf).argmax())
    padded = np.concatenate([margins[:1] - 1, margins, margins[-1:] + 1])
    return float((padded[best] + padded[best + 1]) / 2)
