"""kinfolk in scikit-learn: a transformer from texts to vectors, for pipelines and searches.

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
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from kinfolk.checkpoints.keys import divide, sources
from kinfolk.checkpoints.sentence import SentenceRecipe
from kinfolk.checkpoints.tensors import tensors_from_bytes, tensors_to_bytes
from kinfolk.errors import InputError, KinfolkError
from kinfolk.files import reading
from kinfolk.jobs.loaded import Encoder, load, pick_device
from kinfolk.models.model import EncoderConfig, Family, Model
from kinfolk.models.registry import family as family_of
from kinfolk.text.tokenizer import Text, Tokenizer

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise KinfolkError(f'kinfolk.sklearn needs scikit-learn ({error}); run: pip install "kinfolk[train]"') from None

__all__ = ["TextEmbedder"]

CACHED_MODELS = 2


class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts to vectors, (n, D) in float32; the arguments are those of `kinfolk.load` and of `Encoder.embed`.

    X is a list, array, Series or one-column frame of texts (or of pairs: tuples of two). `fit` learns nothing from X:
    it loads the model and holds on to the arguments, so that vectors may be computed once, before a cross-validation.
    A process keeps the last two models it loaded (see `loaded`), so a search over `layers` or `pool` loads one only
    once; the vectors themselves are computed again at every fit.

    A pickle carries the weights as safetensors bytes beside settings and tokenizer, and nothing of torch: it works
    where the model folder is absent. It holds what vectors need, no heads. A pickle made with device="cuda" runs on
    the CPU where there is no CUDA.

    Attributes after `fit`: `encoder_` (a kinfolk.Encoder, shared: do not change it) and `n_features_out_` (D).
    """

    def __init__(
        self,
        model: str | Path = "demo",
        layers: str | Sequence[int] | None = None,
        pool: str | None = None,
        normalize: bool | None = None,
        on_long: str = "window",
        device: str = "auto",
        allow_pickle: bool = False,
    ):
        self.model = model
        self.layers = layers
        self.pool = pool
        self.normalize = normalize
        self.on_long = on_long
        self.device = device
        self.allow_pickle = allow_pickle

    def fit(self, X: object = None, y: object = None) -> Self:  # noqa: N803
        """Load the model; X and y are ignored."""
        if self.pool == "none":
            raise InputError('pool="none" gives a vector per token, not one per text; use kinfolk.load(...).embed')
        encoder = loaded(self.model, self.device, self.allow_pickle)
        arguments = {name: getattr(self, name) for name in ("layers", "pool", "normalize", "on_long")}
        self.n_features_out_ = encoder.embed_width(encoder.embed_settings(**arguments))
        self.encoder_, self.embed_arguments_ = encoder, arguments
        return self

    def transform(self, X: Iterable[Text]) -> np.ndarray:  # noqa: N803
        """Vectors of texts, by the arguments that `fit` saw."""
        check_is_fitted(self)
        return self.encoder_.embed(_texts(X), **self.embed_arguments_)  # type: ignore[return-value]

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

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "encoder_" in state:
            state["encoder_"] = _to_plain(state["encoder_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "encoder_" in state:
            device = state["device"] if torch.cuda.is_available() else "cpu"
            state = state | {"encoder_": _from_plain(state["encoder_"], device)}
        super().__setstate__(state)


def loaded(model: str | Path, device: str = "auto", allow_pickle: bool = False) -> Encoder:
    """As `kinfolk.load`, but a model that is still in memory is used again, unless a file of its folder has changed.

    The last two models are kept; `forget_models()` lets them go.
    """
    if not isinstance(model, str | Path):
        raise InputError(f"model={str(model)[:60]!r} is a {type(model).__name__}; give a folder or a hub name")
    folder = Path(model).expanduser()
    with reading(folder):
        here = folder.is_dir()  # else it is "demo" or a hub name, whose files nobody edits
        name = str(folder.resolve()) if here else str(model)
        return _load_once(name, pick_device(device).type, bool(allow_pickle), _stamp(folder) if here else ())


@lru_cache(maxsize=CACHED_MODELS)
def _load_once(name: str, device: str, allow_pickle: bool, stamp: tuple[object, ...]) -> Encoder:
    return load(name, device, allow_pickle)


forget_models = _load_once.cache_clear


def _stamp(folder: Path) -> tuple[object, ...]:
    """Name, size and time of change of the files that a model may be read from."""
    files = sorted(path for path in (*folder.glob("*"), *folder.glob("*/config.json")) if path.is_file())
    return tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)


def _texts(X: Any) -> list[Text]:  # noqa: N803
    """The texts of a list, array, Series or one-column frame."""
    shape = getattr(X, "shape", None)
    if isinstance(X, str | bytes) or shape == () or not isinstance(X, Iterable):
        raise InputError(f"expected a list of texts, found a single {type(X).__name__}; wrap it in a list")
    if shape is None:
        return list(X)
    if len(shape) > 2 or shape[1:] not in ((), (1,)):
        raise InputError(f"X has shape {tuple(shape)}; give one column of texts")
    texts: list[Text] = np.asarray(X, dtype=object).reshape(-1).tolist()
    return texts


def _to_plain(encoder: Encoder) -> dict[str, Any]:
    """What vectors need of an encoder, as strings, numbers and bytes; tensors under their public names."""
    family, config = encoder.model.family, encoder.model.config
    needed = _bare(family, config).state_dict()
    state = {name: tensor for name, tensor in encoder.model.state_dict().items() if name in needed}
    return {
        "family": family.name,
        "config": config.to_public(),
        "weights": tensors_to_bytes(divide(state, sources(family, state, prefix=""))),
        "tokenizer": encoder.tokenizer.to_json(),
        "recipe": dataclasses.asdict(encoder.recipe) if encoder.recipe is not None else None,
    }


def _from_plain(plain: dict[str, Any], device: str) -> Encoder:
    """The inverse of `_to_plain`."""
    family = family_of(plain["family"])
    config = family.config.from_public(plain["config"], "pickled TextEmbedder")
    model = _bare(family, config)
    tensors = tensors_from_bytes(plain["weights"], "pickled TextEmbedder")
    places = sources(family, model.state_dict(), prefix="")
    state = {name: source.join([tensors[theirs] for theirs in source.names]) for name, source in places.items()}
    model.load_state_dict(state, assign=True)
    recipe = SentenceRecipe(**plain["recipe"]) if plain["recipe"] is not None else None
    return Encoder(model.eval().to(pick_device(device)), Tokenizer.from_json(plain["tokenizer"]), recipe)


def _bare(family: Family, config: EncoderConfig) -> Model:
    """The body without weights, pooler and heads."""
    with torch.device("meta"):
        return Model(family, config, {}, pooler=False, own_table=False)
