"""kinfolk in scikit-learn: texts to vectors, and models that are trained on texts, for pipelines and searches.

>>> from sklearn.linear_model import LogisticRegression
>>> from sklearn.model_selection import cross_val_score
>>> from kinfolk.demo import sentences
>>> from kinfolk.sklearn import TextEmbedder

>>> texts, labels = sentences()  # 600 remarks about films, "positive" or "negative"
>>> vectors = TextEmbedder("demo").fit_transform(texts)
>>> vectors.shape
(600, 384)
>>> scores = cross_val_score(LogisticRegression(), vectors, labels, cv=5)
>>> print(f"{scores.mean():.3f}")
0.745

TextEmbedder     texts -> vectors, nothing is trained
TextClassifier   texts -> classes, or any number of labels
TextRegressor    texts -> numbers
TextTagger       words of texts -> tags
"""

from __future__ import annotations

from kinfolk.errors import missing_extra

try:
    import sklearn.base  # noqa: F401
except ImportError as error:
    raise missing_extra("kinfolk.sklearn needs scikit-learn", error) from None

from kinfolk.sklearn.base import forget_models, loaded
from kinfolk.sklearn.estimators import TextClassifier, TextEmbedder, TextRegressor, TextTagger

__all__ = ["TextClassifier", "TextEmbedder", "TextRegressor", "TextTagger", "forget_models", "loaded"]

for estimator in (TextClassifier, TextEmbedder, TextRegressor, TextTagger):
    estimator.__module__ = "kinfolk.sklearn"  # where pickles look for it, whichever file it lives in
