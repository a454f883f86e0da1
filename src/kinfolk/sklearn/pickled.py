"""Pickles of fitted estimators: the model as safetensors bytes beside settings and tokenizer, and nothing of torch.

Such a pickle works where the model folder is absent. One made with device="cuda" runs on the CPU where CUDA is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from sklearn.base import BaseEstimator

from kinfolk.api.loaded import Encoder
from kinfolk.checkpoints.keys import divide, fill, sources
from kinfolk.checkpoints.sentence import SentenceRecipe
from kinfolk.checkpoints.text_model import pick_device
from kinfolk.checkpoints.weights import tensors_from_bytes, tensors_to_bytes
from kinfolk.errors import FolderError
from kinfolk.models.family import Family, Model
from kinfolk.models.registry import family as family_of
from kinfolk.text.tokenizer import Tokenizer


class TextEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose X holds texts, and whose fitted model is `encoder_`.

    `needs_heads` says whether its pickle holds more than the body.
    """

    needs_heads = True
    device: str
    encoder_: Encoder

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "encoder_" in state:
            state["encoder_"] = to_plain(state["encoder_"], self.needs_heads)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "encoder_" in state:
            device = state["device"] if torch.cuda.is_available() else "cpu"
            state = state | {"encoder_": from_plain(state["encoder_"], device, f"pickled {type(self).__name__}")}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def to_plain(encoder: Encoder, heads: bool) -> dict[str, Any]:
    """An encoder as strings, numbers and bytes, tensors under their public names; only the body without `heads`."""
    model, kept = encoder.model, encoder.model.state_dict()
    sizes = {name: _labels(name, kept) for name in model.heads} if heads else {}
    pooler = heads and any(name.startswith("body.pooler.") for name in kept)
    needed = _empty(model.family, model.config, sizes, pooler).state_dict()
    state = {name: tensor for name, tensor in kept.items() if name in needed}
    return {
        "family": model.family.name,
        "config": model.config.to_hf(),
        "weights": tensors_to_bytes(
            divide(state, sources(model.family, model.config, state, _prefix(model.family, sizes)))
        ),
        "tokenizer": encoder.tokenizer.to_json(),
        "recipe": dataclasses.asdict(encoder.recipe) if encoder.recipe is not None else None,
        "heads": sizes,
        "pooler": pooler,
        "public": encoder.hf_config if heads else {},
    }


def from_plain(plain: Mapping[str, Any], device: str, where: str) -> Encoder:
    """The inverse of `to_plain`; version 0.1.0 wrote no heads."""
    try:
        family, sizes = family_of(plain["family"]), plain.get("heads", {})
        model = _empty(family, family.config.from_hf(plain["config"], where), sizes, plain.get("pooler", False))
        tensors = tensors_from_bytes(plain["weights"], where)
        recipe = SentenceRecipe(**plain["recipe"]) if plain["recipe"] is not None else None
        tokenizer, public = Tokenizer.from_json(plain["tokenizer"]), dict(plain.get("public", {}))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FolderError(f"{where}: not a pickle of this estimator ({type(error).__name__}: {error})") from None
    places = sources(family, model.config, model.state_dict(), _prefix(family, sizes))
    fill(model, family.title, places, set(), tensors, {name: name for name in tensors.names()})
    return Encoder(model.eval().to(pick_device(device)), tokenizer, public, recipe=recipe, name=where)


def _labels(head: str, state: Mapping[str, torch.Tensor]) -> int:
    """How many labels a head scores."""
    weight = state.get(f"heads.{head}.output.weight")
    return 0 if weight is None else len(weight)


def _prefix(family: Family, heads: Mapping[str, int]) -> str:
    """As in public files: the body's names have a prefix where heads stand beside them."""
    return f"{family.prefix}." if heads else ""


def _empty(family: Family, config: Any, heads: Mapping[str, int], pooler: bool) -> Model:
    """The model without weights."""
    with torch.device("meta"):
        return Model(family, config, heads, pooler)
