"""Training examples: labelled texts, choices, tagged sentences and questions, each with its location in a file.

`content` is every text that the model will read of an example, `origin` what must not be on both sides of a split.
"""

from __future__ import annotations

import hashlib
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from kinfolk.errors import DataError, InputError, RowErrors, type_name

DECILES = 10
DEV_SHARE, MAX_DEV_PAIRS = 0.1, 2_000
Label = str | float | tuple[str, ...]  # a class, a number, or any number of labels
ExampleType = TypeVar("ExampleType")  # an example of any task, or a pair


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
FORMS: dict[str, type] = {"tag": Sentence, "answer": Question, "choose": Choice}  # by task; all others have Example


@dataclass(frozen=True, slots=True)
class ReadResult(Generic[ExampleType]):
    """The good rows of a file, the number of bad ones, the first of those as file:line: reason, and what was read."""

    examples: list[ExampleType]
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
            pair = None
        case str(text), str(pair), label:
            pass
        case _:
            return value
    if isinstance(label, list):
        label = tuple(label)
    elif hasattr(label, "item") and getattr(label, "shape", None) == ():  # a NumPy scalar
        label = label.item()
    return Example(text, pair, label, f"example {index}")


def check_examples(examples: Iterable[object], task: str) -> list[AnyExample]:
    """Examples that were made in a program, not read from a file: of the task's type, with labels that fit it. Labels
    become what a file would give: the class 1 is "1", True is "true", and all numbers are floats."""
    expected: type = FORMS.get(task, Example)
    checked: list[Any] = []
    for index, example in enumerate(examples):
        if not isinstance(example, expected):
            name = expected.__name__
            raise InputError(f"example {index} is {type_name(example)}; the task {task} is trained on {name}s")
        checked.append(_with_label(example, task) if isinstance(example, Example) else example)
    return checked


def _with_label(example: Example, task: str) -> Example:
    given: Any = example.label
    match task, given:
        case "multilabel", tuple(names) if all(isinstance(name, str) for name in names):
            return example
        case "regress", number if to_number(number) is not None:
            return replace(example, label=to_number(number))
        case "classify", (bool() | int()) as name:
            return replace(example, label=str(name).lower())
        case "classify", str(name) if name:
            return example
    wanted = {"multilabel": "a tuple of names", "regress": "a finite number"}.get(task, "a name")
    raise InputError(f"{example.location}: the label {str(example.label)[:60]!r} is not {wanted}")


def read_result(examples: list[ExampleType], errors: RowErrors, description: str = "") -> ReadResult[ExampleType]:
    """The result of a reader, unless there are too many bad rows or no good one."""
    errors.raise_if_any()
    if not examples:
        skipped = f" ({'; '.join(errors.messages)})" if errors.messages else ""
        raise DataError(f"{errors.location}: no examples in it{skipped}")
    return ReadResult(examples, errors.count, tuple(errors.messages), description)


def numeric_labels(examples: Iterable[AnyExample]) -> list[float]:
    return [label for example in examples if isinstance(label := getattr(example, "label", None), float)]


def label_names(example: AnyExample) -> tuple[str, ...]:
    """What is counted of an example: its class, labels or tags, the index of its answer, or whether it has one."""
    match example:
        case Example(label=str(label)):
            return (label,)
        case Example(label=tuple(names)) | Sentence(tags=tuple(names)):
            return names
        case Choice(answer=int(answer)):
            return (f"option {answer}",)
        case Question():
            return ("with answer",) if example.answers else ("without answer",)
    return ()


def to_number(value: Any, texts: bool = False) -> float | None:
    """A finite number as a float, `texts` also the one that a text spells; None for anything else."""
    try:
        number = math.nan if isinstance(value, bool) or (isinstance(value, str) and not texts) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def fingerprint(texts: tuple[str, ...]) -> bytes:
    """Equal for texts that differ at most in case and in the width of spaces; a hash, as contexts are long and many."""
    plain = "\0".join(" ".join(text.split()).casefold() for text in texts)
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def stratified_split(
    examples: Sequence[ExampleType], share: float = DEV_SHARE, seed: int = 0
) -> tuple[list[ExampleType], list[ExampleType]]:
    """(train, dev): about `share` of the examples is held out, at least one text; file order is kept on both sides.
    Examples of the same `origin`, but for case and blanks, stay together. Classes keep their shares, numbers those of
    their deciles. The first text of every class and the last one of any label or tag stay in train. Walks through the
    shuffled groups, stratum by stratum, and takes one whenever too few are held out so far."""
    if not 0 < share < 1:
        raise InputError(f"share={share} is not between 0 and 1")
    strata = _strata(examples)
    left = Counter(name for groups in strata for group in groups for name in _names(examples, group))

    def spare(group: list[int]) -> bool:  # does the training part have its labels and tags in another group too?
        return all(left[name] > 1 for name in _names(examples, group))

    generator = random.Random(f"{seed} split")
    seen = generator.random() / share  # where the walk begins, so that no stratum is always rounded down
    dev: set[int] = set()
    for groups in strata:
        generator.shuffle(groups)
        for index, group in enumerate(groups):
            seen += len(group)
            due = (index or len(strata) == 1) and len(dev) + len(group) <= share * seen
            if due and spare(group):
                dev.update(group)
                left.subtract(_names(examples, group))
    if not dev:
        largest = max(strata, key=len, default=[])
        spared = [group for group in largest if spare(group)]
        if len(largest) < 2 or not spared:
            single = 2 * len(strata) > len(examples) > 1  # most classes have one example
            hint = "most labels occur once (numbers are --task regress; is it the right column?), or " if single else ""
            raise DataError(f"{len(examples)} examples are too few to hold some out: {hint}give a file of others")
        dev = {*min(spared, key=len)}
    return _sides(examples, dev)


def split_pairs(
    pairs: Sequence[ExampleType], limit: int = MAX_DEV_PAIRS, seed: int = 0
) -> tuple[list[ExampleType], list[ExampleType]]:
    """(train, dev) of pairs: a tenth is held out for dev, but at most 2,000; no source is on both sides."""
    groups = _groups(pairs)
    if len(groups) < 2:
        raise DataError(f"{len(pairs)} pairs with {len(groups)} sources are too few to hold some out; give a dev file")
    wanted = max(1, min(limit, int(DEV_SHARE * len(pairs))))
    random.Random(f"{seed} split").shuffle(groups)
    dev: set[int] = set()
    for group in groups[:-1]:  # one source stays in any case
        if len(dev) + len(group) <= wanted:
            dev.update(group)
    if not dev:
        dev = {*min(groups, key=len)}
    return _sides(pairs, dev)


def _sides(examples: Sequence[ExampleType], dev: set[int]) -> tuple[list[ExampleType], list[ExampleType]]:
    train = [example for index, example in enumerate(examples) if index not in dev]
    return train, [examples[index] for index in sorted(dev)]


def _groups(examples: Sequence[Any]) -> list[list[int]]:
    groups: dict[bytes, list[int]] = {}
    for index, example in enumerate(examples):
        groups.setdefault(fingerprint(example.origin), []).append(index)
    return list(groups.values())


def _strata(examples: Sequence[Any]) -> list[list[list[int]]]:
    numbers = sorted(numeric_labels(examples))
    cuts = [numbers[len(numbers) * decile // DECILES] for decile in range(1, DECILES)] if numbers else []
    strata: dict[str, list[list[int]]] = {}
    for group in _groups(examples):
        first = examples[group[0]]
        label = first.label if isinstance(first, Example) else None
        name = str(bisect_right(cuts, label)) if isinstance(label, float) else label if isinstance(label, str) else ""
        strata.setdefault(name, []).append(group)
    return [strata[name] for name in sorted(strata)]


def _names(examples: Sequence[Any], group: list[int]) -> set[str]:
    labelled = (examples[index] for index in group if isinstance(examples[index], Example | Sentence))
    return {name for example in labelled for name in label_names(example)}
