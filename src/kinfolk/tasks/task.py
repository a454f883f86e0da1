"""What training, saving and judging want to know of a task: one protocol, a file for each kind.

classify, multilabel, regress   whole texts and pairs   text_task.py
tag                             words                   tag_task.py
answer                          spans of a context      answer_task.py
choose                          one of several options  choice_task.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

from kinfolk.errors import ConfigError, InputError, check_int
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Mistake:
    """An example that the model got wrong, and how sure it was; of numbers, which are never quite right, None."""

    where: str
    text: str
    truth: str
    guess: str
    probability: float | None


@dataclass(frozen=True)
class EvalResult:
    """Metrics (the first one decides which checkpoint is best, higher is better); where there are classes, who was
    taken for whom, (truth, guess); and the most confident mistakes."""

    metrics: dict[str, float]
    confusion: list[list[int]] | None = None
    mistakes: Sequence[Mistake] = ()

    @property
    def selection_score(self) -> float:
        """What decides; without a dev set nothing does."""
        return next(iter(self.metrics.values()), 0.0)


@dataclass(frozen=True)
class Windows:
    """How long texts are read: so many tokens at once, neighbours sharing `stride` of them.

    Without a window as many as the model reads; without a stride a quarter of what fits.
    """

    window: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None:
            check_int("window", self.window)
        if self.stride is not None:
            check_int("stride", self.stride, 0)

    def size(self, context: int, specials: int) -> int:
        """Tokens of a window, for a model that reads `context` at once, `specials` of them special ones."""
        if self.window is not None and self.window > context:
            raise InputError(f"window={self.window} is more than the {context} tokens that the model reads at once")
        size = context if self.window is None else self.window
        if size <= specials:
            raise InputError(f"window={size} leaves no room for text beside {specials} special tokens")
        if self.stride is not None and self.stride >= size - specials:
            raise InputError(f"stride={self.stride} leaves nothing new in a window of {size - specials} tokens of text")
        return size

    def to_hf(self) -> dict[str, Any]:
        """What config.json keeps of it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_hf(cls, public: Mapping[str, Any]) -> Self:
        """What a saved model was trained with."""
        found = {name: public.get(name) for name in ("window", "stride")}
        for name, value in found.items():
            if value is not None and not (type(value) is int and value >= 0):
                raise ConfigError(f"config.json: {name} is not a number of tokens")
        return cls(**found)


WHOLE = Windows()


@dataclass(frozen=True)
class TaskOptions:
    """What a user may ask of a task; a task refuses what it cannot use."""

    class_weights: str | Mapping[str, float] | None = None  # of classes and tags
    crf: bool = False  # of tags: score whole paths, not words one by one
    windows: Windows = WHOLE

    def __post_init__(self) -> None:
        weights = self.class_weights
        if weights is not None and not isinstance(weights, str | Mapping):
            raise InputError(f'class_weights={str(weights)[:60]}: use "balanced" or a weight for each class by name')

    def refuse(self, kind: str, *names: str) -> None:
        """An option that means nothing for the task is an error, not a silence."""
        for name in names:
            if getattr(self, name) not in (None, False):
                raise InputError(f"{name} has no meaning for the task {kind}")


class Dataset(Protocol):
    """Examples as the model reads them, with whatever the task needs to judge the scores."""

    @property
    def items(self) -> Sequence[Sample]:
        """What is packed."""


class Task(Protocol):
    """A kind of task on known labels."""

    @property
    def kind(self) -> str:
        """The name that a user gives it."""

    @property
    def head(self) -> str:
        """The family's head that it trains."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What the head's scores stand for."""

    def objective(self, model: Model) -> Objective:
        """The loss on a model of the family."""

    def unseen(self, examples: Sequence[Any]) -> list[str]:
        """Labels of these examples that training did not see, and which are therefore never found."""

    def dataset(self, tokenizer: Tokenizer, examples: Sequence[Any], size: int) -> Dataset:
        """Examples for training or judging, read by a model that takes `size` tokens at once."""

    def judge(self, model: Model, dataset: Any) -> EvalResult:
        """How good the model is on the material."""

    def calibrate(self, model: Model, dataset: Any) -> Self:
        """The task of a model at the end of its training, with what is tuned on the dev set (which may be empty)."""

    def columns(self, prediction: Any) -> dict[str, Any]:
        """What a table gets beside an example."""

    def to_hf(self) -> dict[str, Any]:
        """What config.json says of the task, label names included."""


def label_names(public: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The names of a saved model's labels; LABEL_0, LABEL_1 … where its config names none."""
    names = public.get("id2label") or {}
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ConfigError("config.json: id2label is not a table of names")
    return tuple(names.get(str(number), f"LABEL_{number}") for number in range(count))


def label_tables(labels: Sequence[str]) -> dict[str, Any]:
    """The names of labels as config.json has them."""
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
