"""Folders of recurrent language models, classifiers and taggers: config.json and model.safetensors, read and written.

Nobody else publishes in this form, so tensors are called as we call them. Everything is checked before memory is taken,
as for the other families (filling.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kinfolk.checkpoints.filling import fill, write_model
from kinfolk.checkpoints.keys import Source
from kinfolk.checkpoints.tensors import open_tensors
from kinfolk.errors import ConfigError, nearest
from kinfolk.files import inside, read_object
from kinfolk.models.model import Config
from kinfolk.models.recurrent_lm import RecurrentLm, RecurrentLmConfig
from kinfolk.models.recurrent_reader import RecurrentReader, RecurrentReaderConfig

MODELS: dict[str, tuple[type[Config], Callable[[Any], nn.Module]]] = {
    RecurrentLmConfig.model_type: (RecurrentLmConfig, RecurrentLm),
    RecurrentReaderConfig.model_type: (RecurrentReaderConfig, RecurrentReader),
}


def read_recurrent(folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The model of a folder, in float32 on the CPU, and all settings of its config.json."""
    where = inside(folder, "config.json")
    public = read_object(where)
    kind = str(public.get("model_type"))[:60]
    if kind not in MODELS:
        raise ConfigError(f'{where}: model type "{kind}" is not one of {", ".join(MODELS)}{nearest(kind, MODELS)}')
    settings, build = MODELS[kind]
    config = settings.from_public(public, str(where))
    with torch.device("meta"):
        model = build(config)
    tensors = open_tensors(folder)
    places = {name: Source((name,)) for name in model.state_dict()}
    fill(model, kind, places, set(), tensors, {name: name for name in tensors.names()})
    return model.eval(), public


def write_recurrent(folder: Path, model: RecurrentLm | RecurrentReader, public: dict[str, Any] | None = None) -> None:
    """config.json, with the settings of `public` handed on, and model.safetensors."""
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    settings = (public or {}) | model.config.to_public()
    write_model(folder, state, settings, model.config.model_type, type(model).__name__)
