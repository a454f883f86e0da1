"""Facts about the families, a published model, or a model folder: plain records, to be shown or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from kinfolk.api.find import DEMO
from kinfolk.checkpoints.folder import is_conditional, read_checkpoint
from kinfolk.checkpoints.g2p import G2P, read_g2p
from kinfolk.checkpoints.manifest import check_manifest
from kinfolk.checkpoints.sentence import SentenceRecipe, read_recipe
from kinfolk.errors import FolderError, InputError, did_you_mean
from kinfolk.models.family import Model, count_parameters
from kinfolk.models.registry import all_families, preset
from kinfolk.text.pairs import TranslationTokenizer, load_pair_tokenizer
from kinfolk.text.tokenizer import Tokenizer

OWN = "kinfolk-"  # before the names of families that have no public ones
CELLS = {"rnn", "lstm", "gru", "gru_reset_before"}  # as commands call the language models


@dataclass(frozen=True)
class FamilyInfo:
    """A family of models: its parent, its idea and its published models."""

    name: str
    title: str
    parent: str | None
    idea: str
    paper: str
    presets: list[str]


@dataclass(frozen=True)
class Sizes:
    """The numbers that make an encoder large or small."""

    layers: int
    width: int
    heads: int | None  # None where there is no attention
    inner_width: int | None
    context: int
    vocabulary: int


@dataclass(frozen=True)
class ModelInfo:
    """A published model, a loaded one or a model folder; None is what such a model does not have.

    `parameters` of an encoder are without its heads. `published` is the number that the authors report, "" for none;
    `manifest` is "intact", "none" or "damaged: …".
    """

    family: str
    parameters: int
    name: str | None = None  # of a published model
    published: str | None = None
    folder: str | None = None
    sizes: Sizes | None = None  # of an encoder
    heads: dict[str, int] | None = None  # parameters by head
    tokens: int | None = None  # of an encoder's vocabulary
    settings: dict[str, Any] | None = None  # of a translator: families differ in them
    source_tokens: int | None = None
    target_tokens: int | None = None
    tokenizer: str | None = None
    recipe: SentenceRecipe | None = None
    manifest: str | None = None

    @property
    def head_parameters(self) -> int:
        """Of all heads together."""
        return sum((self.heads or {}).values())


def all_family_infos() -> list[FamilyInfo]:
    """All families, parents first."""
    return [
        FamilyInfo(family.name, family.title, family.parent, family.idea, family.paper, list(family.presets))
        for family in all_families()
    ]


def describe_name(name: str) -> FamilyInfo | ModelInfo:
    """A family by its name or title, or a published model."""
    families = all_family_infos()
    name = f"{OWN}recurrent-lm" if name.casefold() in CELLS else name
    for family in families:
        if name.casefold() in (family.name, family.name.removeprefix(OWN), family.title.casefold()):
            return family
    known = [known for family in families for known in family.presets]
    if name not in known and name.partition("/")[2] in known:  # as the hub has it: google-bert/bert-base-uncased
        name = name.partition("/")[2]
    if name not in known and "/" in name:
        raise FolderError(f"{name}: no such folder; published models have names such as bert-base-uncased")
    if name not in known:
        close = did_you_mean(name, [*known, *(family.name for family in families), DEMO])
        hint = close or "; `kinfolk info` lists the families, `kinfolk info bert` the models of one"
        raise InputError(f'"{name[:200]}" is neither a folder here nor a published model{hint}')
    return describe_preset(name)


def describe_preset(name: str) -> ModelInfo:
    """A published model by its public name; nothing is downloaded.

    >>> describe_preset("bert-base-uncased").parameters
    109482240
    """
    family, published = preset(name)
    info = ModelInfo(family.title, count_parameters(family, published.config), name, published.published)
    if family.is_conditional:
        return replace(info, settings=_settings(published.config))
    return replace(info, sizes=config_sizes(published.config))


def config_sizes(config: Any) -> Sizes:
    """The sizes that a config states."""
    heads, inner_width = (getattr(config, name, None) for name in ("heads", "inner_width"))
    return Sizes(config.layers, config.width, heads, inner_width, config.context, config.vocabulary_size)


def _settings(config: Any) -> dict[str, Any]:
    """What a config says, but for the ids of special tokens."""
    return {name: value for name, value in asdict(config).items() if not name.endswith("_id")}


def describe_model(model: Model, tokenizer: Tokenizer | TranslationTokenizer) -> ModelInfo:
    """A loaded model with its tokenizer."""
    if isinstance(tokenizer, Tokenizer):
        return ModelInfo(
            model.family.title,
            _count(model.body),
            sizes=config_sizes(model.config),
            heads={name: _count(head) for name, head in model.heads.items()},
            tokenizer=tokenizer.kind,
            tokens=tokenizer.vocabulary_size,
        )
    return ModelInfo(
        model.family.title,
        _count(model),
        settings=_settings(model.config),
        tokenizer=type(tokenizer).__name__,
        source_tokens=tokenizer.source_size,
        target_tokens=tokenizer.target_size,
    )


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def describe_folder(folder: Path, allow_pickle: bool = False) -> ModelInfo:
    """A model folder, read as `load` reads it, except that a damaged manifest is reported and not raised."""
    recipe = None
    if is_conditional(folder):
        info = describe_model(read_checkpoint(folder, allow_pickle).model, load_pair_tokenizer(folder))
    else:
        model = read_checkpoint(folder, allow_pickle).model
        info, recipe = describe_model(model, Tokenizer.load(folder, model.family.name)), read_recipe(folder)
    return replace(info, folder=str(folder), recipe=recipe, manifest=_manifest_state(folder))


def describe_g2p() -> ModelInfo:
    """The letters-to-phonemes model of the package g2p-en, which is a file and no folder."""
    info = describe_model(*read_g2p(G2P.path()))
    return replace(info, folder=str(G2P.path()), manifest="none")


def _manifest_state(folder: Path) -> str:
    try:
        return "intact" if check_manifest(folder) else "none"
    except FolderError as error:
        return f"damaged: {error}"


def as_json(info: FamilyInfo | ModelInfo) -> dict[str, Any]:
    """A record as plain data, of a model without what it does not have (but for a recipe)."""
    content = asdict(info)
    if isinstance(info, FamilyInfo):
        return content
    if info.heads is not None:
        content["head_parameters"] = info.head_parameters
    return {name: value for name, value in content.items() if value is not None or name == "recipe"}
