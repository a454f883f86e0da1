"""Facts about the families, a published model, or a model folder: plain records, to be shown or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from kinfolk.checkpoints.find import DEMO
from kinfolk.checkpoints.folder import SentenceRecipe, TextModel, read_text_model
from kinfolk.checkpoints.manifest import check_manifest
from kinfolk.errors import FolderError, InputError, did_you_mean
from kinfolk.models.family import Family, all_families, count_parameters, preset

OWN = "kinfolk-"  # before the names of families that have no public ones
CELLS = {"rnn", "lstm", "gru", "gru_reset_before"}  # as commands call the language models


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
    sizes: dict[str, int | None] | None = None  # of an encoder: the numbers that make it large or small
    heads: dict[str, int] | None = None  # parameters by head
    tokens: int | None = None  # of an encoder's vocabulary
    settings: dict[str, Any] | None = None  # of a translator, but for the ids of special tokens
    source_tokens: int | None = None
    target_tokens: int | None = None
    tokenizer: str | None = None
    recipe: SentenceRecipe | None = None
    manifest: str | None = None

    @property
    def head_parameters(self) -> int:
        return sum((self.heads or {}).values())


def describe_name(name: str) -> Family | ModelInfo:
    """A family by its name or title, or a published model."""
    families = all_families()
    name = f"{OWN}recurrent-lm" if name.casefold() in CELLS else name
    for family in families:
        if name.casefold() in (family.name, family.name.removeprefix(OWN), family.title.casefold()):
            return family
    known = [published for family in families for published in family.presets]
    if name.partition("/")[2] in known:  # as the hub has it: google-bert/bert-base-uncased
        name = name.partition("/")[2]
    if name in known:
        return describe_preset(name)
    if "/" in name:
        raise FolderError(f"{name}: no such folder; published models have names such as bert-base-uncased")
    close = did_you_mean(name, [*known, *(family.name for family in families), DEMO])
    hint = close or "; `kinfolk info` lists the families, `kinfolk info bert` the models of one"
    raise InputError(f'"{name[:200]}" is neither a folder here nor a published model{hint}')


def describe_preset(name: str) -> ModelInfo:
    """A published model by its public name; nothing is downloaded.

    >>> describe_preset("bert-base-uncased").parameters
    109482240
    """
    family, published = preset(name)
    parameters = count_parameters(family, published.config)
    return ModelInfo(family.title, parameters, name, published.published, **_numbers(family, published.config))


def _numbers(family: Family, config: Any) -> dict[str, Any]:
    """The settings of a translator, the sizes of an encoder."""
    if family.is_conditional:
        return {"settings": {name: value for name, value in asdict(config).items() if not name.endswith("_id")}}
    names = ("layers", "width", "heads", "inner_width", "context")  # without attention there are no heads
    return {"sizes": {name: getattr(config, name, None) for name in names} | {"vocabulary": config.vocabulary_size}}


def describe_model(text_model: TextModel) -> ModelInfo:
    """Family, settings and sizes."""
    model, tokenizer = text_model.model, text_model.tokenizer
    if model.family.is_conditional:
        counts = {"source_tokens": tokenizer.source_size, "target_tokens": tokenizer.target_size}
        kind, parameters, heads = type(tokenizer).__name__, _count(model), None
    else:
        counts, kind, parameters = {"tokens": tokenizer.vocabulary_size}, tokenizer.kind, _count(model.body)
        heads = {name: _count(head) for name, head in model.heads.items()}
    numbers = _numbers(model.family, model.config)
    return ModelInfo(model.family.title, parameters, heads=heads, tokenizer=kind, **counts, **numbers)


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def describe_folder(folder: Path, allow_pickle: bool = False) -> ModelInfo:
    """A model folder, read as `load` reads it, except that a damaged manifest is reported and not raised."""
    try:
        manifest = "intact" if check_manifest(folder) else "none"
    except FolderError as error:
        manifest = f"damaged: {error}"
    text_model = read_text_model(folder, allow_pickle)
    return replace(describe_model(text_model), folder=str(folder), recipe=text_model.recipe, manifest=manifest)


def as_json(info: Family | ModelInfo) -> dict[str, Any]:
    """A record as plain data, of a model without what it does not have (but for a recipe)."""
    if isinstance(info, Family):
        names = ("name", "title", "parent", "idea", "paper")
        return {name: getattr(info, name) for name in names} | {"presets": list(info.presets)}
    content = asdict(info) | ({} if info.heads is None else {"head_parameters": info.head_parameters})
    return {name: value for name, value in content.items() if value is not None or name == "recipe"}
