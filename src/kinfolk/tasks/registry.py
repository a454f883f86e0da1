"""The task that examples pose, and the task of a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kinfolk.api.answer import answer_task
from kinfolk.api.choose import choice_task
from kinfolk.api.classify import text_task
from kinfolk.api.loaded import Encoder
from kinfolk.api.tag import tag_task
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.tasks.answer import AnswerTask
from kinfolk.tasks.choice import ChoiceTask
from kinfolk.tasks.tag import HEADS, TagTask
from kinfolk.tasks.task import Task, TaskOptions
from kinfolk.tasks.text import KINDS, TextTask


def make_task(kind: str, examples: Sequence[Any], options: TaskOptions) -> Task:
    """What examples ask for, on the labels that occur in them."""
    if kind in KINDS:
        return TextTask.of(kind, examples, options)
    if kind == "tag":
        return TagTask.of(examples, options)
    if kind == "answer":
        return AnswerTask.of(examples, options)
    if kind == "choose":
        return ChoiceTask.of(options)
    raise InputError(f"the task {kind} cannot be trained yet")


def saved_task(encoder: Encoder) -> Task:
    """The task that a loaded model was trained for."""
    if "classify" in encoder.model.heads:
        return text_task(encoder)
    if any(head in encoder.model.heads for head in HEADS.values()):
        return tag_task(encoder)
    if "span" in encoder.model.heads:
        return answer_task(encoder)
    if "choose" in encoder.model.heads:
        return choice_task(encoder)
    raise MissingHeadError("this checkpoint was trained for no task; train one with `kinfolk finetune`")
