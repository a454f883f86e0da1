"""How good predictions are: of classes, numbers, tags, answers and translations, mostly by the field's own libraries.

Each gives a dict by name, whose first entry selects the best checkpoint. The libraries (scikit-learn, scipy, seqeval,
sacreBLEU) are an extra, which predicting does without; so they are imported where they compute.
"""

from __future__ import annotations

import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from kinfolk.data.tagging import PLAIN, detect_scheme
from kinfolk.errors import InputError, missing_extra

MAX_STEPS = 10_000
TOLERANCE = 1e-6  # scikit-learn's own leaves probabilities uncertain in the third digit
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff]")  # Thai, Lao, kana
OFTEN = 0.2  # of all characters, the share from which a text counts as written in a script


@contextmanager
def extra(need: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise missing_extra(need, error) from None


def probabilities(scores: np.ndarray) -> np.ndarray:
    """The logistic function, for labels that do not exclude each other."""
    return np.asarray(1 / (1 + np.exp(-scores)))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Rows that sum to one, for classes that do."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


@extra("training needs scikit-learn")
def classification(scores: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Accuracy, macro F1 and the Matthews correlation coefficient (MCC); with two classes also F1 of the second."""
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    guesses = scores.argmax(1)
    metrics = {
        "accuracy": accuracy_score(truth, guesses),
        "macro_f1": f1_score(truth, guesses, average="macro", zero_division=0),
        "mcc": matthews_corrcoef(truth, guesses) if np.ptp(guesses) and np.ptp(truth) else 0.0,
    }
    if scores.shape[1] == 2:
        metrics["f1"] = f1_score(truth == 1, guesses == 1, zero_division=0)
    return {name: float(value) for name, value in metrics.items()}


@extra("training needs scikit-learn")
def multilabel(scores: np.ndarray, truth: np.ndarray, thresholds: np.ndarray) -> dict[str, float]:
    """Micro and macro F1, and subset accuracy: the share of texts with every label right."""
    from sklearn.metrics import f1_score

    guesses = probabilities(scores) >= thresholds
    return {
        "micro_f1": float(f1_score(truth, guesses, average="micro", zero_division=0)),
        "macro_f1": float(f1_score(truth, guesses, average="macro", zero_division=0)),
        "subset_accuracy": float((guesses == truth).all(1).mean()),
    }


def best_thresholds(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """For each label, the probability above which F1 on these texts is best; 0.5 for a label that never occurs. The
    threshold lies halfway between two neighbouring probabilities, so that rounding decides nothing."""
    shares, thresholds = probabilities(scores), np.full(truth.shape[1], 0.5)
    for label in np.flatnonzero(truth.any(0)):
        order = np.argsort(-shares[:, label], kind="stable")
        right = np.cumsum(truth[order, label])
        last = int((2 * right / (np.arange(1, len(order) + 1) + right[-1])).argmax())
        below = shares[order[last + 1], label] if last + 1 < len(order) else 0.0
        thresholds[label] = (shares[order[last], label] + below) / 2
    return thresholds


@extra("training needs scipy")
def regression(scores: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Pearson's and Spearman's correlation (0 where undefined), mean absolute error and root mean squared error."""
    from scipy.stats import pearsonr, spearmanr

    guesses = scores[:, 0]
    return {
        "pearson": _correlation(pearsonr, guesses, truth),
        "spearman": _correlation(spearmanr, guesses, truth),
        "mean_absolute_error": float(np.abs(guesses - truth).mean()),
        "root_mean_squared_error": float(np.sqrt(((guesses - truth) ** 2).mean())),
    }


def _correlation(measure: Callable[..., Any], guesses: np.ndarray, truth: np.ndarray) -> float:
    """0 where it is not defined: of numbers that are all equal (their deviation may not be 0, but a rounding error)."""
    if np.ptp(guesses) > 0 and np.ptp(truth) > 0:
        return float(measure(guesses, truth)[0])
    return 0.0


@extra("training needs scikit-learn and seqeval")
def tagging(truth: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1, precision and recall of whole entities, as conlleval counts them, and the share of right words. An entity is
    right when its words and its type are. Tags that mark no spans (parts of speech) are evaluated word by word:
    accuracy, and macro F1 over tags."""
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
    from sklearn.metrics import accuracy_score, f1_score

    true_words, guessed_words = (list(chain.from_iterable(side)) for side in (truth, guesses))
    accuracy = float(accuracy_score(true_words, guessed_words)) if true_words else 0.0
    if detect_scheme(truth) == PLAIN:
        macro = f1_score(true_words, guessed_words, average="macro", zero_division=0)
        return {"accuracy": accuracy, "macro_f1": float(macro)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tag that marks no span, among others that do: nothing new to the user
        sides = ([list(tags) for tags in side] for side in (truth, guesses))
        precision, recall, f1, _ = precision_recall_fscore_support(*sides, average="micro", zero_division=0)
    return {"f1": float(f1), "precision": float(precision), "recall": float(recall), "accuracy": accuracy}


def answering(guesses: Sequence[str], truths: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1 and exact match of answers, by the rules of SQuAD's own scorer, version 2.0. Of several right answers the one
    that fits best counts. A question without an answer is right only with an empty answer; where there are such
    questions, those with one and those without are also evaluated apart."""
    scores = np.array([(f1(guess, right), exact(guess, right)) for guess, right in zip(guesses, truths, strict=True)])
    answerable = np.array([bool(right) for right in truths])
    groups = {"": scores}
    if not answerable.all():
        groups |= {"answerable_": scores[answerable], "unanswerable_": scores[~answerable]}
    means = {prefix: rows.mean(0).tolist() for prefix, rows in groups.items() if len(rows)}
    return {f"{prefix}{name}": means[prefix][index] for prefix in means for index, name in enumerate(("f1", "exact"))}


def normalized(text: str) -> str:
    """What is compared of an answer: `dukes first answer` of "The  Duke's  (first) answer!"."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(guess: str, truths: Sequence[str]) -> float:
    """1 if the guess is one of the right answers; where there is none, the empty answer is right."""
    return float(normalized(guess) in _right_answers(truths))


def f1(guess: str, truths: Sequence[str]) -> float:
    """How well the words of the guess fit those of the best right answer."""
    return max(_word_f1(normalized(guess).split(), truth.split()) for truth in _right_answers(truths))


def _word_f1(guess: list[str], truth: list[str]) -> float:
    if not guess or not truth:
        return float(guess == truth)
    return 2 * (Counter(guess) & Counter(truth)).total() / (len(guess) + len(truth))


def _right_answers(truths: Sequence[str]) -> list[str]:
    return [truth for truth in map(normalized, truths) if truth] or [""]


def no_answer_threshold(margins: np.ndarray, answered: np.ndarray, unanswered: np.ndarray) -> float:
    """The margin ("no answer" ahead of the best answer) up to which it pays to answer, halfway between two margins. The
    others are what each question scores when it is answered and when it is not."""
    if not len(margins):
        return 0.0
    order = np.argsort(margins, kind="stable")
    margins = margins[order]
    gains = np.concatenate([[0.0], np.cumsum((answered - unanswered)[order])])  # of answering the first k questions
    between = np.concatenate([[True], np.diff(margins) > 0, [True]])  # equal margins cannot be told apart
    best = int(np.where(between, gains, -np.inf).argmax())
    padded = np.concatenate([margins[:1] - 1, margins, margins[-1:] + 1])
    return float((padded[best] + padded[best + 1]) / 2)


class Bleu(NamedTuple):
    """The score, from 0 to 100, and sacreBLEU's signature, which says how it was computed."""

    score: float
    signature: str


@extra("BLEU needs sacrebleu")
def sacrebleu_metric(tokenize: str = "13a") -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize=tokenize)


def bleu(texts: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU of a whole set of texts against one reference each (Papineni et al. 2002; Post 2018).

    BLEU = brevity penalty x exp(mean of log p_n),  p_n the share of n-grams that the reference has too, n = 1 to 4
    """
    if len(texts) != len(references) or not texts:
        raise InputError(f"BLEU compares texts with references, one each: {len(texts)} and {len(references)}")
    metric = sacrebleu_metric(tokenization(references))
    score = metric.corpus_score(list(texts), [list(references)]).score
    return Bleu(score, str(metric.get_signature()))


def tokenization(references: Sequence[str]) -> str:
    """sacreBLEU's name for how texts are cut into words: its default, or characters where a script has no blanks."""
    text = "".join("".join(references).split())
    if len(UNSPACED.findall(text)) > OFTEN * len(text):
        return "char"
    return "zh" if len(CHINESE.findall(text)) > OFTEN * len(text) else "13a"


class Solution(NamedTuple):
    """Weights (classes, width) and biases (classes,) whose softmax gives the classes, and what there is to say."""

    weight: np.ndarray
    bias: np.ndarray
    loss: float  # mean cross-entropy
    notes: list[str]


@extra("training needs scikit-learn")
def solve(vectors: np.ndarray, targets: Sequence[int], weights: Sequence[float] | None = None) -> Solution:
    """Logistic regression, L2 penalty with C = 1. All classes, from 0, must occur; `weights` has one for each."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    sample_weight = None if weights is None else np.array(weights)[np.array(targets)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        solver = LogisticRegression(max_iter=MAX_STEPS, tol=TOLERANCE)
        fitted = solver.fit(vectors.astype(np.float64), targets, sample_weight=sample_weight)
    loss = float(log_loss(targets, fitted.predict_proba(vectors), sample_weight=sample_weight))
    notes = ["the logistic regression did not converge"] * any(item.category is ConvergenceWarning for item in caught)
    weight, bias = fitted.coef_, fitted.intercept_
    if len(weight) == 1:  # of two classes scikit-learn keeps the score of the second against the first
        weight, bias = np.concatenate([np.zeros_like(weight), weight]), np.concatenate([np.zeros_like(bias), bias])
    return Solution(weight, bias, loss, notes)
