"""head.json and head.safetensors: what is read out of a frozen encoder, beside the encoder's own public files.

Other libraries open the folder as the plain encoder that it also is. head.json has the settings of `ProbeConfig` and
the name of the head; the probe is built from them on the meta device, so every shape is compared with the file's
header before memory is taken.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from kinfolk.checkpoints.keys import Source, fill
from kinfolk.checkpoints.weights import SafetensorsFile, write_tensors
from kinfolk.errors import ConfigError, WeightsError, did_you_mean, shorten_list
from kinfolk.files import inside, read_object, write_json
from kinfolk.models.family import Model
from kinfolk.nn.heads import ProbeConfig, ProbeHead
from kinfolk.nn.recurrent import stored_names

SETTINGS, WEIGHTS = "head.json", "head.safetensors"
FORMAT = 1


def split_probe(model: Model) -> tuple[Model, tuple[str, ProbeHead] | None]:
    """The model as other libraries know it, and its probe with the name of the head."""
    probes = [(name, head) for name, head in model.heads.items() if isinstance(head, ProbeHead)]
    if not probes:
        return model, None
    if len(model.heads) > 1:
        raise WeightsError(f"a probe is saved with no other head beside it; here are {shorten_list(model.heads)}")
    return model.with_heads({}), probes[0]


def write_probe(folder: Path, name: str, probe: ProbeHead) -> None:
    """Both files."""
    names = _stored_names(probe)
    write_tensors(folder / WEIGHTS, {names[part]: tensor.detach().cpu() for part, tensor in probe.state_dict().items()})
    write_json(folder / SETTINGS, {"format": FORMAT, "head": name} | dataclasses.asdict(probe.config))


def read_probe(folder: Path, config: Any) -> tuple[str, ProbeHead] | None:
    """The head's name and the probe of a folder; None where it has no head.json."""
    path = inside(folder, SETTINGS)
    if not path.exists():
        return None
    settings = read_object(path)
    if settings.pop("format", None) != FORMAT:
        raise ConfigError(f"{path}: not a head that kinfolk wrote, or one of a later version")
    name = settings.pop("head", None)
    try:
        probe_config = _settings(settings, config)
        token_head = "tag_crf" if probe_config.crf else "tag"
        if name != ("classify" if probe_config.pool is not None else token_head):
            raise ConfigError(f"head={str(name)[:60]!r} is not what pool and crf make of it")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    tensors = SafetensorsFile(inside(folder, WEIGHTS))
    with torch.device("meta"):
        probe = ProbeHead(probe_config)
    located = {ours: Source((stored,)) for ours, stored in _stored_names(probe).items()}
    fill(probe, SETTINGS, located, set(), tensors, {stored: stored for stored in tensors.names()})
    return str(name), probe.eval()


def _settings(settings: dict[str, Any], config: Any) -> ProbeConfig:
    known = [field.name for field in dataclasses.fields(ProbeConfig)]
    for name in settings:
        if name not in known:
            raise ConfigError(f'unknown setting "{name[:60]}"{did_you_mean(name[:60], known)}')
    missing = [name for name in known if name not in settings]
    if missing:
        raise ConfigError(f"no {shorten_list(missing)}")
    layers = settings["layers"]
    probe = ProbeConfig(**(settings | {"layers": tuple(layers) if isinstance(layers, list) else layers}))
    if probe.width != config.width or max(probe.layers) > config.layers:
        raise ConfigError(
            f"reads layer {max(probe.layers)} of width {probe.width}; the encoder has {config.layers} layers of width "
            f"{config.width}"
        )
    return probe


def _stored_names(probe: ProbeHead) -> dict[str, str]:
    """Our names of its tensors, and the file's."""
    names = stored_names("recurrent.", "lstm", probe.config.recurrent, bidirectional=True)
    return {name: names.get(name, name) for name in probe.state_dict()}
