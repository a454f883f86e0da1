"""Answering questions from a context: spans as targets, SQuAD's metrics, and a threshold for "no answer"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kinfolk.checkpoints.text_model import TextModel
from kinfolk.data.batching import chunks
from kinfolk.data.examples import Question
from kinfolk.errors import ConfigError, InputError, MissingHeadError, check_int
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective
from kinfolk.objectives.supervised import Span
from kinfolk.tasks.spans import Answer, Decoded, QuestionSamples, decode, question_samples
from kinfolk.tasks.task import MAX_MISTAKES, EvalResult, Mistake, TaskOptions, label_tables
from kinfolk.tasks.windows import DEFAULT_WINDOWS, Windows, batch_scores
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.training.squad_metrics import answering, best_threshold, exact, f1

USUAL_WINDOW = 384
CHUNK_QUESTIONS = 512


@dataclass(frozen=True)
class AnswerTask:
    """Spans of a context that answer a question; where training had questions without an answer, also none."""

    windows: Windows = DEFAULT_WINDOWS
    unanswerable: bool = False
    null_threshold: float | None = None  # how far "no answer" must be ahead; tuned on the dev set

    kind = "answer"
    head = "span"
    labels = ("start", "end")

    @classmethod
    def of(cls, examples: Sequence[Question], options: TaskOptions) -> AnswerTask:
        """The task that questions pose."""
        options.refuse("answer", "class_weights", "crf")
        return cls(options.windows, any(not question.answers for question in examples))

    def objective(self, model: Model) -> Objective:
        """The loss on a model of the family."""
        return Span(model.config.segments)

    def unseen_labels(self, examples: Sequence[Question]) -> list[str]:
        """An answer is a slice of its context: there are no labels to see."""
        return []

    def dataset(self, tokenizer: Tokenizer, examples: Sequence[Question], size: int) -> QuestionSamples:
        """Questions beside windows of their contexts; a window that does not hold the first answer whole has none."""
        fitting = self.windows.size(size, tokenizer.special_tokens_count(True))
        wanted = min(USUAL_WINDOW, size) if self.windows.window is None else fitting
        return question_samples(tokenizer, examples, wanted, self.windows.stride)

    def decoded(self, model: Model, dataset: QuestionSamples, top: int = 1) -> list[Decoded]:
        """What the model says of each question: the best spans and the score of "no answer"."""
        scores: list[np.ndarray] = [np.empty(0)] * len(dataset.samples)
        for batch, prepared, found in batch_scores(model, self.objective(model), dataset.samples):
            for number, rows in zip(batch, prepared.tokens.layout.split(found), strict=True):
                scores[number] = rows.numpy()
        return [decode(question, windows, top) for question, windows in dataset.by_question(scores)]

    def answers(self, model: Model, dataset: QuestionSamples, top: int = 1) -> list[list[Answer]]:
        """At most `top` answers to each question, most probable first."""
        return [found.answers(self.threshold, top) for found in self.decoded(model, dataset, top)]

    @property
    def threshold(self) -> float | None:
        """From which margin on there is no answer; None: there always is one."""
        return 0.0 if self.unanswerable and self.null_threshold is None else self.null_threshold

    def evaluate(self, model: Model, dataset: QuestionSamples) -> EvalResult:
        """SQuAD's metrics. A threshold that is not decided yet is the best one for these questions."""
        decoded = self.decoded(model, dataset)
        undecided = self.unanswerable and self.null_threshold is None
        threshold = _tuned(decoded, dataset.questions) if undecided else self.threshold
        best = [found.answers(threshold)[0] for found in decoded]
        metrics = answering([answer.text for answer in best], [_truths(question) for question in dataset.questions])
        return EvalResult(metrics, mistakes=_mistakes(best, dataset.questions))

    def calibrate(self, model: Model, dataset: QuestionSamples) -> AnswerTask:
        """The threshold of "no answer" is tuned on the dev set and kept with the model."""
        if not self.unanswerable or not dataset.samples:
            return self
        return replace(self, null_threshold=_tuned(self.decoded(model, dataset), dataset.questions))

    def columns(self, answers: Sequence[Answer], several: bool = False) -> dict[str, Any]:
        """What a table gets beside a question: the best answer, and with `several` the list of all."""
        rows: list[dict[str, Any]] = [
            {"answer": item.text, "start": item.start, "end": item.end, "probability": round(item.probability, 6)}
            for item in answers
        ]
        return rows[0] | ({"answers": rows} if several else {})

    def to_hf(self) -> dict[str, Any]:
        """What config.json says of the task; a null_threshold of null: there always is an answer."""
        return label_tables(self.labels) | {"null_threshold": self.threshold} | self.windows.to_hf()

    @classmethod
    def from_hf(cls, hf_config: Mapping[str, Any]) -> AnswerTask:
        """The task of a saved model."""
        limit = hf_config.get("null_threshold")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float)):
            raise ConfigError("config.json: null_threshold is not a number")
        return cls(Windows.from_hf(hf_config), limit is not None, None if limit is None else float(limit))


def _truths(question: Question) -> list[str]:
    return [text for text, _ in question.answers]


def _tuned(decoded: Sequence[Decoded], questions: Sequence[Question]) -> float:
    """The threshold with the best F1 on these questions; those without any span are not asked."""
    rows = [
        (found.margin, f1(found.answers(None)[0].text, _truths(question)), float(not question.answers))
        for found, question in zip(decoded, questions, strict=True)
        if found.spans
    ]
    margins, answered, unanswered = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return best_threshold(margins, answered, unanswered)


def _mistakes(best: Sequence[Answer], questions: Sequence[Question]) -> list[Mistake]:
    """The wrong answers that the model was surest of."""
    wrong = [
        Mistake(question.location, question.question, _told(truths), _told([answer.text]), answer.probability)
        for answer, question in zip(best, questions, strict=True)
        if not exact(answer.text, truths := _truths(question))
    ]
    return sorted(wrong, key=lambda mistake: -(mistake.probability or 0.0))[:MAX_MISTAKES]


def _told(answers: Sequence[str]) -> str:
    return next(iter(answers), "") or "(no answer)"


def answer_task(text_model: TextModel) -> AnswerTask:
    """The task that a loaded model was trained for."""
    if "span" not in text_model.model.heads:
        raise MissingHeadError(
            "this checkpoint has no question-answering head; train one with `kinfolk finetune --task answer`"
        )
    return AnswerTask.from_hf(text_model.hf_config)


def answer(text_model: TextModel, questions: Iterable[Question], top: int = 1) -> Iterator[list[Answer]]:
    """At most `top` answers that differ in text for each question, most probable first; streamed.

    "No answer" is among them if the model was trained on questions without one, or if the context has no words.
    """
    top = check_int("top", top)
    task = answer_task(text_model)
    for chunk in chunks(questions, CHUNK_QUESTIONS):
        yield from task.answers(text_model.model, task.dataset(text_model.tokenizer, chunk, text_model.context), top)


def make_question(pair: Any, location: str) -> Question:
    """A question about a context, as a user gave it."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
        raise InputError(f"{location}: expected a question and its context, found {str(pair)[:60]!r}")
    return Question("", pair[0], pair[1], (), location)
