"""What training, saving and evaluation want to know of a task: one protocol, a file for each kind.

classify, multilabel, regress   whole texts and pairs   text.py
tag                             words                   tag.py
answer                          spans of a context      answer.py
choose                          one of several options  choice.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from kinfolk.errors import ConfigError, InputError
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.tasks.windows import DEFAULT_WINDOWS, Windows
from kinfolk.text.tokenizer import Tokenizer

MAX_MISTAKES = 20  # most confident errors that are listed


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
    """Metrics (the first one selects the best checkpoint, higher is better), the confusion matrix of classes (rows:
    true label, columns: predicted label) and the most confident errors."""

    metrics: dict[str, float]
    confusion: list[list[int]] | None = None
    mistakes: Sequence[Mistake] = ()

    @property
    def selection_score(self) -> float:
        """What checkpoints are compared by; without a dev set they are not."""
        return next(iter(self.metrics.values()), 0.0)


@dataclass(frozen=True)
class TaskOptions:
    """What a user may ask of a task; a task refuses what it cannot use."""

    class_weights: str | Mapping[str, float] | None = None  # of classes and tags
    crf: bool = False  # of tags: score whole paths, not words one by one
    windows: Windows = DEFAULT_WINDOWS

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
    """Examples as the model reads them, with whatever the task needs to evaluate the scores."""

    @property
    def samples(self) -> Sequence[Sample]:
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

    def unseen_labels(self, examples: Sequence[Any]) -> list[str]:
        """Labels of these examples that training did not see, and which are therefore never found."""

    def dataset(self, tokenizer: Tokenizer, examples: Sequence[Any], size: int) -> Dataset:
        """Examples for training or evaluation, read by a model that takes `size` tokens at once."""

    def evaluate(self, model: Model, dataset: Any) -> EvalResult:
        """How good the model is on a dataset."""

    def calibrate(self, model: Model, dataset: Any) -> Self:
        """The task of a model at the end of its training, with what is tuned on the dev set (which may be empty)."""

    def columns(self, prediction: Any) -> dict[str, Any]:
        """What a table gets beside an example."""

    def to_hf(self) -> dict[str, Any]:
        """What config.json says of the task, label names included."""


def label_names(hf_config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The names of a saved model's labels; LABEL_0, LABEL_1 … where its config names none."""
    names = hf_config.get("id2label") or {}
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ConfigError("config.json: id2label is not a table of names")
    return tuple(names.get(str(index), f"LABEL_{index}") for index in range(count))


def label_tables(labels: Sequence[str]) -> dict[str, Any]:
    """The names of labels as config.json has them."""
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
