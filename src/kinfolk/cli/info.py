"""`kinfolk info`, `tokenize` and `convert`: what a model is, what it sees of a text, its folder in another layout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from kinfolk.cli.options import AllowPickle, Json, ModelName
from kinfolk.cli.output import log_line, print_json, print_table, visible
from kinfolk.errors import check_choice

if TYPE_CHECKING:
    from kinfolk.api.info import ModelInfo
    from kinfolk.models.family import Family

TOKEN_COLUMNS = ("token", "id", "segment", "word", "start", "end", "text")
LAYOUTS = ("kinfolk", "marian")


def info(
    name: Annotated[str | None, Argument(help='A family, model, folder or "demo"; without it, all families.')] = None,
    json: Json = False,
    allow_pickle: AllowPickle = False,
) -> None:
    """Show all families, the models of one, or the sizes of a model. Nothing is downloaded.

    Example:
      kinfolk info bert-base-uncased
    """
    from kinfolk.api.info import as_json, describe_folder, describe_name
    from kinfolk.checkpoints.find import DEMO, find_model
    from kinfolk.models.family import all_families

    if name is None:
        families = all_families()
        if json:
            print_json([as_json(family) for family in families])
        else:
            print_table(("family", "paper", "idea"), tree(families))
            log_line("kinfolk info bert: the models of a family")
        return
    found = name == DEMO or os.path.isdir(name)
    info = describe_folder(find_model(name), allow_pickle) if found else describe_name(name)
    print_json(as_json(info)) if json else show(info)


def tree(families: list[Family], parent: str | None = None, indent: str = "") -> list[tuple[str, str, str]]:
    """One row per family, children below their parent."""
    rows, children = [], [family for family in families if family.parent == parent]
    for family in children:
        last = family is children[-1]
        branch, below = ("", "") if parent is None else ("└── ", "    ") if last else ("├── ", "│   ")
        rows.append((f"{indent}{branch}{family.title}", family.paper, family.idea))
        rows += tree(families, family.name, indent + below)
    return rows


def show(info: Family | ModelInfo) -> None:
    """Name and value, one line each; of a family also its published models."""
    from kinfolk.api.info import OWN, ModelInfo, describe_preset

    if isinstance(info, ModelInfo):
        pairs = model_lines(info)
    else:
        parent = (info.parent or "none here").removeprefix(OWN)
        pairs = {"family": info.title, "model type": info.name, "descends from": parent}
        pairs |= {"idea": info.idea, "paper": info.paper}
    width = max(map(len, pairs))
    for name, value in pairs.items():
        print(f"{name:<{width}}  {visible(value)}")
    if not isinstance(info, ModelInfo) and info.presets:
        models = [describe_preset(name) for name in info.presets]
        print()
        rows = [(model.name, f"{model.parameters:,}", model.published or None) for model in models]
        print_table(("model", "parameters", "published"), rows)


def model_lines(info: ModelInfo) -> dict[str, str]:
    """What is known of a model, under the names that a reader knows."""
    lines: dict[str, str | None] = {"model": info.name, "folder": info.folder, "family": info.family}
    sizes = {name: value for name, value in (info.sizes or info.settings or {}).items() if value is not None}
    for name, value in sizes.items():
        shown = f"{value:,}" if type(value) is int else str(value)
        if info.sizes:
            name, shown = name.replace("heads", "heads per layer"), shown + " tokens" * (name == "context")
        lines[name.replace("_", " ")] = shown
    lines["parameters"] = f"{info.parameters:,}" + (f" (published: {info.published})" if info.published else "")
    counts = [f"{count:,}" for count in (info.tokens, info.source_tokens, info.target_tokens) if count is not None]
    tokenizer = f"{info.tokenizer}, {' and '.join(dict.fromkeys(counts))} tokens" if counts else None
    if info.heads is not None:  # an encoder in a folder
        heads, recipe = ", ".join(info.heads), info.recipe
        limit = f", at most {recipe.max_length:,} tokens" if recipe and recipe.max_length else ""
        lines["heads"] = f"{heads} ({info.head_parameters:,} more parameters)" if heads else "none"
        lines["tokenizer"] = tokenizer
        lines["pooling"] = recipe.pool + ", unit length" * recipe.normalize + limit if recipe else "none"
    lines |= {"tokenizer": tokenizer, "manifest": info.manifest}
    return {name: shown for name, shown in lines.items() if shown is not None}


def tokenize(
    text: Annotated[str, Argument(help="A text.")],
    model: ModelName,
    second: Annotated[str | None, Argument(help="The second text of a pair.")] = None,
    json: Json = False,
) -> None:
    """Show the tokens of a text or pair. Each has its id, segment, word and the characters it stands for.

    Example:
      kinfolk tokenize --model demo "Unbelievable news." "Really?"
    """
    from kinfolk.checkpoints.find import find_model
    from kinfolk.text.tokenizer import Tokenizer  # all that is needed, so torch is not loaded

    encoding = Tokenizer.load(find_model(model)).encode(text if second is None else (text, second))
    sides = zip(encoding.sequence_ids, encoding.offsets, strict=True)
    slices = ["" if side is None else (text, second or "")[side][slice(*offset)] for side, offset in sides]
    columns = encoding.tokens, encoding.ids, encoding.segments, encoding.word_ids
    rows = list(zip(*columns, *zip(*encoding.offsets, strict=True), slices, strict=True))
    if json:
        print_json([dict(zip(TOKEN_COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(TOKEN_COLUMNS, rows)


def convert(
    model: ModelName,
    output: Annotated[Path, Option(help="A folder that does not exist yet.")],
    to: Annotated[str, Option(help="kinfolk, or marian: for transformers and CTranslate2.")] = "kinfolk",
    allow_pickle: AllowPickle = False,
) -> None:
    """Convert a checkpoint: save it again as safetensors with its tokenizer and a manifest that notices damage.

    Examples:
      kinfolk convert --model old-folder --output new-folder --allow-pickle
      kinfolk convert --model translator --output marian-folder --to marian
    """
    from kinfolk.api.loaded import load, load_translator
    from kinfolk.api.to_marian import to_marian

    if check_choice("to", to, LAYOUTS) == "marian":
        saved = to_marian(load_translator(model, "cpu", allow_pickle)).save(output)
    else:
        saved = load(model, "cpu", allow_pickle).save(output)
    log_line(f"wrote {saved}")
