"""The task that examples pose, and the task of a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kinfolk.checkpoints.text_model import TextModel
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.tasks.answer import AnswerTask, answer_task
from kinfolk.tasks.choice import ChoiceTask, choice_task
from kinfolk.tasks.tag import HEADS, TagTask, tag_task
from kinfolk.tasks.task import Task, TaskOptions
from kinfolk.tasks.text import KINDS, TextTask, text_task


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


def saved_task(text_model: TextModel) -> Task:
    """The task that a loaded model was trained for."""
    if "classify" in text_model.model.heads:
        return text_task(text_model)
    if any(head in text_model.model.heads for head in HEADS.values()):
        return tag_task(text_model)
    if "span" in text_model.model.heads:
        return answer_task(text_model)
    if "choose" in text_model.model.heads:
        return choice_task(text_model)
    raise MissingHeadError("this checkpoint was trained for no task; train one with `kinfolk finetune`")
