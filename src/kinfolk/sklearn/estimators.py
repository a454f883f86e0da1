"""The four estimators: texts to vectors, classes, numbers and tags.

X and y come as scikit-learn's users have them: lists, tuples, arrays, Series and frames; labels keep their own type,
a model knows them by name (`str` of each). X holds texts, pairs of texts, or words; y holds numbers, tags, or labels:

ONE     a label of any hashable type for each text
LISTS   any number of labels: a list (tuple, set) of them for each text
TABLE   the same as a table of zeros and ones, a column for each label; a frame's columns name the labels
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kinfolk.data.examples import Example, Sentence, to_number
from kinfolk.data.tagging import detect_scheme, to_iob2
from kinfolk.errors import InputError, shorten_list, type_name
from kinfolk.sklearn.base import TextEstimator, TextLearner, loaded
from kinfolk.tasks.tag import TagTask, split_text_words, tag, tag_probabilities
from kinfolk.tasks.text import TextTask, classify, score_texts
from kinfolk.text.tokenizer import Text
from kinfolk.text.windows import check_text
from kinfolk.training.metrics import probabilities, softmax, tagging

EMBED_ARGUMENTS = ("layers", "pool", "normalize", "on_long", "window", "stride")
ONE, LISTS, TABLE = "one", "lists", "table"
NESTED = (list, tuple, set, frozenset, np.ndarray)
PLAIN = (str, bool, int, float)  # numpy has arrays of its own for these


def items_of(values: Any, name: str = "X", columns: Sequence[int] = ()) -> list[Any]:
    """What X or y holds for each text, in Python's own types; the row of a table with several columns is a list."""
    if hasattr(values, "toarray"):  # a sparse table
        values = values.toarray()
    shape = getattr(values, "shape", None)
    if isinstance(values, str | bytes | Mapping) or shape == () or not isinstance(values, Iterable):
        raise InputError(f"{name} has an item for each text, but is a single {type(values).__name__}; give a list")
    if shape is None:
        return [item.item() if isinstance(item, np.generic) else item for item in values]
    if len(shape) > 2 or (len(shape) == 2 and columns and shape[1] not in columns):
        wanted = f"; give {' or '.join(map(str, columns))} columns" if columns else ""
        raise InputError(f"{name} has shape {tuple(shape)}{wanted}")
    rows: list[Any] = np.asarray(values, dtype=object).tolist()
    return [row[0] for row in rows] if shape[1:] == (1,) else rows


def texts_of(X: Any) -> list[Text]:  # noqa: N803
    """The texts of X. Two columns, or a list whose items are two texts each, are pairs."""
    items = items_of(X, columns=(1, 2))
    pairs = [tuple(item) if isinstance(item, list) and len(item) == 2 else item for item in items]
    return [check_text(item, f"text {index}") for index, item in enumerate(pairs)]


def words_of(X: Any) -> list[list[str]]:  # noqa: N803
    sentences = []
    for index, item in enumerate(items_of(X)):
        text, offsets = split_text_words(item.tolist() if isinstance(item, np.ndarray) else item, f"text {index}")
        sentences.append([text[start:end] for start, end in offsets])
    return sentences


def examples_of(texts: Sequence[Text], labels: Sequence[Any]) -> list[Example]:
    """What a text classifier or regressor is trained on."""
    sides: list[tuple[str, str | None]] = [(text, None) if isinstance(text, str) else text for text in texts]
    rows = enumerate(zip(sides, labels, strict=True))
    return [Example(text, pair, label, f"text {index}") for index, ((text, pair), label) in rows]


def check_lengths(texts: Sequence[object], labels: Sequence[object]) -> None:
    """X and y belong together, and there is something to train on."""
    if len(texts) != len(labels):
        raise InputError(f"X has {len(texts):,} texts, y {len(labels):,} labels; there must be one label for each text")
    if not texts:
        raise InputError("X is empty; there is nothing to learn from")


def numbers_of(y: Any) -> list[float]:
    """The numbers of a list, array, Series or one-column frame."""
    items, numbers = items_of(y, "y", columns=(1,)), []
    for index, item in enumerate(items):
        if (number := to_number(item)) is None:
            raise InputError(f"label {index} is {str(item)[:40]!r}, expected a finite number")
        numbers.append(number)
    return numbers


def tags_of(y: Any) -> list[tuple[str, ...]]:
    """The tags of each text, in IOB2 where they mark spans."""
    rows = [item.tolist() if isinstance(item, np.ndarray) else item for item in items_of(y, "y")]
    for index, tags in enumerate(rows):
        if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) and tag for tag in tags):
            raise InputError(f"y holds {str(tags)[:40]!r} for text {index}; expected a list of tags, one for each word")
    scheme = detect_scheme(rows)
    for index, tags in enumerate(rows):
        try:
            rows[index] = to_iob2(tuple(tags), scheme)
        except InputError as error:
            raise InputError(f"text {index}, {error}") from None
    return rows


@dataclass(frozen=True)
class Labels:
    """The classes in sorted order, and each text's label, or its tuple of labels."""

    form: str
    classes: np.ndarray
    rows: list[Any]


def labels_of(y: Any) -> Labels:
    """The labels of y, in whichever form they are."""
    rows = items_of(y, "y")
    nested = [isinstance(row, NESTED) for row in rows]
    if not any(nested):
        return Labels(ONE, _classes(rows, getattr(y, "dtype", None)), rows)
    if not all(nested):
        raise InputError(f"y mixes lists of labels with single ones: see its items 0 and {nested.index(not nested[0])}")
    rows = [list(row) for row in rows]
    width = len(rows[0])  # zeros and ones only, in rows of one length: as lists of labels they would say nothing
    if width > 1 and all(len(row) == width and all(label in (0, 1) for label in row) for row in rows):
        classes = np.asarray(getattr(y, "columns", np.arange(width)))
        return Labels(TABLE, classes, [tuple(compress(classes.tolist(), row)) for row in rows])
    if getattr(y, "ndim", 1) == 2:
        raise InputError("y is a table that does not hold zeros and ones only; give one label, or a list, per text")
    return Labels(LISTS, _classes(list(chain.from_iterable(rows))), [tuple(dict.fromkeys(row)) for row in rows])


def _classes(labels: Sequence[Any], dtype: Any = None) -> np.ndarray:
    """The distinct labels in order; as an array of y's own dtype, where it is an array."""
    for index, label in enumerate(labels):
        if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
            raise InputError(f"label {index} is missing ({label}); leave such rows out")
        if not isinstance(label, Hashable):
            raise InputError(f"label {index} is {type_name(label)}, which cannot be a label")
        if isinstance(label, float) and not label.is_integer():
            raise InputError(f"label {index} is the number {label}; TextRegressor learns numbers")
    distinct = list(set(labels))
    try:
        distinct.sort()
    except TypeError:
        types = sorted({type(label).__name__ for label in labels})
        if len(types) > 1:
            raise InputError(f"y mixes labels of different types ({shorten_list(types)}); use one type") from None
        distinct.sort(key=str)
    names = [str(label) for label in distinct]
    if len(set(names)) < len(names):
        raise InputError(f"two labels are written alike: {shorten_list(names)}")
    if isinstance(dtype, np.dtype) or all(isinstance(label, PLAIN) for label in distinct):
        return np.array(distinct, dtype=dtype if isinstance(dtype, np.dtype) else None)
    classes = np.empty(len(distinct), dtype=object)  # numpy would take labels that are sequences apart
    classes[:] = distinct
    return classes


@dataclass(eq=False, repr=False)
class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):  # type: ignore[misc]
    """Texts to vectors, (n, D) in float32; the arguments are those of `kinfolk.load` and of `Encoder.embed`.

    X is a list, array, Series or one-column frame of texts, or of pairs: tuples of two, or two columns. `fit` learns
    nothing from X: it loads the model and holds on to the arguments, so that vectors may be computed once, before a
    cross-validation. A process keeps the last two models it loaded (see `loaded`), so a search over `layers` or `pool`
    loads one only once; the vectors themselves are computed again at every fit. A pickle holds what vectors need, no
    heads.

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
        return self.encoder_.embed(texts_of(X), **self.embed_arguments_)  # type: ignore[no-any-return]

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
        names = [str(row) if labels.form == ONE else tuple(map(str, row)) for row in labels.rows]
        task = "classify" if labels.form == ONE else "multilabel"
        self._train(task, examples_of(texts, names), class_weights=weights)
        self.classes_, self.label_form_ = labels.classes, labels.form
        return self

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """(texts, classes), in the order of `classes_`. Rows sum to 1, unless texts may have several labels."""
        check_is_fitted(self)
        texts = texts_of(X)
        ours, theirs = self._columns()
        scores = np.full((len(texts), len(self.classes_)), -np.inf)
        if texts:
            scores[:, ours] = np.concatenate(list(score_texts(self.encoder_, texts)))[:, theirs]
        return softmax(scores) if self.label_form_ == ONE else probabilities(scores)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The labels as y had them: an array of labels, a list of lists, or a table of zeros and ones."""
        rows = self.predict_proba(X)
        if self.label_form_ == ONE:
            return self.classes_[rows.argmax(1)]
        thresholds, tuned = np.full(len(self.classes_), 0.5), TextTask.saved(self.encoder_).thresholds
        if tuned is not None:
            ours, theirs = self._columns()
            thresholds[ours] = np.array(tuned)[theirs]
        table = rows >= thresholds
        return table.astype(int) if self.label_form_ == TABLE else [self.classes_[row].tolist() for row in table]

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

    def _columns(self) -> tuple[list[int], list[int]]:
        """Of the labels that training saw, the indices in `classes_` and those in the model."""
        names, known = [str(label) for label in self.classes_.tolist()], TextTask.saved(self.encoder_).labels
        ours = [index for index, name in enumerate(names) if name in known]
        return ours, [known.index(names[index]) for index in ours]

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
        return np.array([prediction.value for prediction in classify(self.encoder_, texts_of(X))], dtype=float)


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
        self._train("tag", examples, class_weights=self.class_weight, crf=bool(self.crf))
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
        labels = TagTask.saved(self.encoder_).labels
        order = [labels.index(name) for name in self.classes_]  # no tag is held out altogether, so training saw all
        return [rows[:, order] for rows in tag_probabilities(self.encoder_, words_of(X))]

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """F1 of whole entities, as conlleval counts them; accuracy of words where tags mark no spans."""
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
