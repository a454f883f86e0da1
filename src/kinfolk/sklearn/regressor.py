"""Numbers for texts and pairs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from kinfolk.api.classify import score_texts
from kinfolk.data.examples import Example
from kinfolk.errors import InputError
from kinfolk.sklearn.inputs import same_length, texts_of
from kinfolk.sklearn.learner import TextLearner


class TextRegressor(RegressorMixin, TextLearner):  # type: ignore[misc]
    """A model of the family, trained to give a number.

    X holds texts, or pairs of texts (tuples of two, or two columns), y a number for each; numbers of any size are
    learned alike. The parameters are explained in `TextLearner` (learner.py).
    """

    def __init__(
        self,
        model: str | Path = "demo",
        epochs: float = 3.0,
        minutes: float | None = None,
        learning_rate: float = 5e-5,
        batch_size: int = 32,
        schedule: str = "linear",
        layer_decay: float = 1.0,
        freeze: int = 0,
        gradual_unfreezing: float = 0.0,
        window: int | None = None,
        stride: int | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = 0,
        device: str = "auto",
        verbose: bool | int = False,
    ):
        self.model = model
        self.epochs = epochs
        self.minutes = minutes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.schedule = schedule
        self.layer_decay = layer_decay
        self.freeze = freeze
        self.gradual_unfreezing = gradual_unfreezing
        self.window = window
        self.stride = stride
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on texts and their numbers."""
        texts, numbers = texts_of(X), numbers_of(y)
        same_length(texts, numbers)
        examples = []
        for place, (text, number) in enumerate(zip(texts, numbers, strict=True)):
            first, second = (text, None) if isinstance(text, str) else text
            examples.append(Example(first, second, number, f"text {place}"))
        self._learn("regress", examples)
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The numbers, (texts,)."""
        check_is_fitted(self)
        chunks = [scores[:, 0] for scores in score_texts(self.encoder_, texts_of(X))]
        return np.concatenate([np.zeros(0), *chunks])


def numbers_of(y: Any) -> list[float]:
    """The numbers of a list, array, Series or one-column frame."""
    shape = getattr(y, "shape", (0,))
    if shape[1:] not in ((), (1,)):
        raise InputError(f"y has shape {tuple(shape)}; give one number for each text")
    found = list(y) if not hasattr(y, "shape") else np.asarray(y, dtype=object).reshape(-1).tolist()
    for place, number in enumerate(found):
        if isinstance(number, bool | str) or not _finite(number):
            raise InputError(f"label {place} is {str(number)[:40]!r}, expected a finite number")
    return [float(number) for number in found]


def _finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except (TypeError, OverflowError):
        return False
