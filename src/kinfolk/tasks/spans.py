"""Answers that are spans of a context: questions as items of tokens, and scores of tokens as characters.

A long context is read in windows, each beside the whole question. A span's score is its first token's start score plus
its last token's end score; spans of all windows compete, and so does "no answer", which is the first token's score in
the window where that is smallest (Devlin et al. 2018, section 4.3). Only tokens of the context can be an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kinfolk.data.batching import chunks
from kinfolk.data.examples import Question
from kinfolk.errors import InputError
from kinfolk.objectives.objective import Sample
from kinfolk.text.tokenizer import Encoding, Tokenizer
from kinfolk.training.logistic import softmax

USUAL_STRIDE = 128
LONGEST_ANSWER = 30  # tokens
COMPETITORS = 20  # spans of a question that share the probability with "no answer"
AT_ONCE = 1024
NO_OFFSETS = np.zeros((0, 2), dtype=np.int32)
NOWHERE = (0, 0)  # the target of a window without the answer: the first token


@dataclass(frozen=True)
class Answer:
    """A span of the context: `text == context[start:end]`. No answer has an empty text, and start and end are None.

    `score` is start plus end score; `probability` is the share among the best spans and "no answer".
    """

    text: str
    start: int | None
    end: int | None
    probability: float
    score: float


@dataclass(frozen=True, slots=True)
class ContextView:
    """The context's tokens in an item: the row of the first, and the characters (start, end) of each."""

    first: int
    offsets: np.ndarray


Scored = tuple[ContextView, np.ndarray]  # a window and its tokens' scores, (tokens, 2)


@dataclass(frozen=True)
class QuestionSamples:
    """The windows of some questions, in order, each with its view of the context."""

    samples: list[Sample]
    views: list[ContextView]
    questions: Sequence[Question]

    def by_question(self, scores: Sequence[np.ndarray]) -> Iterator[tuple[Question, list[Scored]]]:
        """Every question with its scored windows."""
        windows: list[list[Scored]] = [[] for _ in self.questions]
        for sample, view, found in zip(self.samples, self.views, scores, strict=True):
            windows[sample.example].append((view, found))
        return zip(self.questions, windows, strict=True)


def question_samples(
    tokenizer: Tokenizer, questions: Sequence[Question], size: int, stride: int | None
) -> QuestionSamples:
    """Items of at most `size` tokens; windows of a context share `stride` (128) tokens, at most half of theirs."""
    samples: list[Sample] = []
    views: list[ContextView] = []
    context, offsets = None, NO_OFFSETS
    for batch in chunks(enumerate(questions), AT_ONCE):
        pairs = [(question.question, question.context) for _, question in batch]
        for (number, question), encoding in zip(batch, tokenizer.encode_many(pairs), strict=True):
            if question.context != context:  # questions about one context come together, and offsets cost a pass
                context, offsets = question.context, _context_offsets(encoding)
            windows, overlap = _windows(tokenizer, question, encoding, size, stride)
            reached = 0
            for place, window in enumerate(windows):
                view = _view(window, question, offsets[reached:])
                target = _target(view, question, place == 0, place == len(windows) - 1)
                samples.append(Sample(window.ids, window.segments, target, number))
                views.append(view)
                reached += len(view.offsets) - overlap
    return QuestionSamples(samples, views, questions)


def _windows(
    tokenizer: Tokenizer, question: Question, encoding: Encoding, size: int, stride: int | None
) -> tuple[list[Encoding], int]:
    """The windows of a pair, and how many tokens neighbours share."""
    if len(encoding) <= size:
        return [encoding], 0
    room, asked = size - tokenizer.special_tokens_count(pair=True), encoding.sequence_ids.count(0)
    if 2 * asked > room:
        raise InputError(
            f"{question.location}: the question has {asked:,} tokens and its context does not fit beside it; at most "
            f"{max(room // 2, 0)} of a window of {size} may be the question: shorten it or use a larger window"
        )
    overlap = min(USUAL_STRIDE if stride is None else stride, (room - asked) // 2)
    # The context is now the longer text of the two, so it is the one that moves.
    return tokenizer.windows((question.question, question.context), size, overlap), overlap


def _context_offsets(encoding: Encoding) -> np.ndarray:
    pairs = zip(encoding.offsets, encoding.sequence_ids, strict=True)
    return np.array([place for place, sequence in pairs if sequence == 1], dtype=np.int32).reshape(-1, 2)


def _view(window: Encoding, question: Question, offsets: np.ndarray) -> ContextView:
    sequences = window.sequence_ids
    count = sequences.count(1)
    first = sequences.index(1) if count else len(window)
    if first == 0:
        raise InputError(f"{question.location}: the tokenizer puts no token before the context to mean: no answer")
    return ContextView(first, offsets[:count])


def _target(view: ContextView, question: Question, starts_text: bool, ends_text: bool) -> tuple[int, int]:
    """The first and last token of the first answer, where the window holds all of it."""
    if not question.answers or not len(view.offsets):
        return NOWHERE
    text, place = question.answers[0]
    start, end = place + len(text) - len(text.lstrip()), place + len(text.rstrip())
    starts, ends = view.offsets.T
    # At its two ends a context may have characters that the tokenizer drops; nothing of the answer is lost with them.
    if (start < starts[0] and not starts_text) or (end > ends[-1] and not ends_text):
        return NOWHERE
    inside = np.flatnonzero((ends > start) & (starts < end) & (starts < ends))
    return (view.first + int(inside[0]), view.first + int(inside[-1])) if len(inside) else NOWHERE


@dataclass(frozen=True)
class Decoded:
    """The best spans of a context that differ in text, (score, start, end), and the score of "no answer"."""

    context: str
    spans: list[tuple[float, int, int]]
    null: float

    @property
    def margin(self) -> float:
        """How far "no answer" is ahead of the best span; infinite where there is no span."""
        return self.null - self.spans[0][0] if self.spans else float("inf")

    def answers(self, threshold: float | None, top: int = 1) -> list[Answer]:
        """At most `top` answers, most probable first.

        "No answer" is one of them if there is a threshold: it must be ahead of a span by more than that to come first.
        """
        bar = self.null - (threshold or 0.0)
        *shares, rest = softmax(np.array([[*(score for score, _, _ in self.spans), bar]], dtype=np.float64))[0].tolist()
        nothing = Answer("", None, None, rest, self.null)
        if not self.spans:
            return [nothing]
        found = [
            Answer(self.context[start:end], start, end, share, score)
            for (score, start, end), share in zip(self.spans, shares, strict=True)
        ]
        if threshold is not None:
            found.insert(sum(score >= bar for score, _, _ in self.spans), nothing)
        return found[:top]


def decode(question: Question, windows: Sequence[Scored], top: int = 1) -> Decoded:
    """What the windows of a question say together."""
    count = max(top, COMPETITORS)
    null = min(float(scores[0].sum()) for _, scores in windows)
    spans: list[tuple[float, int, int]] = []
    for most in (4 * count, None):  # the best of each window, or all where those are only a few texts
        found = [span for view, scores in windows for span in _spans(view, scores, most)]
        spans = _distinct(question.context, sorted(found, key=lambda span: (-span[0], *span[1:])), count)
        if len(spans) == count:
            break
    return Decoded(question.context, spans, null)


def _spans(view: ContextView, scores: np.ndarray, most: int | None) -> Iterator[tuple[float, int, int]]:
    """The `most` best spans of a window (or all) as (score, first character, end)."""
    rows = scores[view.first : view.first + len(view.offsets)]
    empty = view.offsets[:, :1] >= view.offsets[:, 1:]  # a token of blanks only neither begins nor ends an answer
    starts, ends = np.where(empty, -np.inf, rows).T
    reach = np.concatenate([ends, np.full(LONGEST_ANSWER, -np.inf, dtype=ends.dtype)])
    reach = np.lib.stride_tricks.sliding_window_view(reach, LONGEST_ANSWER)[:-1]
    sums = (starts[:, None] + reach).ravel()  # (tokens, lengths): spans of 1, 2 … tokens from each token on
    best = np.arange(len(sums)) if most is None or most >= len(sums) else np.argpartition(-sums, most)[:most]
    best = best[np.isfinite(sums[best])]
    first, more = np.divmod(best, LONGEST_ANSWER)
    columns = sums[best], view.offsets[first, 0], view.offsets[first + more, 1]
    return zip(*(column.tolist() for column in columns), strict=True)


def _distinct(context: str, spans: Sequence[tuple[float, int, int]], count: int) -> list[tuple[float, int, int]]:
    """The first `count` spans that differ in text."""
    found: dict[str, tuple[float, int, int]] = {}
    for span in spans:
        found.setdefault(context[span[1] : span[2]], span)
        if len(found) == count:
            break
    return list(found.values())
