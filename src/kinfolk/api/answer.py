"""Answers to questions from their contexts, by a model trained for it; streamed, so that memory stays flat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kinfolk.api.loaded import Encoder
from kinfolk.data.batching import chunks
from kinfolk.data.examples import Question
from kinfolk.errors import InputError, MissingHeadError, check_int
from kinfolk.tasks.answer import AnswerTask
from kinfolk.tasks.spans import Answer

CHUNK = 512  # questions


def answer_task(encoder: Encoder) -> AnswerTask:
    """The task that a loaded model was trained for."""
    if "span" not in encoder.model.heads:
        raise MissingHeadError("this checkpoint answers no questions; train it with `kinfolk finetune --task answer`")
    return AnswerTask.from_hf(encoder.public)


def answer(encoder: Encoder, pairs: Iterable[tuple[str, str]], top: int = 1) -> Iterator[list[Answer]]:
    """At most `top` answers that differ in text for each (question, context), most probable first.

    "No answer" is among them if the model was trained on questions without one, or if the context has no words.
    """
    questions = (asked(pair, f"question {number}") for number, pair in enumerate(pairs, start=1))
    return answer_questions(encoder, questions, top)


def answer_questions(encoder: Encoder, questions: Iterable[Question], top: int = 1) -> Iterator[list[Answer]]:
    """As `answer`, for questions that know where they stand; their own answers are not looked at."""
    top = check_int("top", top)
    task = answer_task(encoder)
    for chunk in chunks(questions, CHUNK):
        yield from task.answers(encoder.model, task.dataset(encoder.tokenizer, chunk, encoder.context), top)


def asked(pair: Any, where: str) -> Question:
    """A question about a context, as someone gave it."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
        raise InputError(f"{where}: expected a question and its context, found {str(pair)[:60]!r}")
    return Question("", pair[0], pair[1], (), where)
