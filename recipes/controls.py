"""Controls for fine-tuning: what the same rows give without a pre-trained model (or, once, with a frozen one)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from sklearn.pipeline import make_pipeline

import kinfolk

FROZEN_ROWS = 2_000
SENTENCE = re.compile(r"(?<=[.!?]) +")


def _class_metrics(truth: list[Any], guesses: Any) -> dict[str, float]:
    names = sorted(set(truth))
    f1 = f1_score(truth, guesses, pos_label=names[-1], zero_division=0) if len(names) == 2 else 0.0
    return {"accuracy": accuracy_score(truth, guesses), "f1": f1, "mcc": matthews_corrcoef(truth, guesses)}


def _texts(examples: list[Any]) -> list[str]:
    return [" ".join(example.content) for example in examples]


def _labels(examples: list[Any]) -> list[Any]:
    return [example.label for example in examples]


def tfidf(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """Words and pairs of words, logistic regression."""
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10, max_iter=2000)
    )
    model.fit(_texts(train), _labels(train))
    return _class_metrics(_labels(dev), model.predict(_texts(dev)))


def tfidf_few(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """The same, from the rows that `frozen` learns from."""
    return tfidf(train[:FROZEN_ROWS], dev)


def tfidf_ridge(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """The same with numbers."""
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), Ridge())
    model.fit(_texts(train), _labels(train))
    return {"mean_absolute_error": float(np.abs(model.predict(_texts(dev)) - _labels(dev)).mean())}


def tfidf_cosine(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """How near the words of two texts are, without any learning but the counts."""
    counts = TfidfVectorizer(sublinear_tf=True).fit([text for example in train for text in example.content])
    one, other = (counts.transform([example.content[side] for example in dev]) for side in (0, 1))
    return {"pearson": float(np.corrcoef(np.asarray(one.multiply(other).sum(1)).ravel(), _labels(dev))[0, 1])}


def cosine(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """The cosine of the vectors that the demo model gives each text, without any training here."""
    encoder = kinfolk.load("demo")
    one, other = (encoder.embed([example.content[side] for example in dev]) for side in (0, 1))
    return {"pearson": float(np.corrcoef((one * other).sum(1), _labels(dev))[0, 1])}


def frozen(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """Vectors of the demo model as it is, for the first 2,000 rows, and a logistic regression."""
    encoder, few = kinfolk.load("demo"), train[:FROZEN_ROWS]
    regression = LogisticRegression(max_iter=5_000).fit(encoder.embed(_texts(few)), _labels(few))
    return _class_metrics(_labels(dev), regression.predict(encoder.embed(_texts(dev))))


def majority(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """Always the commonest class."""
    commonest = Counter(_labels(train)).most_common(1)[0][0]
    return _class_metrics(_labels(dev), [commonest] * len(dev))


def commonest_tag(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """For each word the tag it had most often; O for an unknown one."""
    from seqeval.metrics import f1_score as entity_f1

    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            counts[word][tag] += 1
    known = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    guesses = [[known.get(word, "O") for word in sentence.words] for sentence in dev]
    return {"f1": entity_f1([list(sentence.tags) for sentence in dev], guesses)}


def nearest_sentence(train: list[Any], dev: list[Any]) -> dict[str, float]:
    """The sentence of the context that shares most words with the question."""
    from kinfolk.training.metrics import f1

    def nearest(question: Any) -> str:
        asked = set(question.question.lower().split())
        return max(SENTENCE.split(question.context), key=lambda sentence: len(asked & set(sentence.lower().split())))

    scores = [f1(nearest(question), [text for text, _ in question.answers]) for question in dev]
    return {"f1": float(np.mean(scores))}
