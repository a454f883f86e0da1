"""Classes, or any number of labels, for texts and pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from kinfolk.api.classify import score_texts, text_task
from kinfolk.data.examples import Example
from kinfolk.errors import InputError
from kinfolk.sklearn.inputs import same_length, texts_of
from kinfolk.sklearn.labels import LISTS, ONE, TABLE, names_of, read_labels
from kinfolk.sklearn.learner import TextLearner
from kinfolk.text.tokenizer import Text
from kinfolk.training.activations import probabilities, softmax


class TextClassifier(ClassifierMixin, TextLearner):  # type: ignore[misc]
    """A model of the family, trained to tell classes apart.

    X holds texts, or pairs of texts (tuples of two, or two columns). y holds a label of any hashable kind for each; or,
    where texts may have any number of labels, a list of labels for each or a table of zeros and ones with a column per
    label. `classes_` are the labels in sorted order, and predictions have the labels' own type. Thresholds for several
    labels are tuned on the held-out part.

    `class_weight` is "balanced" or a weight by label. The other parameters are explained in `TextLearner`
    (learner.py). For cross-validation scikit-learn itself wants several labels as a table: see its MultiLabelBinarizer.
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
        class_weight: str | Mapping[Any, float] | None = None,
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
        self.class_weight = class_weight
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on texts and their labels."""
        texts, labels = texts_of(X), read_labels(y)
        same_length(texts, labels.rows)
        if labels.form != ONE and not any(labels.rows):
            raise InputError("no text has a label; there is nothing to learn")
        examples = [
            Example(text, None, label, f"text {number}")
            if isinstance(text, str)
            else Example(*text, label, f"text {number}")
            for number, (text, label) in enumerate(zip(texts, labels.names(), strict=True))
        ]
        self._learn("classify" if labels.form == ONE else "multilabel", examples, self._weights())
        self.classes_, self.label_form_ = labels.classes, labels.form
        return self

    def _weights(self) -> str | dict[str, float] | None:
        """The weights by the labels' names."""
        if self.class_weight is None or isinstance(self.class_weight, str):
            return self.class_weight
        if not isinstance(self.class_weight, Mapping):
            raise InputError('class_weight is "balanced" or a table of weights by label')
        return {str(label): weight for label, weight in self.class_weight.items()}

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """(texts, classes), in the order of `classes_`. Rows sum to 1, unless texts may have several labels."""
        check_is_fitted(self)
        scores = self._scores(texts_of(X))
        return softmax(scores) if self.label_form_ == ONE else probabilities(scores)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The labels as y had them: an array of labels, a list of lists, or a table of zeros and ones."""
        chances = self.predict_proba(X)
        if self.label_form_ == ONE:
            return self.classes_[chances.argmax(1)]
        given = chances >= self._thresholds()
        if self.label_form_ == TABLE:
            return given.astype(int)
        return [self.classes_[row].tolist() for row in given]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The share of texts whose label, or whole set of labels, is right."""
        check_is_fitted(self)
        texts, truth = texts_of(X), read_labels(y)
        same_length(texts, truth.rows)
        guesses = self.predict(texts)
        if truth.form != self.label_form_ or (truth.form == TABLE and len(truth.classes) != len(self.classes_)):
            raise InputError("y has another form than the y of fit: see the documentation of TextClassifier")
        if truth.form == ONE:
            right = [guess == label for guess, label in zip(guesses.tolist(), truth.rows, strict=True)]
        else:
            sets = guesses if truth.form == LISTS else [truth.classes[row == 1].tolist() for row in guesses]
            right = [set(guess) == set(labels) for guess, labels in zip(sets, truth.rows, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def _columns(self) -> list[tuple[int, int]]:
        """(place in `classes_`, place in the model) of each label that training saw."""
        places = {name: place for place, name in enumerate(text_task(self.encoder_).labels)}
        return [(place, places[name]) for place, name in enumerate(names_of(self.classes_)) if name in places]

    def _scores(self, texts: list[Text]) -> np.ndarray:
        ours, theirs = zip(*self._columns(), strict=True)
        scores = np.full((len(texts), len(self.classes_)), -np.inf)
        chunks = list(score_texts(self.encoder_, texts))
        if chunks:
            scores[:, ours] = np.concatenate(chunks)[:, theirs]
        return scores

    def _thresholds(self) -> np.ndarray:
        limits = np.full(len(self.classes_), 0.5)
        found = text_task(self.encoder_).thresholds
        for ours, theirs in self._columns():
            limits[ours] = 0.5 if found is None else found[theirs]
        return limits

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
