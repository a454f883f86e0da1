"""Which layers and which pooling make the best vectors? A logistic regression on 2,000 sentences of SST-2 answers.

The vectors are those of the model as it is, not fine-tuned. TF-IDF, which knows only words and pairs of words, is the
control.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import data_file, start, table, write_result
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

import kinfolk
from kinfolk.api.embed import LAYERS, choose_layers
from kinfolk.files import read_text

ROWS, FOLDS, SEED = 2_000, 5, 0
POOLS = ("first", "mean", "max")


def read_sentences(path: Path, rows: int) -> tuple[list[str], list[str]]:
    """The first rows of a file with text, tab, label."""
    pairs = [line.rsplit("\t", 1) for line in read_text(path).split("\n")[:rows]]
    return [text for text, _ in pairs], [label for _, label in pairs]


def accuracy(estimator: Any, features: Any, labels: list[str]) -> np.ndarray:
    """Accuracy in each fold, in per cent."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    return 100 * cross_val_score(estimator, features, labels, cv=folds, error_score="raise")


def all_vectors(model: kinfolk.Encoder, texts: list[str], pool: str) -> Iterator[tuple[str, np.ndarray]]:
    """The vectors of every layer choice under one pooling, from one pass over the texts where that is right."""
    layers = model.model.config.layers
    stacked = model.embed(texts, layers=range(layers + 1), pool=pool).reshape(len(texts), layers + 1, -1)
    for name in LAYERS:
        choice = choose_layers(name, layers)
        wanted = stacked[:, list(choice.indices)]
        if not choice.summed:
            yield name, wanted.reshape(len(texts), -1)
        elif pool == "max":  # the maximum of a sum is not the sum of the maxima
            yield name, model.embed(texts, layers=name, pool=pool)
        else:
            yield name, wanted.sum(axis=1)


def recipe(name: str) -> None:
    texts, labels = read_sentences(data_file("sst2/train.tsv"), ROWS)
    model = kinfolk.load(name)
    regression = LogisticRegression(max_iter=5_000)
    accuracies = {
        (layers, pool): accuracy(regression, vectors, labels)
        for pool in POOLS
        for layers, vectors in all_vectors(model, texts, pool)
    }
    settings = model.embed_settings()
    default = f"default of the model ({settings.pool}, {'unit length' if settings.normalize else 'not normalised'})"
    controls = {
        default: accuracy(regression, model.embed(texts), labels),
        "TF-IDF, words and pairs of words": accuracy(
            make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), regression), texts, labels
        ),
    }
    write(name, accuracies, controls)


def write(name: str, accuracies: dict[tuple[str, str], np.ndarray], controls: dict[str, np.ndarray]) -> None:
    """docs/results/layer-choices.md."""
    rows = [[layers, *(_cell(accuracies[layers, pool]) for pool in POOLS)] for layers in LAYERS]
    order = sorted(accuracies, key=lambda key: accuracies[key].mean())
    worst, best = order[0], order[-1]
    *_, words = controls.values()
    lower = sum(scores.mean() < words.mean() for scores in accuracies.values())
    parts = [
        f"Accuracy in per cent of a logistic regression on the vectors of the first {ROWS:,} sentences of SST-2 "
        f"(train), mean ± standard deviation over {FOLDS} stratified folds (seed {SEED}). C = 1; vectors as they come, "
        "not scaled; the model is not fine-tuned. Rows are layers, columns are poolings. Below the first layer the "
        'first token is the same in every text: "first" with "first" is the share of the larger class.',
        table(["layers", *POOLS], rows),
        table(["beside it", "accuracy"], [[control, _cell(scores)] for control, scores in controls.items()]),
        f"What it shows: the best choice is {_named(best)} ({accuracies[best].mean():.1f}), the worst {_named(worst)} "
        f"({accuracies[worst].mean():.1f}); {lower} of the {len(accuracies)} choices stay below TF-IDF "
        f"({words.mean():.1f}), and differences smaller than the deviations between folds should not be read as an "
        "order.",
    ]
    title = f"Which layers, which pooling ({'all-MiniLM-L6-v2' if name == 'demo' else Path(name).resolve().name})"
    write_result("layer-choices", "layer_choices.py", name, title, parts, ["scikit-learn"])


def _cell(scores: np.ndarray) -> str:
    return f"{scores.mean():.1f} ± {scores.std():.1f}"


def _named(key: tuple[str, str]) -> str:
    return f'layers="{key[0]}" with pool="{key[1]}"'


if __name__ == "__main__":
    start(recipe, __doc__.partition("\n")[0])
