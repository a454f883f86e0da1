"""Texts to vectors, as a transformer of scikit-learn's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kinfolk.errors import InputError
from kinfolk.sklearn.inputs import texts_of
from kinfolk.sklearn.models import loaded
from kinfolk.sklearn.pickled import CarriesEncoder
from kinfolk.text.tokenizer import Text

EMBED_ARGUMENTS = ("layers", "pool", "normalize", "on_long", "window", "stride")


class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CarriesEncoder):  # type: ignore[misc]
    """Texts to vectors, (n, D) in float32; the arguments are those of `kinfolk.load` and of `Encoder.embed`.

    X is a list, array, Series or one-column frame of texts, or of pairs: tuples of two, or two columns. `fit` learns
    nothing from X: it loads the model and holds on to the arguments, so that vectors may be computed once, before a
    cross-validation. A process keeps the last two models it loaded (see `loaded`), so a search over `layers` or `pool`
    loads one only once; the vectors themselves are computed again at every fit.

    A pickle carries the weights as safetensors bytes beside settings and tokenizer, and nothing of torch: it works
    where the model folder is absent. It holds what vectors need, no heads. A pickle made with device="cuda" runs on
    the CPU where there is no CUDA.

    Attributes after `fit`: `encoder_` (a kinfolk.Encoder, shared: do not change it) and `n_features_out_` (D).
    """

    needs_heads = False

    def __init__(
        self,
        model: str | Path = "demo",
        layers: str | Sequence[int] | None = None,
        pool: str | None = None,
        normalize: bool | None = None,
        on_long: str = "window",
        window: int | None = None,
        stride: int | None = None,
        device: str = "auto",
        allow_pickle: bool = False,
    ):
        self.model = model
        self.layers = layers
        self.pool = pool
        self.normalize = normalize
        self.on_long = on_long
        self.window = window
        self.stride = stride
        self.device = device
        self.allow_pickle = allow_pickle

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
        return self.encoder_.embed(texts_of(X), **self.embed_arguments_)  # type: ignore[return-value]

    @property
    def _n_features_out(self) -> int:
        """Where scikit-learn looks when it names the columns (textembedder0, textembedder1, …)."""
        return self.n_features_out_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags
