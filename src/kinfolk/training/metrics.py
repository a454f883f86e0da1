"""Metrics, from scikit-learn, scipy and seqeval: each gives a dict by name; the first selects the best checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from kinfolk.data.tagging import PLAIN, detect_scheme
from kinfolk.errors import missing_extra
from kinfolk.training.logistic import probabilities

try:
    from scipy.stats import pearsonr, spearmanr
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
except ImportError as error:
    raise missing_extra("training needs scikit-learn, scipy and seqeval", error) from None


def classification(scores: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Accuracy, macro F1 and the Matthews correlation coefficient (MCC); with two classes also F1 of the second."""
    guesses = scores.argmax(1)
    metrics = {
        "accuracy": accuracy_score(truth, guesses),
        "macro_f1": f1_score(truth, guesses, average="macro", zero_division=0),
        "mcc": matthews_corrcoef(truth, guesses) if np.ptp(guesses) and np.ptp(truth) else 0.0,
    }
    if scores.shape[1] == 2:
        metrics["f1"] = f1_score(truth == 1, guesses == 1, zero_division=0)
    return {name: float(value) for name, value in metrics.items()}


def multilabel(scores: np.ndarray, truth: np.ndarray, thresholds: np.ndarray) -> dict[str, float]:
    """Micro and macro F1, and subset accuracy: the share of texts with every label right."""
    guesses = probabilities(scores) >= thresholds
    return {
        "micro_f1": float(f1_score(truth, guesses, average="micro", zero_division=0)),
        "macro_f1": float(f1_score(truth, guesses, average="macro", zero_division=0)),
        "subset_accuracy": float((guesses == truth).all(1).mean()),
    }


def tagging(truth: Sequence[Sequence[str]], guesses: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1, precision and recall of whole entities, as conlleval counts them, and the share of right words.

    An entity is found when its words and its type are right. Tags that mark no spans (parts of speech) are judged word
    by word: the share of right ones, and F1 as the mean over tags.
    """
    true_words, guessed_words = ([tag for tags in side for tag in tags] for side in (truth, guesses))
    accuracy = float(accuracy_score(true_words, guessed_words)) if true_words else 0.0
    if detect_scheme(truth) == PLAIN:
        macro = f1_score(true_words, guessed_words, average="macro", zero_division=0)
        return {"accuracy": accuracy, "macro_f1": float(macro)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tag that marks no span, among others that do: nothing new to the user
        precision, recall, f1, _ = precision_recall_fscore_support(
            [list(tags) for tags in truth], [list(tags) for tags in guesses], average="micro", zero_division=0
        )
    return {"f1": float(f1), "precision": float(precision), "recall": float(recall), "accuracy": accuracy}


def regression(scores: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Pearson's and Spearman's correlation, mean absolute error and root mean squared error."""
    guesses = scores[:, 0]
    spread = guesses.std() > 0 and truth.std() > 0  # without it a correlation has no meaning
    return {
        "pearson": float(pearsonr(guesses, truth)[0]) if spread else 0.0,
        "spearman": float(spearmanr(guesses, truth)[0]) if spread else 0.0,
        "mean_absolute_error": float(np.abs(guesses - truth).mean()),
        "root_mean_squared_error": float(np.sqrt(((guesses - truth) ** 2).mean())),
    }


def best_thresholds(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """For each label, the probability above which F1 on these texts is best; 0.5 for a label that never occurs.

    The threshold lies halfway between two neighbouring probabilities, so that rounding decides nothing.
    """
    shares = probabilities(scores)
    return np.array([_best_threshold(shares[:, label], truth[:, label]) for label in range(truth.shape[1])])


def _best_threshold(shares: np.ndarray, truth: np.ndarray) -> float:
    if not truth.any():
        return 0.5
    order = np.argsort(-shares, kind="stable")
    right = np.cumsum(truth[order])
    f1 = 2 * right / (np.arange(1, len(order) + 1) + truth.sum())
    last = int(f1.argmax())
    below = shares[order[last + 1]] if last + 1 < len(order) else 0.0
    return float((shares[order[last]] + below) / 2)
