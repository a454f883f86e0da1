"""What is known of the family, of a published model, and of a model folder: plain records, for a reader or as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from kinfolk.checkpoints.folder import read_checkpoint
from kinfolk.checkpoints.manifest import check_manifest
from kinfolk.checkpoints.sentence import SentenceRecipe, read_recipe
from kinfolk.errors import FolderError
from kinfolk.models.model import EncoderConfig, count_parameters
from kinfolk.models.registry import families, preset
from kinfolk.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Relative:
    """A family of models: who it descends from, and what it is about."""

    name: str
    title: str
    parent: str | None
    idea: str
    paper: str
    presets: list[str]


@dataclass(frozen=True)
class Sizes:
    """The numbers that make a model large or small."""

    layers: int
    width: int
    heads: int
    inner_width: int
    context: int
    vocabulary: int


@dataclass(frozen=True)
class PresetInfo:
    """A published model: its parameters as computed here, beside the number that its authors report."""

    name: str
    family: str
    sizes: Sizes
    parameters: int
    published: str


@dataclass(frozen=True)
class FolderInfo:
    """A model folder. `manifest` is "intact", "none" or "damaged: …"."""

    folder: str
    family: str
    sizes: Sizes
    parameters: int
    head_parameters: int
    heads: dict[str, int]
    tokenizer: str
    tokens: int
    recipe: SentenceRecipe | None
    manifest: str


def relatives() -> list[Relative]:
    """All families, parents first."""
    return [
        Relative(found.name, found.title, found.parent, found.idea, found.paper, list(found.presets))
        for found in families()
    ]


def describe_preset(name: str) -> PresetInfo:
    """A published model by its public name; nothing is downloaded.

    >>> describe_preset("bert-base-uncased").parameters
    109482240
    """
    family, found = preset(name)
    parameters = count_parameters(family, found.config, pooler=family.has_pooler)
    return PresetInfo(name, family.title, sizes_of(found.config), parameters, found.published)


def sizes_of(config: EncoderConfig) -> Sizes:
    """The sizes that a config states."""
    context = config.context
    return Sizes(config.layers, config.width, config.heads, config.inner_width, context, config.vocabulary_size)


def describe_folder(folder: Path, allow_pickle: bool = False) -> FolderInfo:
    """A model folder, read as `load` would read it, except that a damaged manifest is told and not raised."""
    model = read_checkpoint(folder, allow_pickle).model
    tokenizer = Tokenizer.load(folder, model.family.name)
    heads = {name: sum(weight.numel() for weight in head.parameters()) for name, head in model.heads.items()}
    return FolderInfo(
        folder=str(folder),
        family=model.family.title,
        sizes=sizes_of(model.config),
        parameters=sum(weight.numel() for weight in model.body.parameters()),
        head_parameters=sum(heads.values()),
        heads=heads,
        tokenizer=tokenizer.kind,
        tokens=tokenizer.vocabulary_size,
        recipe=read_recipe(folder),
        manifest=manifest_state(folder),
    )


def manifest_state(folder: Path) -> str:
    """Is there a manifest, and are the files as it says?"""
    try:
        return "intact" if check_manifest(folder) else "none"
    except FolderError as error:
        return f"damaged: {error}"


def as_json(found: Relative | PresetInfo | FolderInfo) -> dict[str, object]:
    """A record as plain data."""
    return dataclasses.asdict(found)
