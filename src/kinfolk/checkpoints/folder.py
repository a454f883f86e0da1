"""Model folders in the public layout, of every family: config.json and weights, read and written.

Reading decides everything from config.json and the headers first: family, settings, heads, names, shapes. Memory is
taken only when all of that fits. Nothing is left out in silence: a tensor that is missing, has another shape or is not
explained by the family's tables is an error that names it. Some public files hold a shared table several times, or the
sinusoids that everyone computes: these must say the same, or the folder is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any

import torch

from kinfolk.checkpoints.keys import Source, divide, fill, modern, sources
from kinfolk.checkpoints.probe import read_probe, split_probe, write_probe
from kinfolk.checkpoints.weights import TensorSource, open_tensors, write_sharded
from kinfolk.errors import ConfigError, WeightsError, shorten_list
from kinfolk.files import inside, read_object, write_json
from kinfolk.models.family import Family, Head, Model
from kinfolk.models.registry import FILES
from kinfolk.models.registry import family as family_of
from kinfolk.nn.positions import sinusoids

GENERATION = "generation_config.json"
ROUNDING = 2e-3  # of sinusoids that were stored in half precision


@dataclass
class Checkpoint:
    """A model and the public settings it came with (label names, beams and the like), which a save hands on."""

    model: Model
    hf_config: dict[str, Any] = field(default_factory=dict)
    generation_config: dict[str, Any] = field(default_factory=dict)


def is_conditional(folder: Path) -> bool:
    """Does config.json name a model that reads a source and writes a target?"""
    path = inside(folder, "config.json")
    kind = str(read_object(path).get("model_type")) if path.is_file() else ""
    return kind in FILES and family_of(kind).is_conditional


def read_checkpoint(folder: Path, allow_pickle: bool = False) -> Checkpoint:
    """The model of a folder, in float32 on the CPU."""
    location = inside(folder, "config.json")
    hf_config = read_object(location)
    kind = hf_config.get("model_type")
    if not isinstance(kind, str):
        raise ConfigError(f"{location}: no model_type, so the family is unknown")
    family = family_of(kind)
    config = family.config.from_hf(hf_config, str(location))
    architecture = _architecture(hf_config, family, str(location))
    tensors = open_tensors(folder, allow_pickle)
    names = {modern(name): name for name in tensors.names()}
    if len(names) != len(list(tensors.names())):
        raise WeightsError(f"{tensors.location}: a norm's weight stands there under its old and its new name")
    tied = hf_config.get("tie_word_embeddings")
    if not (tied is None or isinstance(tied, bool)):
        raise ConfigError(f"{location}: tie_word_embeddings={str(tied)[:60]} is neither true nor false")
    model = _build(family, config, _heads_of(family, architecture, names), tied is not False, tensors, names)
    _fill(model, tensors, names)
    head = model.vocabulary_head
    if tied is not False and "masked_lm" in model.heads and head is not None and head.table is not None:
        # A table that only repeats the embedding goes; one that differs is what the scores were made with, and stays.
        head.table = None if head.table.weight.equal(model.body.token_embedding.weight) else head.table
    probe = read_probe(folder, config)
    if probe is not None:
        if model.heads:
            raise WeightsError(
                f"{tensors.location}: beside head.json the weights have heads of their own: {shorten_list(model.heads)}"
            )
        model = model.with_heads(dict([probe]))
    path = inside(folder, GENERATION)
    generation = read_object(path) if family.generation_config is not None and path.exists() else {}
    return Checkpoint(model.eval(), hf_config, generation)


def _architecture(hf_config: dict[str, Any], family: Family, location: str) -> str | None:
    listed = hf_config.get("architectures") or [None]
    if not isinstance(listed, list) or not (listed[0] is None or isinstance(listed[0], str)):
        raise ConfigError(f"{location}: architectures is not a list of names")
    known = {family.base_architecture, family.joint_architecture}
    known |= {head.architecture for head in family.heads.values()}
    if listed[0] is not None and listed[0] not in known:
        supported = ", ".join(sorted(name for name in known if name))
        raise ConfigError(f'{location}: architecture "{listed[0][:60]}" is not one kinfolk reads ({supported})')
    return listed[0]


def _build(
    family: Family, config: Any, heads_present: list[str], tied: bool, tensors: TensorSource, names: dict[str, str]
) -> Model:
    """An empty model with just the heads that the file carries."""
    heads: dict[str, int] = {}
    for name in heads_present:
        head = family.heads[name]
        weight = f"{head.keys['output']}.weight" if "output" in head.keys else None
        shape = tensors.shape(names[weight]) if weight in names else (0,)
        heads[name] = shape[0] if shape else 0
    pooler = family.has_pooler and any(name.startswith(f"{_prefix(family, names)}pooler.") for name in names)
    with torch.device("meta"):
        model = Model(family, config, heads, pooler)
        if "masked_lm" in heads:
            has_table = f"{family.heads['masked_lm'].keys['table']}.weight" in names
            if has_table or not tied:
                model.heads["masked_lm"].untie()  # type: ignore[operator]
    for name, built in model.heads.items():
        if built.reads == "pooled" and not pooler:
            raise WeightsError(f"{tensors.location}: the {name} head reads the pooler's output, but there is no pooler")
    return model


def _heads_of(family: Family, architecture: str | None, names: dict[str, str]) -> list[str]:
    """The heads that a file carries. Some share their tensors' names: then the architecture tells which one it is,
    without one it is the text classifier, and of two heads of one architecture the one that explains more tensors."""
    if family.base_architecture is None:
        return list(family.default_heads)

    def is_present(head: Head) -> bool:  # its own table may be missing, and a duplicate may stand in
        stand_ins = {part: theirs for theirs, part in head.duplicates.items()}
        needed = [(key, stand_ins.get(part, key)) for part, key in head.keys.items() if part != "table"]
        return all(any(name in keys or name.startswith(f"{keys[0]}.") for name in names) for keys in needed)

    def fit(name: str) -> tuple[bool, bool, int]:
        head = family.heads[name]
        return head.architecture == architecture, name == "classify", len(head.keys)

    present = [name for name, head in family.heads.items() if is_present(head)]
    rivals = {name: [other for other in present if _clash(family, name, other)] for name in present}
    return [name for name in present if name == max(rivals[name], key=fit)]


def _clash(family: Family, name: str, other: str) -> bool:
    """Do two heads lay claim to the same public tensors?"""
    pairs = product(family.heads[name].keys.values(), family.heads[other].keys.values())
    return any(f"{one}.".startswith(f"{two}.") or f"{two}.".startswith(f"{one}.") for one, two in pairs)


def _prefix(family: Family, names: dict[str, str]) -> str:
    prefix = f"{family.prefix}." if family.prefix else ""
    return prefix if any(name.startswith(prefix) for name in names) else ""


def _fill(model: Model, tensors: TensorSource, names: dict[str, str]) -> None:
    """Check every name and shape, then read the weights into the model."""
    family, config = model.family, model.config
    prefix, repeats = _prefix(family, names), family.repeats(config)
    located = sources(family, config, model.state_dict(), prefix)
    explained = {f"{prefix}{name}" for name in family.ignored} | {*repeats, *family.sinusoids}
    for name in model.heads:
        head = family.heads[name]
        for theirs, part in head.duplicates.items():  # the reference library computes with the duplicate
            explained.add(str(head.keys[part]))
            if theirs in names:
                located[f"heads.{name}.{part}"] = Source((theirs,))
    # A repeat stands in for a tensor that the file holds only under that name.
    stand_ins = {theirs: repeat for repeat, theirs in repeats.items() if repeat in names and theirs not in names}
    located = {
        name: Source((stand_ins[source.names[0]],)) if source.names[0] in stand_ins else source
        for name, source in located.items()
    }
    fill(model, family.title, located, explained, tensors, names)
    for repeat, theirs in repeats.items():
        first = stand_ins.get(theirs, theirs)
        if repeat in names and repeat != first and not tensors.read(repeat).equal(tensors.read(first)):
            raise WeightsError(f"{tensors.location}: {repeat} differs from {first}; config.json says they are one")
    _check_sinusoids(model, tensors, names)


def _check_sinusoids(model: Model, tensors: TensorSource, names: Mapping[str, str]) -> None:
    config = model.config
    for name in model.family.sinusoids:
        if name not in names:
            continue
        shape = tensors.shape(name)
        if len(shape) != 2 or shape[1] != config.width:
            raise WeightsError(
                f"{tensors.location}: {name} has shape {shape}, config.json asks for a width of {config.width}"
            )
        expected = sinusoids(shape[0], config.width, config.sinusoid)
        if not torch.allclose(tensors.read(name).float(), expected, rtol=0, atol=ROUNDING):
            raise WeightsError(f"{tensors.location}: {name} does not hold the sinusoids that {model.family.title} has")


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """config.json and model.safetensors (in shards above 5 GB), as transformers writes them; a probe beside them."""
    model, probe_head = split_probe(checkpoint.model)
    family, config = model.family, model.config
    if probe_head is not None:
        write_probe(folder, *probe_head)
    for one, two in combinations(model.heads, 2):
        if _clash(family, one, two):
            raise WeightsError(f"the heads {one} and {two} share public names; save them in folders of their own")
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    prefix = f"{family.prefix}." if family.prefix and model.heads else ""
    tensors = divide(state, sources(family, config, state, prefix))
    settings = checkpoint.hf_config | config.to_hf()
    if "masked_lm" in model.heads:
        settings["tie_word_embeddings"] = model.heads["masked_lm"].table is None
        if not settings["tie_word_embeddings"]:  # the reference reads the duplicates then
            head = family.heads["masked_lm"]
            tensors |= {theirs: tensors[str(head.keys[part])] for theirs, part in head.duplicates.items()}
    write_sharded(folder, tensors)
    settings |= {"model_type": family.name, "architectures": [architecture(model)]}
    settings.pop("torch_dtype", None)  # the old name; a stale one would make readers round the weights
    settings["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    write_json(folder / "config.json", dict(sorted(settings.items())))
    if family.generation_config is not None:
        # What a user chose (beams, length) stays; the ids are the config's.
        saved = checkpoint.generation_config
        chosen = {name: value for name, value in saved.items() if not name.endswith("_token_id")}
        chosen.pop("_from_model_config", None)  # it would make transformers forget this file
        write_json(folder / GENERATION, dict(sorted((family.generation_config(config) | chosen).items())))


def architecture(model: Model) -> str:
    """The public name of the class that has exactly this model's heads."""
    family, heads = model.family, list(model.heads)
    if not heads:
        assert family.base_architecture is not None, f"{family.title} is never without its head"
        return family.base_architecture
    if family.joint_architecture is not None and {*family.pretraining_heads} <= {*heads}:
        return family.joint_architecture
    return family.heads[heads[0]].architecture
