"""head.json and head.safetensors: what is read out of a frozen encoder, beside the encoder's own public files.

Other libraries open the folder as the plain encoder that it also is. head.json has the settings of `ProbeConfig` and
the name of the head.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from kinfolk.checkpoints.weights import fill, open_safetensors, write_tensors
from kinfolk.errors import ConfigError, WeightsError, did_you_mean, shorten_list
from kinfolk.files import inside, read_object, write_json
from kinfolk.models.family import Model, Source
from kinfolk.nn.probe import ProbeConfig, ProbeHead

SETTINGS, WEIGHTS = "head.json", "head.safetensors"
FORMAT = 1


def write_probe(folder: Path, model: Model) -> Model:
    """Both files of a model whose head is a probe; returns the model as other libraries know it."""
    if len(model.heads) > 1:
        raise WeightsError(f"a probe is saved with no other head beside it; here are {shorten_list(model.heads)}")
    ((name, probe),) = model.heads.items()
    assert isinstance(probe, ProbeHead)
    names = _stored_names(probe)
    write_tensors(folder / WEIGHTS, {names[part]: tensor.detach().cpu() for part, tensor in probe.state_dict().items()})
    write_json(folder / SETTINGS, {"format": FORMAT, "head": name} | dataclasses.asdict(probe.config))
    return model.with_heads({})


def read_probe(folder: Path, model: Model) -> Model:
    if model.heads:
        raise WeightsError(f"{folder}: beside {SETTINGS} the weights have other heads: {shorten_list(model.heads)}")
    path = inside(folder, SETTINGS)
    settings, known = read_object(path), [field.name for field in dataclasses.fields(ProbeConfig)]
    if settings.pop("format", None) != FORMAT:
        raise ConfigError(f"{path}: not a head that kinfolk wrote, or one of a later version")
    name, layers = settings.pop("head", None), settings.get("layers")
    try:
        for unknown in settings.keys() - {*known}:
            raise ConfigError(f'unknown setting "{unknown[:60]}"{did_you_mean(unknown[:60], known)}')
        if missing := [name for name in known if name not in settings]:
            raise ConfigError(f"no {shorten_list(missing)}")
        config = ProbeConfig(**(settings | {"layers": tuple(layers) if isinstance(layers, list) else layers}))
        deepest, encoder = max(config.layers), model.config
        if config.width != encoder.width or deepest > encoder.layers:
            size = f"the encoder has {encoder.layers} layers of width {encoder.width}"
            raise ConfigError(f"reads layer {deepest} of width {config.width}; {size}")
        if name != ("classify" if config.pool is not None else "tag_crf" if config.crf else "tag"):
            raise ConfigError(f"head={str(name)[:60]!r} is not what pool and crf make of it")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    with torch.device("meta"):
        probe = ProbeHead(config)
    located = {ours: Source((stored,)) for ours, stored in _stored_names(probe).items()}
    fill(probe, SETTINGS, located, open_safetensors(inside(folder, WEIGHTS)))
    return model.with_heads({str(name): probe})


def _stored_names(probe: ProbeHead) -> dict[str, str]:
    """Our names of its tensors, and the file's."""
    names = {} if probe.recurrent is None else probe.recurrent.stored_names("recurrent.")
    return {name: names.get(name, name) for name in probe.state_dict()}
