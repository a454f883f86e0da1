"""`kinfolk info`: the family, a published model, or a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfolk.cli.options import AllowPickle, Json
from kinfolk.cli.output import print_json, print_table, visible
from kinfolk.errors import FolderError

if TYPE_CHECKING:
    from kinfolk.jobs.info import (
        FolderInfo,
        PresetInfo,
        Relative,
        Sizes,
        TextToTextFolderInfo,
        TextToTextPresetInfo,
    )

EXAMPLE = """\
Example:
  kinfolk info bert-base-uncased
"""


def info(
    name: Annotated[
        str | None, typer.Argument(help='A published model, a model folder, or "demo"; without it, the family.')
    ] = None,
    json: Json = False,
    allow_pickle: AllowPickle = False,
) -> None:
    """Show the family, or the sizes of a model. Nothing is downloaded."""
    from kinfolk.jobs.find import DEMO, find_model
    from kinfolk.jobs.info import as_json, describe_folder, describe_preset, relatives

    if name is None:
        family = relatives()
        if json:
            print_json([as_json(relative) for relative in family])
        else:
            print_table(("family", "paper", "idea"), tree(family))
        return
    if name == DEMO or Path(name).is_dir():
        folder = describe_folder(find_model(name), allow_pickle)
        print_json(as_json(folder)) if json else show_folder(folder)
    elif "/" in name:
        raise FolderError(f"{name}: no such folder; published models are told by a plain name, as bert-base-uncased is")
    else:
        preset = describe_preset(name)
        print_json(as_json(preset)) if json else show_preset(preset)


def tree(family: list[Relative], parent: str | None = None, indent: str = "") -> list[tuple[str, str, str]]:
    """One row a relative, children below their parent."""
    rows = []
    children = [relative for relative in family if relative.parent == parent]
    for relative in children:
        last = relative is children[-1]
        branch, below = ("", "") if parent is None else ("└── ", "    ") if last else ("├── ", "│   ")
        rows.append((f"{indent}{branch}{relative.title}", relative.paper, relative.idea))
        rows += tree(family, relative.name, indent + below)
    return rows


def show_preset(preset: PresetInfo | TextToTextPresetInfo) -> None:
    """Name and value, one line each."""
    from kinfolk.jobs.info import PresetInfo

    sizes = size_lines(preset.sizes) if isinstance(preset, PresetInfo) else setting_lines(preset.settings)
    published = f" (published: {preset.published})" if preset.published else ""
    pairs = {"model": preset.name, "family": preset.family, **sizes}
    show_pairs(pairs | {"parameters": f"{preset.parameters:,}{published}"})


def show_folder(folder: FolderInfo | TextToTextFolderInfo) -> None:
    """Name and value, one line each."""
    from kinfolk.jobs.info import FolderInfo

    if isinstance(folder, FolderInfo):
        show_encoder(folder)
        return
    tokens = {folder.source_tokens, folder.target_tokens}
    counts = f"{folder.source_tokens:,}" + (f" and {folder.target_tokens:,}" if len(tokens) > 1 else "")
    pairs = {"folder": folder.folder, "family": folder.family, **setting_lines(folder.settings)}
    pairs |= {"parameters": f"{folder.parameters:,}", "tokenizer": f"{folder.tokenizer}, {counts} tokens"}
    show_pairs(pairs | {"manifest": folder.manifest})


def setting_lines(settings: dict[str, Any]) -> dict[str, str]:
    """Settings under their names in words."""
    return {
        name.replace("_", " "): f"{value:,}" if type(value) is int else str(value) for name, value in settings.items()
    }


def show_encoder(folder: FolderInfo) -> None:
    """The folder of an encoder."""
    recipe = folder.recipe
    steps = "none" if recipe is None else f"{recipe.pool} pooling" + ", unit length" * recipe.normalize
    if recipe is not None and recipe.max_length:
        steps += f", at most {recipe.max_length:,} tokens"
    heads = ", ".join(folder.heads) or "none"
    show_pairs(
        {
            "folder": folder.folder,
            "family": folder.family,
            **size_lines(folder.sizes),
            "parameters": f"{folder.parameters:,}",
            "heads": f"{heads} ({folder.head_parameters:,} more parameters)" if folder.heads else heads,
            "tokenizer": f"{folder.tokenizer}, {folder.tokens:,} tokens",
            "recipe": steps,
            "manifest": folder.manifest,
        }
    )


def size_lines(sizes: Sizes) -> dict[str, str]:
    """The sizes under the names that a reader knows."""
    found = {
        "layers": sizes.layers,
        "width": sizes.width,
        "heads per layer": sizes.heads,
        "inner width": sizes.inner_width,
        "context": sizes.context,
        "vocabulary": sizes.vocabulary,
    }
    return {name: f"{size:,}" + " tokens" * (name == "context") for name, size in found.items() if size is not None}


def show_pairs(pairs: dict[str, str]) -> None:
    """Names to the left, values below each other."""
    width = max(map(len, pairs))
    for name, value in pairs.items():
        print(f"{name:<{width}}  {visible(value)}")
