"""The four estimators: texts to vectors, classes, numbers and tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kinfolk.data.examples import Sentence
from kinfolk.errors import InputError
from kinfolk.sklearn.base import TextLearner, loaded
from kinfolk.sklearn.data import (
    LISTS,
    ONE,
    TABLE,
    check_lengths,
    examples_of,
    labels_of,
    numbers_of,
    tags_of,
    texts_of,
    words_of,
)
from kinfolk.sklearn.pickled import TextEstimator
from kinfolk.tasks.tag import tag, tag_probabilities, tag_task
from kinfolk.tasks.text import score_texts, text_task
from kinfolk.text.tokenizer import Text
from kinfolk.training.logistic import probabilities, softmax
from kinfolk.training.metrics import tagging

EMBED_ARGUMENTS = ("layers", "pool", "normalize", "on_long", "window", "stride")


@dataclass(eq=False, repr=False)
class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):  # type: ignore[misc]
    """Texts to vectors, (n, D) in float32; the arguments are those of `kinfolk.load` and of `Encoder.embed`.

    X is a list, array, Series or one-column frame of texts, or of pairs: tuples of two, or two columns. `fit` learns
    nothing from X: it loads the model and holds on to the arguments, so that vectors may be computed once, before a
    cross-validation. A process keeps the last two models it loaded (see `loaded`), so a search over `layers` or `pool`
    loads one only once; the vectors themselves are computed again at every fit.

    A pickle carries the weights as safetensors bytes beside settings and tokenizer, and nothing of torch: it works
    where the model folder is absent. It holds what vectors need, no heads. A pickle made with device="cuda" runs on
    the CPU where there is no CUDA.

    Attributes after `fit`: `encoder_` (a kinfolk.Encoder, shared: do not change it) and `n_features_out_` (D).
    """

    needs_heads = False

    model: str | Path = "demo"
    layers: str | Sequence[int] | None = None
    pool: str | None = None
    normalize: bool | None = None
    on_long: str = "window"
    window: int | None = None
    stride: int | None = None
    device: str = "auto"
    allow_pickle: bool = False

    def fit(self, X: object = None, y: object = None) -> Self:  # noqa: N803
        """Load the model; X and y are ignored."""
        if self.pool == "none":
            raise InputError('pool="none" gives a vector per token, not one per text; use kinfolk.load(...).embed')
        encoder = loaded(self.model, self.device, self.allow_pickle)
        arguments = {name: getattr(self, name) for name in EMBED_ARGUMENTS}
        self.n_features_out_ = encoder.embed_width(encoder.embed_settings(**arguments))
        self.encoder_, self.embed_arguments_ = encoder, arguments
        return self

    def transform(self, X: Iterable[Text]) -> np.ndarray:  # noqa: N803
        """Vectors of texts, by the arguments that `fit` saw."""
        check_is_fitted(self)
        return self.encoder_.embed(texts_of(X), **self.embed_arguments_)  # type: ignore[return-value]

    @property
    def _n_features_out(self) -> int:
        """Where scikit-learn looks when it names the columns (textembedder0, textembedder1, …)."""
        return self.n_features_out_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


@dataclass(eq=False, repr=False)
class TextClassifier(ClassifierMixin, TextLearner):  # type: ignore[misc]
    """A model of the family, fine-tuned to classify texts.

    X holds texts, or pairs of texts (tuples of two, or two columns). y holds a label of any hashable type for each; or,
    where texts may have any number of labels, a list of labels for each or a table of zeros and ones with a column per
    label. `classes_` are the labels in sorted order, and predictions have the labels' own type. Thresholds for several
    labels are tuned on the held-out part.

    `class_weight` is "balanced" or a weight by label. The other parameters are explained in `TextLearner` (base.py).
    For cross-validation scikit-learn itself wants several labels as a table: see its MultiLabelBinarizer.
    """

    class_weight: str | Mapping[Any, float] | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on texts and their labels."""
        texts, labels = texts_of(X), labels_of(y)
        check_lengths(texts, labels.rows)
        if labels.form != ONE and not any(labels.rows):
            raise InputError("no text has a label; there is nothing to learn")
        weights: Any = self.class_weight
        if isinstance(weights, Mapping):
            weights = {str(label): weight for label, weight in weights.items()}
        elif not isinstance(weights, str | None):
            raise InputError('class_weight is "balanced" or a table of weights by label')
        self._train("classify" if labels.form == ONE else "multilabel", examples_of(texts, labels.names()), weights)
        self.classes_, self.label_form_ = labels.classes, labels.form
        return self

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """(texts, classes), in the order of `classes_`. Rows sum to 1, unless texts may have several labels."""
        check_is_fitted(self)
        texts = texts_of(X)
        ours, theirs = zip(*self._columns(), strict=True)
        scores = np.full((len(texts), len(self.classes_)), -np.inf)
        chunks = list(score_texts(self.encoder_, texts))
        if chunks:
            scores[:, ours] = np.concatenate(chunks)[:, theirs]
        return softmax(scores) if self.label_form_ == ONE else probabilities(scores)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The labels as y had them: an array of labels, a list of lists, or a table of zeros and ones."""
        chances = self.predict_proba(X)
        if self.label_form_ == ONE:
            return self.classes_[chances.argmax(1)]
        thresholds, tuned = np.full(len(self.classes_), 0.5), text_task(self.encoder_).thresholds
        if tuned is not None:
            ours, theirs = zip(*self._columns(), strict=True)
            thresholds[list(ours)] = np.array(tuned)[list(theirs)]
        table = chances >= thresholds
        if self.label_form_ == TABLE:
            return table.astype(int)
        return [self.classes_[row].tolist() for row in table]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Accuracy; where texts have several labels, subset accuracy."""
        check_is_fitted(self)
        texts, truth = texts_of(X), labels_of(y)
        check_lengths(texts, truth.rows)
        predicted = self.predict(texts)
        if truth.form != self.label_form_ or (truth.form == TABLE and len(truth.classes) != len(self.classes_)):
            raise InputError("y has another form than the y of fit: see the documentation of TextClassifier")
        if truth.form == ONE:
            right = [label == true for label, true in zip(predicted.tolist(), truth.rows, strict=True)]
        else:
            sets = predicted if truth.form == LISTS else [truth.classes[row == 1].tolist() for row in predicted]
            right = [set(labels) == set(true) for labels, true in zip(sets, truth.rows, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def _columns(self) -> list[tuple[int, int]]:
        """(index in `classes_`, index in the model) of each label that training saw."""
        indices = {name: index for index, name in enumerate(text_task(self.encoder_).labels)}
        names = [str(label) for label in self.classes_.tolist()]
        return [(index, indices[name]) for index, name in enumerate(names) if name in indices]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class TextRegressor(RegressorMixin, TextLearner):  # type: ignore[misc]
    """A model of the family, fine-tuned to give a number.

    X holds texts, or pairs of texts (tuples of two, or two columns), y a number for each; numbers of any size are
    learned alike. The parameters are explained in `TextLearner` (base.py).
    """

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on texts and their numbers."""
        texts, numbers = texts_of(X), numbers_of(y)
        check_lengths(texts, numbers)
        self._train("regress", examples_of(texts, numbers))
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The numbers, (texts,)."""
        check_is_fitted(self)
        chunks = [scores[:, 0] for scores in score_texts(self.encoder_, texts_of(X))]
        return np.concatenate([np.zeros(0), *chunks])


@dataclass(eq=False, repr=False)
class TextTagger(TextLearner):
    """A model of the family, fine-tuned for token classification.

    X holds texts, each a list of words or a string, which is split as `kinfolk.Encoder.tag` splits it. y holds a list
    of tags for each, a tag per word. Tags that mark spans are learned and predicted in IOB2, whatever scheme y has;
    others, such as parts of speech, stay as they are. `crf` adds a CRF layer. `classes_` are the tags in sorted order.

    `class_weight` is "balanced" or a weight by tag. The other parameters are explained in `TextLearner` (base.py).
    """

    class_weight: str | Mapping[str, float] | None = None
    crf: bool = False

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on texts and the tags of their words."""
        sentences, tags = self._aligned(X, y)
        examples = [Sentence(tuple(words), tags[index], None, f"text {index}") for index, words in enumerate(sentences)]
        self._train("tag", examples, self.class_weight, bool(self.crf))
        self.classes_ = np.array(sorted({name for row in tags for name in row}))
        return self

    def predict(self, X: Any) -> list[list[str]]:  # noqa: N803
        """The tags of every text's words."""
        check_is_fitted(self)
        return [[word.tag for word in tagged.words] for tagged in tag(self.encoder_, words_of(X))]

    def predict_proba(self, X: Any) -> list[np.ndarray]:  # noqa: N803
        """Of each text (words, classes), in the order of `classes_`; rows sum to 1.

        With `crf` these are marginal probabilities. `predict` takes the best path (Viterbi), so that a word's tag need
        not be its most probable one.
        """
        check_is_fitted(self)
        labels = tag_task(self.encoder_).labels
        order = [labels.index(name) for name in self.classes_]  # no tag is held out altogether, so training saw all
        return [chances[:, order] for chances in tag_probabilities(self.encoder_, words_of(X))]

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """F1 of whole entities, as conlleval counts them; accuracy of words where tags mark no spans."""
        check_is_fitted(self)
        sentences, truth = self._aligned(X, y)
        return next(iter(tagging(truth, self.predict(sentences)).values()))

    def _aligned(self, X: Any, y: Any) -> tuple[list[list[str]], list[tuple[str, ...]]]:  # noqa: N803
        """Words and tags, as many of the one as of the other."""
        sentences, tags = words_of(X), tags_of(y)
        check_lengths(sentences, tags)
        for index, (words, row) in enumerate(zip(sentences, tags, strict=True)):
            if len(words) != len(row):
                raise InputError(f"text {index} has {len(words)} words, y {len(row)} tags for it")
        return sentences, tags
