"""What every text-to-text relative is made of: a config that knows two vocabularies, and a family record.

Their modules read a source and write a target (`encode`, `forward`, `scores`, `start`, `step`); they have no heads, so
their record is smaller than an encoder's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from kinfolk.errors import ConfigError
from kinfolk.models.model import Config, Keys

ATTENTION = re.compile(r"\.(qkv|queries|keys_values)$")  # projections of attention


@dataclass(frozen=True)
class TextToTextConfig(Config):
    """Settings of all models that write a target: their vocabularies, and the ids that frame a target."""

    vocabulary_size: int = 37_000
    target_vocabulary_size: int = 0  # 0: as large as the source's
    pad_id: int = 0
    start_id: int = 1  # stands before a target
    end_id: int = 2  # ends a source and a target

    model_type: ClassVar[str] = ""

    @property
    def target_vocabulary(self) -> int:
        """How many scores a model gives."""
        return self.target_vocabulary_size or self.vocabulary_size

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocabulary_size < 1:
            raise ConfigError("vocabulary_size must be at least 1")
        for name in ("pad_id", "start_id", "end_id"):
            if getattr(self, name) >= self.target_vocabulary:
                raise ConfigError(
                    f"{name}={getattr(self, name):,} is not an id of a target vocabulary of {self.target_vocabulary:,}"
                )


@dataclass(frozen=True)
class TextToTextPreset:
    """Settings with a name, and the number of parameters that their authors report ("" when nobody does)."""

    config: TextToTextConfig
    published: str


def no_repeats(config: Any) -> Mapping[str, str]:
    """Files that hold every tensor once."""
    return {}


@dataclass(frozen=True)
class TextToText:
    """What a model file states about its relative. `keys`, `repeats` and `generation` depend on the config."""

    name: str  # the public model_type
    title: str
    parent: str | None
    idea: str
    paper: str
    config: type[TextToTextConfig]
    body: Callable[[Any], nn.Module]
    initialize: Callable[[Any, int], None]  # a module and a seed: weights to train from
    architecture: str
    presets: Mapping[str, TextToTextPreset]
    keys: Callable[[Any], Keys] | None = None  # None: files that call tensors as we do
    repeats: Callable[[Any], Mapping[str, str]] = no_repeats  # public tensors that repeat another public one
    sinusoids: tuple[str, ...] = ()  # public tensors that hold what we compute
    generation: Callable[[Any], dict[str, Any]] | None = None  # content of generation_config.json


def xavier(model: nn.Module, seed: int = 0) -> None:
    """Xavier's uniform start for matrices, N(0, 1 / width) for tables, biases zero, norms the identity.

    The projections of attention count as one matrix of three widths, as torch's and fairseq's do (Glorot and Bengio
    2010 give a matrix the bound sqrt(6 / (inputs + outputs))).
    """
    generator = torch.Generator().manual_seed(seed)
    for path, module in model.named_modules():
        for name, weight in module.named_parameters(recurse=False):
            with torch.no_grad():
                if isinstance(module, nn.LayerNorm):
                    weight.fill_(1.0 if name == "weight" else 0.0)
                elif weight.ndim == 1:
                    weight.zero_()
                elif isinstance(module, nn.Embedding):
                    weight.normal_(0.0, weight.shape[1] ** -0.5, generator=generator)
                else:
                    outputs = 3 * weight.shape[1] if ATTENTION.search(path) else weight.shape[0]
                    bound = math.sqrt(6 / (weight.shape[1] + outputs))
                    weight.uniform_(-bound, bound, generator=generator)


def fresh(family: TextToText, config: TextToTextConfig, seed: int = 0) -> nn.Module:
    """A model to be trained from the beginning; the same seed gives the same weights."""
    with torch.device("meta"):
        model = family.body(config)
    model.to_empty(device="cpu")
    family.initialize(model, seed)
    return model


def count_text_to_text(family: TextToText, config: TextToTextConfig) -> int:
    """Number of weights of a model, computed without allocating one."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in family.body(config).parameters())
