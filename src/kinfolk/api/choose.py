"""The option that fits a context best, from a model that was trained to choose; streamed, so that memory stays flat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kinfolk.api.loaded import Encoder
from kinfolk.data.batching import chunks
from kinfolk.data.examples import Choice
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.tasks.choice import ChoiceTask, Chosen

CHUNK_CHOICES = 512


def choice_task(encoder: Encoder) -> ChoiceTask:
    """The task that a loaded model was trained for."""
    if "choose" not in encoder.model.heads:
        raise MissingHeadError("this checkpoint cannot choose; train it with `kinfolk finetune --task choose`")
    return ChoiceTask.from_hf(encoder.public)


def choose(encoder: Encoder, choices: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Chosen]:
    """What the model takes of each (context, options)."""
    return choose_all(encoder, (_choice(number, given) for number, given in enumerate(choices, start=1)))


def choose_all(encoder: Encoder, choices: Iterable[Choice]) -> Iterator[Chosen]:
    """As `choose`, for choices that know where they stand; their answers are not looked at."""
    task = choice_task(encoder)
    for chunk in chunks(choices, CHUNK_CHOICES):
        yield from task.chosen(encoder.model, task.dataset(encoder.tokenizer, chunk, encoder.context))


def _choice(number: int, given: Any) -> Choice:
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], tuple | list):
        context, options = given[0], tuple(given[1])
        if len(options) > 1 and all(isinstance(text, str) for text in (context, *options)):
            return Choice(context, options, None, f"choice {number}")
    raise InputError(f"choice {number}: expected a context and two or more options, found {str(given)[:60]!r}")
