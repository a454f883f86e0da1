"""What is known of the family, of a published model, and of a model folder: plain records, for a reader or as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinfolk.api.find import DEMO
from kinfolk.checkpoints.folder import read_checkpoint
from kinfolk.checkpoints.g2p import G2P, read_g2p
from kinfolk.checkpoints.manifest import check_manifest
from kinfolk.checkpoints.sentence import SentenceRecipe, read_recipe
from kinfolk.checkpoints.text_to_text import is_text_to_text, read_text_to_text
from kinfolk.errors import FolderError, InputError, did_you_mean
from kinfolk.models.model import EncoderConfig, count_parameters
from kinfolk.models.registry import all_families, owner, text_to_text
from kinfolk.models.text_to_text import TextToText, TextToTextConfig, count_text_to_text
from kinfolk.text.pairs import TranslationTokenizer, load_pair_tokenizer
from kinfolk.text.tokenizer import Tokenizer

OWN = "kinfolk-"  # before the names of families that have no public ones
CELLS = {"rnn", "lstm", "gru", "deck_gru"}  # as commands call the language models


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
    heads: int | None  # None where there is no attention
    inner_width: int | None
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


@dataclass(frozen=True)
class TextToTextPresetInfo:
    """The same for a model that turns a text into a text; families differ in their settings. "" is not published."""

    name: str
    family: str
    settings: dict[str, Any]
    parameters: int
    published: str


@dataclass(frozen=True)
class TextToTextInfo:
    """A model that turns a text into a text, with its tokenizer."""

    family: str
    settings: dict[str, Any]
    parameters: int
    tokenizer: str
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True)
class TextToTextFolderInfo(TextToTextInfo):
    """The folder of such a model."""

    folder: str
    manifest: str


Info = Relative | PresetInfo | FolderInfo | TextToTextPresetInfo | TextToTextInfo


def relatives() -> list[Relative]:
    """All families, parents first."""
    return [
        Relative(found.name, found.title, found.parent, found.idea, found.paper, list(found.presets))
        for found in all_families()
    ]


def describe_name(name: str) -> Relative | PresetInfo | TextToTextPresetInfo:
    """A family by its name or title, or a published model."""
    family = relatives()
    name = f"{OWN}recurrent-lm" if name.casefold() in CELLS else name
    for relative in family:
        if name.casefold() in (relative.name, relative.name.removeprefix(OWN), relative.title.casefold()):
            return relative
    known = [preset for relative in family for preset in relative.presets]
    if name not in known and name.partition("/")[2] in known:  # as the hub has it: google-bert/bert-base-uncased
        name = name.partition("/")[2]
    if name not in known and "/" in name:
        raise FolderError(f"{name}: no such folder; published models are told by their names, as bert-base-uncased is")
    if name not in known:
        close = did_you_mean(name, [*known, *(relative.name for relative in family), DEMO])
        hint = close or "; `kinfolk info` lists the families, `kinfolk info bert` the models of one"
        raise InputError(f'"{name[:200]}" is neither a folder here nor a published model{hint}')
    return describe_preset(name)


def describe_preset(name: str) -> PresetInfo | TextToTextPresetInfo:
    """A published model by its public name; nothing is downloaded.

    >>> describe_preset("bert-base-uncased").parameters
    109482240
    """
    family = owner(name, all_families())
    if isinstance(family, TextToText):
        settings = family.presets[name]
        count = count_text_to_text(family, settings.config)
        return TextToTextPresetInfo(name, family.title, settings_of(settings.config), count, settings.published)
    found = family.presets[name]
    parameters = count_parameters(family, found.config, pooler=family.has_pooler)
    return PresetInfo(name, family.title, sizes_of(found.config), parameters, found.published)


def sizes_of(config: EncoderConfig) -> Sizes:
    """The sizes that a config states."""
    heads, inner_width = (getattr(config, name, None) for name in ("heads", "inner_width"))
    return Sizes(config.layers, config.width, heads, inner_width, config.context, config.vocabulary_size)


def settings_of(config: TextToTextConfig) -> dict[str, Any]:
    """What a config says, but for the ids of special tokens."""
    return {name: value for name, value in dataclasses.asdict(config).items() if not name.endswith("_id")}


def describe_text_to_text(model: Any, tokenizer: TranslationTokenizer) -> TextToTextInfo:
    """A loaded model that turns a text into a text."""
    config: TextToTextConfig = model.config
    return TextToTextInfo(
        family=text_to_text(config.model_type).title,
        settings=settings_of(config),
        parameters=sum(weight.numel() for weight in model.parameters()),
        tokenizer=type(tokenizer).__name__,
        source_tokens=tokenizer.source_size,
        target_tokens=tokenizer.target_size,
    )


def describe_folder(folder: Path, allow_pickle: bool = False) -> FolderInfo | TextToTextFolderInfo:
    """A model folder, read as `load` would read it, except that a damaged manifest is told and not raised."""
    if is_text_to_text(folder):
        found = describe_text_to_text(read_text_to_text(folder, allow_pickle).model, load_pair_tokenizer(folder))
        return TextToTextFolderInfo(**dataclasses.asdict(found), folder=str(folder), manifest=manifest_state(folder))
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


def describe_g2p() -> TextToTextFolderInfo:
    """The letters-to-phonemes model of the package g2p-en, which is a file and no folder."""
    found = describe_text_to_text(*read_g2p(G2P.path()))
    return TextToTextFolderInfo(**dataclasses.asdict(found), folder=str(G2P.path()), manifest="none")


def manifest_state(folder: Path) -> str:
    """Is there a manifest, and are the files as it says?"""
    try:
        return "intact" if check_manifest(folder) else "none"
    except FolderError as error:
        return f"damaged: {error}"


def as_json(found: Info) -> dict[str, object]:
    """A record as plain data."""
    return dataclasses.asdict(found)
