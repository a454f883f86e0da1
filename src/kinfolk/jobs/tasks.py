"""The task that examples pose, and the task of a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kinfolk.errors import InputError, MissingHeadError
from kinfolk.jobs.classify import text_task
from kinfolk.jobs.loaded import Encoder
from kinfolk.jobs.task import Task, TaskOptions
from kinfolk.jobs.text_task import KINDS, TextTask


def pose(kind: str, examples: Sequence[Any], options: TaskOptions) -> Task:
    """What examples ask for, on the labels that occur in them."""
    if kind in KINDS:
        return TextTask.of(kind, examples, options)
    raise InputError(f"the task {kind} cannot be trained yet")


def saved_task(encoder: Encoder) -> Task:
    """The task that a loaded model was trained for."""
    if "classify" in encoder.model.heads:
        return text_task(encoder)
    raise MissingHeadError("this checkpoint was trained for no task; train one with `kinfolk finetune`")
