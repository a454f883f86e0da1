"""Tiny random recurrent models, in float64, for every kind of recurrence and score."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kinfolk.models.family import Model
from kinfolk.models.registry import family
from kinfolk.nn.recurrent import RecurrentStack, stored_names
from tiny import randomise

SIZES: dict[str, Any] = {"vocabulary_size": 30, "width": 8, "hidden": 8, "layers": 2, "dropout": 0.2, "tied": True}
PLAIN: dict[str, dict[str, Any]] = {
    "rnn, one way": {"kind": "rnn", "bidirectional": False},
    "lstm, both ways": {"kind": "lstm"},
    "gru, both ways, own tables": {
        "kind": "gru", "shared_tables": False, "tied": False, "target_vocabulary_size": 23, "hidden": 6,
    },
    "gru reset before, both ways": {"kind": "gru_reset_before"},
}  # fmt: skip
LOOKING: dict[str, dict[str, Any]] = {
    "dot, lstm, one way": {"score": "dot", "bidirectional": False},
    "bilinear, gru": {"score": "bilinear", "kind": "gru"},
    "perceptron, lstm, own tables": {
        "score": "perceptron", "score_width": 5, "shared_tables": False, "tied": False, "hidden": 6,
    },
}  # fmt: skip
VARIANTS = PLAIN | LOOKING


def our_seq2seq(seed: int = 0, **changes: Any) -> Model:
    """A random model; with a `score` it looks back."""
    settings = SIZES | changes
    return _random("kinfolk-attention" if "score" in settings else "kinfolk-seq2seq", seed, settings)


def our_lm(seed: int = 0, **changes: Any) -> Model:
    """A random language model."""
    settings = {name: value for name, value in SIZES.items() if name != "hidden"} | changes
    return _random("kinfolk-recurrent-lm", seed, settings)


def _random(name: str, seed: int, settings: dict[str, Any]) -> Model:
    model = Model(family(name), family(name).config.make(**settings))
    return randomise(model, seed).double().eval()  # type: ignore[no-any-return]


def torch_weights(stack: RecurrentStack) -> dict[str, Tensor]:
    """The weights of a stack as torch's one module for all layers calls them."""
    names = stored_names("", stack.kind, stack.layers, stack.directions == 2)
    return {names[name].removeprefix("cells."): weight for name, weight in stack.state_dict().items()}
