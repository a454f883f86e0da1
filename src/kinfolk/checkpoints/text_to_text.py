"""Folders of text-to-text models: Marian's as transformers has them, and our own, read and written.

Decided from config.json and the headers, as for encoders (folder.py). Some public files hold a shared table several
times, or the sinusoids that all_families computes: these must say the same, or the folder is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kinfolk.checkpoints.filling import fill, write_model
from kinfolk.checkpoints.keys import Source, divide, translate
from kinfolk.checkpoints.tensors import TensorSource, open_tensors
from kinfolk.errors import ConfigError, WeightsError
from kinfolk.files import inside, read_object, write_json
from kinfolk.models.registry import TEXT_TO_TEXT, text_to_text
from kinfolk.models.text_to_text import TextToText
from kinfolk.nn.positions import sinusoids

GENERATION = "generation_config.json"
ROUNDING = 2e-3  # of sinusoids that were stored in half precision


@dataclass
class TextToTextCheckpoint:
    """A model, the public settings it came with, and those for generation; a save hands both on."""

    model: nn.Module
    public: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)


def is_text_to_text(folder: Path) -> bool:
    """Does config.json name a model that writes texts?"""
    path = inside(folder, "config.json")
    return path.is_file() and str(read_object(path).get("model_type")) in TEXT_TO_TEXT


def read_text_to_text(folder: Path, allow_pickle: bool = False) -> TextToTextCheckpoint:
    """The model of a folder, in float32 on the CPU."""
    where = inside(folder, "config.json")
    public = read_object(where)
    kind = public.get("model_type")
    if not isinstance(kind, str):
        raise ConfigError(f"{where}: no model_type, so the family is unknown")
    family = text_to_text(kind)
    config = family.config.from_hf(public, str(where))
    listed = public.get("architectures")
    if listed is not None and listed != [family.architecture]:
        raise ConfigError(f"{where}: architectures={str(listed)[:60]} is not [{family.architecture!r}], the one known")
    tensors = open_tensors(folder, allow_pickle)
    names = {name: name for name in tensors.names()}
    with torch.device("meta"):
        model = family.body(config)
    repeats = family.repeats(config)
    places = _present(_places(family, config, model), repeats, names)
    fill(model, family.title, places, {*repeats, *family.sinusoids}, tensors, names)
    _check_repeats(repeats, tensors, names)
    _check_sinusoids(family, config, tensors, names)
    path = inside(folder, GENERATION)
    return TextToTextCheckpoint(model.eval(), public, read_object(path) if path.exists() else {})


def _places(family: TextToText, config: Any, model: nn.Module) -> dict[str, Source]:
    """Where each of our tensors lies in a public file."""
    keys = None if family.keys is None else family.keys(config)
    return {name: Source((name,)) if keys is None else translate(name, keys) for name in model.state_dict()}


def _present(places: Mapping[str, Source], repeats: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Source]:
    """A repeat stands in for a tensor that the file holds only under that name."""
    stand_ins = {theirs: repeat for repeat, theirs in repeats.items() if repeat in names}

    def present(source: Source) -> Source:
        theirs = source.names[0]
        return Source((stand_ins[theirs],)) if theirs not in names and theirs in stand_ins else source

    return {name: present(source) for name, source in places.items()}


def _check_repeats(repeats: Mapping[str, str], tensors: TensorSource, names: Mapping[str, str]) -> None:
    groups: dict[str, list[str]] = {}
    for repeat, theirs in repeats.items():
        groups.setdefault(theirs, [theirs] if theirs in names else []).extend([repeat] if repeat in names else [])
    for first, *others in groups.values():
        for other in others:
            if not tensors.read(other).equal(tensors.read(first)):
                raise WeightsError(f"{tensors.where}: {other} differs from {first}, but config.json says they are one")


def _check_sinusoids(family: TextToText, config: Any, tensors: TensorSource, names: Mapping[str, str]) -> None:
    for name in family.sinusoids:
        if name not in names:
            continue
        shape = tensors.shape(name)
        if len(shape) != 2 or shape[1] != config.width:
            raise WeightsError(
                f"{tensors.where}: {name} has shape {shape}, config.json asks for a width of {config.width}"
            )
        expected = sinusoids(shape[0], config.width, config.sinusoid)
        if not torch.allclose(tensors.read(name).float(), expected, rtol=0, atol=ROUNDING):
            raise WeightsError(f"{tensors.where}: {name} does not hold the sinusoids that {family.title} has")


def write_text_to_text(folder: Path, checkpoint: TextToTextCheckpoint) -> None:
    """config.json, model.safetensors and, where the family has one, generation_config.json."""
    model = checkpoint.model
    config: Any = model.config
    family = text_to_text(config.model_type)
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    tensors = divide(state, _places(family, config, model))
    write_model(folder, tensors, checkpoint.public | config.to_hf(), family.name, family.architecture)
    if family.generation is not None:
        # What a user chose (beams, length) stays; the ids are the config's.
        ours = family.generation(config)
        chosen = {name: value for name, value in checkpoint.generation.items() if not name.endswith("_token_id")}
        chosen.pop("_from_model_config", None)  # it would make transformers forget this file
        write_json(folder / GENERATION, dict(sorted((ours | chosen).items())))
