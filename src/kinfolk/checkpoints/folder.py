"""Model folders in the public layout: config.json and weights, read and written.

Reading decides everything from config.json and the headers first: family, settings, heads, names, shapes. Memory is
taken only when all of that fits. Nothing is left out in silence: a tensor that is missing, has another shape or is not
explained by the family's tables is an error that names it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any

import torch

from kinfolk.checkpoints.filling import fill, write_model
from kinfolk.checkpoints.keys import Source, divide, modern, sources
from kinfolk.checkpoints.readout import read_readout, split_readout, write_readout
from kinfolk.checkpoints.tensors import TensorSource, open_tensors
from kinfolk.errors import ConfigError, WeightsError, shorten_list
from kinfolk.files import inside, read_object
from kinfolk.models.model import EncoderConfig, Family, Head, Model
from kinfolk.models.registry import family as family_of
from kinfolk.nn.heads import MaskedHead

PAIR_HEADS = ("next_sentence", "sentence_order")


@dataclass
class Checkpoint:
    """A model and the public settings it came with (label names and the like), which a save hands on."""

    model: Model
    public: dict[str, Any] = field(default_factory=dict)


def read_checkpoint(folder: Path, allow_pickle: bool = False) -> Checkpoint:
    """The model of a folder, in float32 on the CPU."""
    where = inside(folder, "config.json")
    public = read_object(where)
    kind = public.get("model_type")
    if not isinstance(kind, str):
        raise ConfigError(f"{where}: no model_type, so the family is unknown")
    family = family_of(kind)
    config = family.config.from_hf(public, str(where))
    architecture = _architecture(public, family, str(where))
    tensors = open_tensors(folder, allow_pickle)
    names = {modern(name): name for name in tensors.names()}
    if len(names) != len(list(tensors.names())):
        raise WeightsError(f"{tensors.where}: a norm's weight stands there under its old and its new name")
    model = _build(family, config, architecture, public, tensors, names)
    _fill(model, tensors, names)
    if _tied(public):
        _share_table(model)
    found = read_readout(folder, config)
    if found is not None:
        if model.heads:
            raise WeightsError(
                f"{tensors.where}: beside head.json the weights carry heads of their own: {shorten_list(model.heads)}"
            )
        model = model.with_heads(dict([found]))
    return Checkpoint(model.eval(), public)


def _tied(public: dict[str, Any]) -> bool:
    tied = public.get("tie_word_embeddings")
    if not (tied is None or isinstance(tied, bool)):
        raise ConfigError(f"config.json: tie_word_embeddings={str(tied)[:60]} is neither true nor false")
    return tied is not False


def _share_table(model: Model) -> None:
    """A table that only repeats the embedding goes; one that differs is what the scores were made with, and stays."""
    for head in model.heads.values():
        if isinstance(head, MaskedHead) and head.table is not None and head.table.equal(model.body.token_table):  # type: ignore[arg-type]
            head.table = None


def _architecture(public: dict[str, Any], family: Family, where: str) -> str | None:
    listed = public.get("architectures") or [None]
    if not isinstance(listed, list) or not (listed[0] is None or isinstance(listed[0], str)):
        raise ConfigError(f"{where}: architectures is not a list of names")
    known = {family.base_architecture, family.pair_architecture, *(head.architecture for head in family.heads.values())}
    if listed[0] is not None and listed[0] not in known:
        supported = ", ".join(sorted(name for name in known if name))
        raise ConfigError(f'{where}: architecture "{listed[0][:60]}" is not one kinfolk reads ({supported})')
    return listed[0]


def _build(
    family: Family,
    config: EncoderConfig,
    architecture: str | None,
    public: dict[str, Any],
    tensors: TensorSource,
    names: dict[str, str],
) -> Model:
    """An empty model with just the heads that the file carries."""
    heads: dict[str, int] = {}
    for name in _heads_of(family, architecture, names):
        head = family.heads[name]
        weight = f"{head.keys['output']}.weight" if "output" in head.keys else None
        shape = tensors.shape(names[weight]) if weight in names else (0,)
        heads[name] = shape[0] if shape else 0
    pooler = family.has_pooler and any(name.startswith(f"{_prefix(family, names)}pooler.") for name in names)
    own_table = "masked_lm" in heads and (not _tied(public) or family.heads["masked_lm"].keys["table"] in names)
    with torch.device("meta"):
        model = Model(family, config, heads, pooler, own_table)
    for name, built in model.heads.items():
        if built.reads == "pooled" and not pooler:
            raise WeightsError(f"{tensors.where}: the {name} head reads the pooler's output, but there is no pooler")
    return model


def _has_head(head: Head, names: dict[str, str]) -> bool:
    """Are all of a head's modules in the file? Its own table may be missing, and a duplicate may stand in."""
    stand_ins = {part: theirs for theirs, part in head.duplicates.items()}
    needed = [(key, stand_ins.get(part, key)) for part, key in head.keys.items() if part != "table"]
    return all(any(name in keys or name.startswith(f"{keys[0]}.") for name in names) for keys in needed)


def _heads_of(family: Family, architecture: str | None, names: dict[str, str]) -> list[str]:
    """The heads that a file carries. Some share their tensors' names: then the architecture tells which one it is,
    without one it is the text classifier, and of two heads of one architecture the one that explains more tensors."""
    present = [name for name, head in family.heads.items() if _has_head(head, names)]

    def fit(name: str) -> tuple[bool, bool, int]:
        head = family.heads[name]
        return head.architecture == architecture, name == "classify", len(head.keys)

    rivals = {name: [other for other in present if _clash(family, name, other)] for name in present}
    return [name for name in present if name == max(rivals[name], key=fit)]


def _clash(family: Family, name: str, other: str) -> bool:
    """Do two heads lay claim to the same public tensors?"""
    pairs = product(family.heads[name].keys.values(), family.heads[other].keys.values())
    return any(f"{one}.".startswith(f"{two}.") or f"{two}.".startswith(f"{one}.") for one, two in pairs)


def _prefix(family: Family, names: dict[str, str]) -> str:
    prefix = f"{family.prefix}."
    return prefix if any(name.startswith(prefix) for name in names) else ""


def _fill(model: Model, tensors: TensorSource, names: dict[str, str]) -> None:
    """Check every name and shape, then read the weights into the model."""
    prefix = _prefix(model.family, names)
    places = sources(model.family, model.state_dict(), prefix) | _stored_twice(model, names)
    fill(model, model.family.title, places, _explained(model, prefix), tensors, names)


def _stored_twice(model: Model, names: dict[str, str]) -> dict[str, Source]:
    """Where a tensor stands there twice, the duplicate is the one that the reference library computes with."""
    found = {}
    for name in model.heads:
        for theirs, part in model.family.heads[name].duplicates.items():
            if theirs in names:
                found[f"heads.{name}.{part}"] = Source((theirs,))
    return found


def _explained(model: Model, prefix: str) -> set[str]:
    """Public tensors that hold no weight of their own: position numbers, and what a duplicate stands in for."""
    explained = {f"{prefix}{name}" for name in model.family.ignored}
    for name in model.heads:
        head = model.family.heads[name]
        explained |= {str(head.keys[part]) for part in head.duplicates.values()}
    return explained


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """config.json and model.safetensors (in shards above 5 GB), as transformers writes them; a readout beside them."""
    model, readout = split_readout(checkpoint.model)
    if readout is not None:
        write_readout(folder, *readout)
    for one, two in combinations(model.heads, 2):
        if _clash(model.family, one, two):
            raise WeightsError(f"the heads {one} and {two} share public names; save them in folders of their own")
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    prefix = f"{model.family.prefix}." if model.heads else ""
    tensors = divide(state, sources(model.family, state, prefix))
    for name, head in model.heads.items():
        if isinstance(head, MaskedHead) and head.table is not None:  # the reference reads the duplicates then
            names = model.family.heads[name]
            tensors |= {theirs: tensors[str(names.keys[part])] for theirs, part in names.duplicates.items()}
    settings = checkpoint.public | model.config.to_hf()
    if "masked_lm" in model.heads:
        settings["tie_word_embeddings"] = model.heads["masked_lm"].table is None
    write_model(folder, tensors, settings, model.family.name, architecture(model))


def architecture(model: Model) -> str:
    """The public name of the class that has exactly this model's heads."""
    heads, family = list(model.heads), model.family
    if not heads:
        return family.base_architecture
    if "masked_lm" in heads and any(name in heads for name in PAIR_HEADS) and family.pair_architecture:
        return family.pair_architecture
    return family.heads[heads[0]].architecture
