"""Training examples: labelled texts, choices, tagged sentences and questions, each with its location in a file.

`content` is every text that the model will read of an example, `origin` what must not be on both sides of a split.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from kinfolk.errors import DataError, InputError, RowErrors, type_name

Label = str | float | tuple[str, ...]  # a class, a number, or any number of labels


@dataclass(frozen=True, slots=True)
class Example:
    """A text, or a pair of texts, with its label; the label is None where it is to be predicted."""

    text: str
    pair: str | None
    label: Label | None
    location: str

    @property
    def content(self) -> tuple[str, ...]:
        return (self.text,) if self.pair is None else (self.text, self.pair)

    origin = content


@dataclass(frozen=True, slots=True)
class Choice:
    """A context and the options that could follow it; `answer` is the index of the right one, from 0."""

    context: str
    options: tuple[str, ...]
    answer: int | None
    location: str

    @property
    def content(self) -> tuple[str, ...]:
        return (self.context, *self.options)

    origin = content


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words with a tag each (spans in IOB2), and perhaps a label for the whole, such as an intent."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    label: str | None
    location: str

    @property
    def content(self) -> tuple[str, ...]:
        return (" ".join(self.words),)

    origin = content


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context; each answer is (text, index of its first character); unanswerable without any."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    location: str

    @property
    def content(self) -> tuple[str, ...]:
        return (self.question, self.context)

    @property
    def origin(self) -> tuple[str, ...]:
        return (self.context,)


AnyExample = Example | Choice | Sentence | Question
Item = TypeVar("Item", Example, Choice, Sentence, Question)
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class ReadResult(Generic[Read]):
    """The good rows of a file, the number of bad ones, the first of those as file:line: reason, and what was read."""

    examples: list[Read]
    bad: int
    reasons: tuple[str, ...] = ()
    description: str = ""


def to_example(value: Any, index: int) -> Any:
    """A tuple or list of text and label, or of text, pair and label, as an example; anything else unchanged.

    >>> to_example(("Lovely.", "good"), 0)
    Example(text='Lovely.', pair=None, label='good', location='example 0')
    """
    match value:
        case str(text), label:
            return Example(text, None, _python_label(label), f"example {index}")
        case str(text), str(pair), label:
            return Example(text, pair, _python_label(label), f"example {index}")
    return value


def _python_label(label: Any) -> Any:
    """A list of labels as a tuple, a NumPy scalar as a Python number."""
    if isinstance(label, list):
        return tuple(label)
    return label.item() if hasattr(label, "item") and getattr(label, "shape", None) == () else label


def check_examples(examples: Iterable[object], task: str) -> list[AnyExample]:
    """Examples that were made in a program, not read from a file: of the task's type, with labels that fit it."""
    expected: type = {"tag": Sentence, "answer": Question, "choose": Choice}.get(task, Example)
    checked: list[Any] = []
    for index, example in enumerate(examples):
        if not isinstance(example, expected):
            name = expected.__name__
            raise InputError(f"example {index} is {type_name(example)}; the task {task} is trained on {name}s")
        if isinstance(example, Example):
            example = replace(example, label=_normalize_label(example.label, task))
            if not _is_label(example.label, task):
                wanted = {"multilabel": "a tuple of names", "regress": "a finite number"}.get(task, "a name")
                raise InputError(f"{example.location}: the label {str(example.label)[:60]!r} is not {wanted}")
        checked.append(example)
    return checked


def _normalize_label(label: Any, task: str) -> Any:
    """A label as a file would give it: the class 1 is "1", True is "true", and all numbers are floats."""
    if task == "classify" and isinstance(label, bool | int):
        return str(label).lower()
    return float(label) if task == "regress" and type(label) is int else label


def _is_label(label: object, task: str) -> bool:
    if task == "multilabel":
        return isinstance(label, tuple) and all(isinstance(name, str) for name in label)
    if task == "regress":
        return isinstance(label, int | float) and not isinstance(label, bool) and math.isfinite(label)
    return isinstance(label, str) and bool(label)


def read_result(
    examples: list[Read], errors: RowErrors, needs_some: bool = True, description: str = ""
) -> ReadResult[Read]:
    """The result of a reader, unless there are too many bad rows or no good one."""
    errors.raise_if_any()
    if needs_some and not examples:
        skipped = f" ({'; '.join(errors.messages)})" if errors.messages else ""
        raise DataError(f"{errors.location}: no examples in it{skipped}")
    return ReadResult(examples, errors.count, tuple(errors.messages), description)


def numeric_labels(examples: Iterable[AnyExample]) -> list[float]:
    """The labels that are numbers."""
    labels = (example.label for example in examples if isinstance(example, Example))
    return [label for label in labels if isinstance(label, float)]


def fingerprint(texts: tuple[str, ...]) -> bytes:
    """Equal for texts that differ at most in case and in the width of spaces; a hash, as contexts are long and many."""
    plain = "\0".join(" ".join(text.split()).casefold() for text in texts)
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()
