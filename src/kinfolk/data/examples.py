"""What fine-tuning learns from: labelled texts, choices, tagged sentences and questions, each with where it stands.

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

    @property
    def origin(self) -> tuple[str, ...]:
        return self.content


@dataclass(frozen=True, slots=True)
class Choice:
    """A context and the options that could follow it; `answer` is the number of the right one, from 0."""

    context: str
    options: tuple[str, ...]
    answer: int | None
    location: str

    @property
    def content(self) -> tuple[str, ...]:
        return (self.context, *self.options)

    @property
    def origin(self) -> tuple[str, ...]:
        return self.content


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

    @property
    def origin(self) -> tuple[str, ...]:
        return self.content


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context; each answer is (text, first character in the context), none: it has no answer."""

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


@dataclass(frozen=True, slots=True)
class ReadResult(Generic[Item]):
    """The good rows of a file, how many were left out, the first of those as file:line: reason, and what was read."""

    examples: list[Item]
    bad: int
    reasons: tuple[str, ...]
    description: str = ""


LEARNED = {  # what each task learns from
    "classify": Example,
    "multilabel": Example,
    "regress": Example,
    "tag": Sentence,
    "answer": Question,
    "choose": Choice,
}


def to_example(given: Any, number: int) -> Any:
    """A tuple or list of text and label, or of text, pair and label, as an example; all else as it is.

    >>> to_example(("Lovely.", "good"), 0)
    Example(text='Lovely.', pair=None, label='good', location='example 0')
    """
    match given:
        case str(text), label:
            return Example(text, None, _plain_label(label), f"example {number}")
        case str(text), str(pair), label:
            return Example(text, pair, _plain_label(label), f"example {number}")
    return given


def _plain_label(label: Any) -> Any:
    """A list of labels as a tuple, a number of numpy's as Python's."""
    if isinstance(label, list):
        return tuple(label)
    return label.item() if hasattr(label, "item") and getattr(label, "shape", None) == () else label


def check_examples(given: Iterable[object], task: str) -> list[AnyExample]:
    """Examples that were made in a program, not read from a file: of the task's kind, with labels it can learn."""
    found: list[AnyExample] = []
    for number, example in enumerate(given):
        if not isinstance(example, LEARNED[task]):
            kind = LEARNED[task].__name__
            raise InputError(f"example {number} is {type_name(example)}; the task {task} learns from {kind}s")
        if isinstance(example, Example):
            example = replace(example, label=_of_task(example.label, task))
        if isinstance(example, Example) and not _fits(example.label, task):
            wanted = {"multilabel": "a tuple of names", "regress": "a finite number"}.get(task, "a name")
            raise InputError(f"{example.location}: the label {str(example.label)[:60]!r} is not {wanted}")
        found.append(example)  # type: ignore[arg-type]
    return found


def _of_task(label: Any, task: str) -> Any:
    """A label as a file would give it: the class 1 is called "1", the truth "true", and all numbers are floats."""
    if task == "classify" and isinstance(label, bool | int):
        return str(label).lower()
    return float(label) if task == "regress" and type(label) is int else label


def _fits(label: object, task: str) -> bool:
    if task == "multilabel":
        return isinstance(label, tuple) and all(isinstance(name, str) for name in label)
    if task == "regress":
        return isinstance(label, int | float) and not isinstance(label, bool) and math.isfinite(label)
    return isinstance(label, str) and bool(label)


def finished(
    examples: list[Item], problems: RowErrors, needs_some: bool = True, description: str = ""
) -> ReadResult[Item]:
    """The result of a reader, unless there are too many bad rows or no good one."""
    problems.raise_if_any()
    if needs_some and not examples:
        left_out = f" ({'; '.join(problems.messages)})" if problems.messages else ""
        raise DataError(f"{problems.location}: no examples in it{left_out}")
    return ReadResult(examples, problems.count, tuple(problems.messages), description)


def numbers_of(examples: Iterable[AnyExample]) -> list[float]:
    """The labels that are numbers."""
    labels = (example.label for example in examples if isinstance(example, Example))
    return [label for label in labels if isinstance(label, float)]


def fingerprint(texts: tuple[str, ...]) -> bytes:
    """Equal for texts that are the same, case and the width of blanks aside; a hash, as contexts are long and many."""
    plain = "\0".join(" ".join(text.split()).casefold() for text in texts)
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()
