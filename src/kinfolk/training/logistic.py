"""Scores to probabilities, in numpy, and logistic regression solved by scikit-learn: L2 penalty, C = 1."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinfolk.errors import missing_extra

MAX_STEPS = 10_000
TOLERANCE = 1e-6  # scikit-learn's own leaves probabilities uncertain in the third digit


@dataclass(frozen=True)
class Solution:
    """Weights (classes, width) and biases (classes,) whose softmax gives the classes, and what there is to say."""

    weight: np.ndarray
    bias: np.ndarray
    loss: float  # mean cross-entropy
    notes: list[str]


def probabilities(scores: np.ndarray) -> np.ndarray:
    """The logistic function, for labels that do not exclude each other."""
    result: np.ndarray = 1 / (1 + np.exp(-scores))
    return result


def softmax(scores: np.ndarray) -> np.ndarray:
    """Rows that sum to one, for classes that do."""
    powers: np.ndarray = np.exp(scores - scores.max(1, keepdims=True))
    powers /= powers.sum(1, keepdims=True)
    return powers


def solve(vectors: np.ndarray, targets: Sequence[int], weights: Sequence[float] | None = None) -> Solution:
    """Classes are indices from 0, and all must occur; `weights` has one for each class."""
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import log_loss
    except ImportError as error:
        raise missing_extra("training needs scikit-learn", error) from None
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
