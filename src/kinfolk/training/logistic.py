"""Logistic regression, solved by scikit-learn: L2 penalty, C = 1, vectors as they come."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kinfolk.errors import missing_extra

MOST_STEPS = 10_000
TOLERANCE = 1e-6  # scikit-learn's own leaves probabilities uncertain in the third digit


@dataclass(frozen=True)
class Solution:
    """Weights (classes, width) and biases (classes,) whose softmax gives the classes, and what there is to say."""

    weight: np.ndarray
    bias: np.ndarray
    loss: float  # mean cross-entropy
    notes: list[str]


def solve(vectors: np.ndarray, targets: Sequence[int], weights: Sequence[float] | None = None) -> Solution:
    """Classes are numbers from 0 on, and all must occur; `weights` has a number for each of them."""
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import log_loss
    except ImportError as error:
        raise missing_extra("training needs scikit-learn", error) from None
    shares = None if weights is None else np.array(weights)[np.array(targets)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        solver = LogisticRegression(max_iter=MOST_STEPS, tol=TOLERANCE)
        found = solver.fit(vectors.astype(np.float64), targets, sample_weight=shares)
    loss = float(log_loss(targets, found.predict_proba(vectors), sample_weight=shares))
    notes = ["the logistic regression did not converge"] * any(item.category is ConvergenceWarning for item in caught)
    weight, bias = found.coef_, found.intercept_
    if len(weight) == 1:  # of two classes scikit-learn keeps the score of the second against the first
        weight, bias = np.concatenate([np.zeros_like(weight), weight]), np.concatenate([np.zeros_like(bias), bias])
    return Solution(weight, bias, loss, notes)
