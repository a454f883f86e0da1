"""Answers that are spans of a context: SQuAD's metrics, and a threshold for "no answer".

A long context is read in windows, each beside the whole question. A span's score is its first token's start score plus
its last token's end score; spans of all windows compete, and so does "no answer", which is the first token's score in
the window where that is smallest (Devlin et al. 2018, section 4.3). Only tokens of the context can be an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.batching import chunks
from kinfolk.data.examples import Question
from kinfolk.errors import ConfigError, InputError, check_int
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.objectives.supervised import Span
from kinfolk.tasks.task import Dataset, EvalResult, Mistake, Task, TaskOptions, most_confident, refuse, require_head
from kinfolk.text.tokenizer import Encoding, Tokenizer
from kinfolk.text.windows import DEFAULT_WINDOWS, TokenCounts, Windows
from kinfolk.training.metrics import answering, exact, f1, no_answer_threshold, softmax

USUAL_WINDOW = 384
USUAL_STRIDE = 128
LONGEST_ANSWER = 30  # tokens
COMPETITORS = 20  # spans of a question that share the probability with "no answer"
NOWHERE = (0, 0)  # the target of a window without the answer: the first token
Spans = list[tuple[float, int, int]]  # score, first character, end


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
    """The context's tokens in a sample: the row of the first, and the characters (start, end) of each."""

    first: int
    offsets: np.ndarray


ScoredView = tuple[ContextView, np.ndarray]  # a window and its tokens' scores, (tokens, 2)


@dataclass(frozen=True)
class AnswerDataset(Dataset):
    """The windows of some questions, in order, each with its view of the context."""

    views: list[ContextView]

    def by_question(self, scores: Sequence[np.ndarray]) -> Iterator[tuple[Question, list[ScoredView]]]:
        """Every question with its scored windows."""
        windows: list[list[ScoredView]] = [[] for _ in self.examples]
        for sample, view, rows in zip(self.samples, self.views, scores, strict=True):
            windows[sample.example].append((view, rows))
        return zip(self.examples, windows, strict=True)


@dataclass(frozen=True)
class SpanScores:
    """The best spans of a context that differ in text, and the score of "no answer"."""

    context: str
    spans: Spans
    null: float

    @property
    def margin(self) -> float:
        """How far "no answer" is ahead of the best span; infinite where there is no span."""
        return self.null - self.spans[0][0] if self.spans else float("inf")

    def answers(self, threshold: float | None, top: int = 1) -> list[Answer]:
        """At most `top` answers, most probable first.

        "No answer" is one of them if there is a threshold: it must be ahead of a span by more than that to come first.
        """
        bar, scores = self.null - (threshold or 0.0), [score for score, _, _ in self.spans]
        *shares, rest = softmax(np.array([[*scores, bar]], dtype=np.float64))[0].tolist()
        answers = [
            Answer(self.context[start:end], start, end, share, score)
            for (score, start, end), share in zip(self.spans, shares, strict=True)
        ]
        if threshold is not None or not self.spans:
            answers.insert(sum(score >= bar for score in scores), Answer("", None, None, rest, self.null))
        return answers[:top]


@dataclass(frozen=True)
class AnswerTask(Task):
    """Spans of a context that answer a question; where training had questions without an answer, also none."""

    windows: Windows = DEFAULT_WINDOWS
    unanswerable: bool = False
    null_threshold: float | None = None  # how far "no answer" must be ahead; tuned on the dev set

    kind = "answer"
    head = "span"
    labels = ("start", "end")
    chunk = 512

    @classmethod
    def saved(cls, text_model: TextModel) -> Self:
        require_head(text_model, "span", "question-answering head", "kinfolk finetune --task answer")
        limit = text_model.hf_config.get("null_threshold")
        if type(limit) not in (int, float, type(None)):
            raise ConfigError("config.json: null_threshold is not a number")
        windows = Windows.from_hf(text_model.hf_config)
        return cls(windows, limit is not None, None if limit is None else float(limit))

    @classmethod
    def of(cls, kind: str, examples: Sequence[Question], options: TaskOptions) -> Self:
        refuse(options, kind, "class_weights", "crf")
        return cls(options.windows, any(not question.answers for question in examples))

    def objective(self, model: Model) -> Objective:
        return Span(model.config.segments)

    def dataset(
        self, tokenizer: Tokenizer, examples: Sequence[Question], context: int, counts: TokenCounts | None = None
    ) -> AnswerDataset:
        """Questions beside windows of their contexts, which share a stride of 128 tokens, at most half of theirs.

        A window that does not hold the first answer whole has none.
        """
        fitting = self.windows.size(context, tokenizer.special_tokens_count(True))
        size = min(USUAL_WINDOW, context) if self.windows.window is None else fitting
        dataset = AnswerDataset([], examples, [])
        text, offsets = None, np.zeros((0, 2), dtype=np.int32)
        for batch in chunks(enumerate(examples), self.chunk):
            encodings = tokenizer.encode_many([(question.question, question.context) for _, question in batch])
            for (index, question), encoding in zip(batch, encodings, strict=True):
                if counts is not None:
                    counts.add(encoding, True)
                if question.context != text:  # questions about one context come together, and offsets cost a pass
                    pairs = zip(encoding.offsets, encoding.sequence_ids, strict=True)
                    own = [offset for offset, sequence in pairs if sequence == 1]
                    text, offsets = question.context, np.array(own, dtype=np.int32).reshape(-1, 2)
                windows, overlap = _question_windows(tokenizer, question, encoding, size, self.windows.stride)
                reached = 0
                for window in windows:
                    sequences = window.sequence_ids
                    count = sequences.count(1)
                    view = ContextView(sequences.index(1) if count else len(window), offsets[reached : reached + count])
                    if view.first == 0:
                        fault = "the tokenizer puts no token before the context to mean: no answer"
                        raise InputError(f"{question.location}: {fault}")
                    target = _target(view, question, window is windows[0], window is windows[-1])
                    dataset.samples.append(Sample(window.ids, window.segments, target, index))
                    dataset.views.append(view)
                    reached += len(view.offsets) - overlap
        return dataset

    def span_scores(self, model: Model, dataset: AnswerDataset, top: int = 1) -> list[SpanScores]:
        """What the model says of each question: the best spans and the score of "no answer"."""
        windows = dataset.by_question(self.sample_scores(model, dataset))
        return [decode(question, own, top) for question, own in windows]

    def answers(self, model: Model, dataset: AnswerDataset, top: int = 1) -> list[list[Answer]]:
        """At most `top` answers to each question, most probable first."""
        return [scores.answers(self.threshold, top) for scores in self.span_scores(model, dataset, top)]

    @property
    def threshold(self) -> float | None:
        """From which margin on there is no answer; None: there always is one."""
        return 0.0 if self.unanswerable and self.null_threshold is None else self.null_threshold

    def evaluate(self, model: Model, dataset: AnswerDataset) -> EvalResult:
        """SQuAD's metrics. A threshold that is not decided yet is the best one for these questions."""
        scores, questions = self.span_scores(model, dataset), dataset.examples
        undecided = self.unanswerable and self.null_threshold is None
        threshold = _tuned(scores, questions) if undecided else self.threshold
        best = [own.answers(threshold)[0] for own in scores]
        truths = [[text for text, _ in question.answers] for question in questions]
        mistakes = (
            Mistake(question.location, question.question, _shown(truth), _shown([answer.text]), answer.probability)
            for answer, truth, question in zip(best, truths, questions, strict=True)
            if not exact(answer.text, truth)
        )
        return EvalResult(answering([answer.text for answer in best], truths), mistakes=most_confident(mistakes))

    def calibrate(self, model: Model, dataset: AnswerDataset) -> AnswerTask:
        """The threshold of "no answer" is tuned on the dev set and kept with the model."""
        if not self.unanswerable or not dataset.samples:
            return self
        return replace(self, null_threshold=_tuned(self.span_scores(model, dataset), dataset.examples))

    def columns(self, prediction: Sequence[Answer], several: bool = False) -> dict[str, Any]:
        """What a table gets beside a question: the best answer, and with `several` the list of all."""
        rows: list[dict[str, Any]] = [
            {"answer": item.text, "start": item.start, "end": item.end, "probability": round(item.probability, 6)}
            for item in prediction
        ]
        return rows[0] | ({"answers": rows} if several else {})

    def to_hf(self) -> dict[str, Any]:
        """What config.json says of the task; a null_threshold of null: there always is an answer."""
        return super().to_hf() | {"null_threshold": self.threshold}


def _question_windows(
    tokenizer: Tokenizer, question: Question, encoding: Encoding, size: int, stride: int | None
) -> tuple[list[Encoding], int]:
    """The windows of a pair, and how many tokens neighbours share."""
    if len(encoding) <= size:
        return [encoding], 0
    room, asked = size - tokenizer.special_tokens_count(pair=True), encoding.sequence_ids.count(0)
    if 2 * asked > room:
        most = f"at most {max(room // 2, 0)} of a window of {size} may be; shorten it or use a larger window"
        raise InputError(f"{question.location}: the question has {asked:,} tokens, {most}")
    overlap = min(USUAL_STRIDE if stride is None else stride, (room - asked) // 2)
    # The context is now the longer text of the two, so it is the one that moves.
    return tokenizer.windows((question.question, question.context), size, overlap), overlap


def _target(view: ContextView, question: Question, starts_text: bool, ends_text: bool) -> tuple[int, int]:
    """The first and last token of the first answer, where the window holds all of it."""
    if not question.answers or not len(view.offsets):
        return NOWHERE
    text, position = question.answers[0]
    start, end = position + len(text) - len(text.lstrip()), position + len(text.rstrip())
    starts, ends = view.offsets.T
    # At its two ends a context may have characters that the tokenizer drops; nothing of the answer is lost with them.
    if (start < starts[0] and not starts_text) or (end > ends[-1] and not ends_text):
        return NOWHERE
    inside = np.flatnonzero((ends > start) & (starts < end) & (starts < ends))
    return (view.first + int(inside[0]), view.first + int(inside[-1])) if len(inside) else NOWHERE


def decode(question: Question, windows: Sequence[ScoredView], top: int = 1) -> SpanScores:
    """What the windows of a question say together."""
    count = max(top, COMPETITORS)
    for most in (4 * count, None):  # the best of each window, or all where those are only a few texts
        spans = [span for view, scores in windows for span in _best_spans(view, scores, most)]
        distinct: dict[str, tuple[float, int, int]] = {}
        for span in sorted(spans, key=lambda span: (-span[0], *span[1:])):
            distinct.setdefault(question.context[span[1] : span[2]], span)
        if len(distinct) >= count:
            break
    null = min(float(scores[0].sum()) for _, scores in windows)
    return SpanScores(question.context, list(distinct.values())[:count], null)


def _best_spans(view: ContextView, scores: np.ndarray, most: int | None) -> Iterator[tuple[float, int, int]]:
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


def _tuned(scores: Sequence[SpanScores], questions: Sequence[Question]) -> float:
    """The threshold with the best F1 on these questions; those without any span are not asked."""
    rows = [
        (own.margin, f1(own.answers(None)[0].text, [text for text, _ in question.answers]), not question.answers)
        for own, question in zip(scores, questions, strict=True)
        if own.spans
    ]
    return no_answer_threshold(*np.array(rows, dtype=np.float64).reshape(-1, 3).T)


def _shown(answers: Sequence[str]) -> str:
    return next(iter(answers), "") or "(no answer)"


def answer(text_model: TextModel, questions: Iterable[Question], top: int = 1) -> Iterator[list[Answer]]:
    """At most `top` answers that differ in text for each question, most probable first; streamed.

    "No answer" is among them if the model was trained on questions without one, or if the context has no words.
    """
    top = check_int("top", top)
    task = AnswerTask.saved(text_model)
    for dataset in task.datasets(text_model, questions):
        yield from task.answers(text_model.model, dataset, top)


def make_question(pair: Any, location: str) -> Question:
    """A question about a context, as a user gave it."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
        raise InputError(f"{location}: expected a question and its context, found {str(pair)[:60]!r}")
    return Question("", pair[0], pair[1], (), location)


TASK = AnswerTask
