"""Texts that a tiny model learns in a second, and estimators that do: a text's class is a word in it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from kinfolk.sklearn import TextClassifier, TextRegressor

WORDS = ["water", "bread", "light", "stone", "river", "bird", "paper", "house", "glass", "cloud"]


def texts(count: int = 48, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts of one to four words, and their labels: those with `salt` are "salty", those with `sand` are "sandy"."""
    draw = random.Random(seed)
    labels = [("salty", "sandy")[index % 2] for index in range(count)]
    results = []
    for label in labels:
        words = draw.sample(WORDS, draw.randint(0, 3))
        words.insert(draw.randrange(len(words) + 1), label[:-1].replace("salt", "salt salt"))
        results.append(" ".join(words))
    return results, labels


def classifier(model: Path, **changes: Any) -> TextClassifier:
    return TextClassifier(**(settings(model) | changes))


def regressor(model: Path, **changes: Any) -> TextRegressor:
    return TextRegressor(**(settings(model) | changes))


def settings(model: Path) -> dict[str, Any]:
    """Few, large steps. Eight epochs learn the texts."""
    return {"model": model, "epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "device": "cpu"}
