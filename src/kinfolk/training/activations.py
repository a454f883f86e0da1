"""Scores to probabilities, in numpy: what prediction needs of the metrics, without their libraries."""

from __future__ import annotations

import numpy as np


def probabilities(scores: np.ndarray) -> np.ndarray:
    """The logistic function, for labels that do not exclude each other."""
    chances: np.ndarray = 1 / (1 + np.exp(-scores))
    return chances


def softmax(scores: np.ndarray) -> np.ndarray:
    """Rows that sum to one, for classes that do."""
    powers: np.ndarray = np.exp(scores - scores.max(1, keepdims=True))
    powers /= powers.sum(1, keepdims=True)
    return powers
