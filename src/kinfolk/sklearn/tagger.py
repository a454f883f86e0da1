"""Tags for the words of texts: names, parts of speech."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kinfolk.api.tag import tag, tag_chances, tag_task
from kinfolk.data.examples import Sentence
from kinfolk.data.tagging import detect_scheme, to_iob2
from kinfolk.errors import InputError
from kinfolk.sklearn.inputs import items_of, same_length
from kinfolk.sklearn.learner import TextLearner
from kinfolk.tasks.tagged import places_of

Tags = tuple[str, ...]


class TextTagger(TextLearner):
    """A model of the family, trained to give each word a tag.

    X holds texts, each a list of words or a string, which is split as `kinfolk.Encoder.tag` splits it. y holds a list
    of tags for each, a tag per word. Tags that mark spans are learned and predicted in IOB2, whatever scheme y has;
    others, such as parts of speech, stay as they are. With `crf` whole sentences are scored, not words one by one.
    `classes_` are the tags in sorted order.

    `class_weight` is "balanced" or a weight by tag. The other parameters are explained in `TextLearner`
    (learner.py).
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
        class_weight: str | Mapping[str, float] | None = None,
        crf: bool = False,
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
        self.crf = crf
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on texts and the tags of their words."""
        sentences, tags = words_of(X), tags_of(y)
        same_length(sentences, tags)
        examples = []
        for number, (words, own) in enumerate(zip(sentences, tags, strict=True)):
            if len(words) != len(own):
                raise InputError(f"text {number} has {len(words)} words, y {len(own)} tags for it")
            examples.append(Sentence(tuple(words), own, None, f"text {number}"))
        self._learn("tag", examples, self.class_weight, bool(self.crf))
        self.classes_ = np.array(sorted({name for own in tags for name in own}))
        return self

    def predict(self, X: Any) -> list[list[str]]:  # noqa: N803
        """The tags of every text's words."""
        check_is_fitted(self)
        return [[word.tag for word in found.words] for found in tag(self.encoder_, words_of(X))]

    def predict_proba(self, X: Any) -> list[np.ndarray]:  # noqa: N803
        """Of each text (words, classes), in the order of `classes_`; rows sum to 1.

        With `crf` a word's probabilities are over all paths of its sentence. `predict` takes the best path as a whole,
        so that a word's tag need not be its most probable one.
        """
        check_is_fitted(self)
        labels = tag_task(self.encoder_).labels
        order = [labels.index(name) for name in self.classes_]  # no tag is held out altogether, so training saw all
        return [found[:, order] for found in tag_chances(self.encoder_, words_of(X))]

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """F1 of whole entities, as conlleval counts them; the share of right words where tags mark no spans."""
        from kinfolk.training.metrics import tagging

        check_is_fitted(self)
        sentences, truth = words_of(X), tags_of(y)
        same_length(sentences, truth)
        guesses = self.predict(sentences)
        for number, (own, found) in enumerate(zip(truth, guesses, strict=True)):
            if len(own) != len(found):
                raise InputError(f"text {number} has {len(found)} words, y {len(own)} tags for it")
        return next(iter(tagging(truth, guesses).values()))


def words_of(X: Any) -> list[list[str]]:  # noqa: N803
    """The words of each text."""
    sentences = []
    for number, item in enumerate(items_of(X)):
        given = item.tolist() if isinstance(item, np.ndarray) else item
        text, places = places_of(given, f"text {number}")
        sentences.append([text[start:end] for start, end in places])
    return sentences


def tags_of(y: Any) -> list[Tags]:
    """The tags of each text, in IOB2 where they mark spans."""
    rows: list[Tags] = []
    for number, item in enumerate(items_of(y)):
        own = item.tolist() if isinstance(item, np.ndarray) else item
        if not isinstance(own, list | tuple) or not all(isinstance(name, str) and name for name in own):
            raise InputError(f"y holds {str(own)[:40]!r} for text {number}; expected a list of tags, one for each word")
        rows.append(tuple(own))
    scheme = detect_scheme(rows)
    for number, tags in enumerate(rows):
        try:
            rows[number] = to_iob2(tags, scheme)
        except InputError as error:
            raise InputError(f"text {number}, {error}") from None
    return rows
