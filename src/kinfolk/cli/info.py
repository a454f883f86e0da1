"""`kinfolk info`, `tokenize` and `convert`: what a model is, what it sees of a text, its folder in another layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from kinfolk.cli.options import AllowPickle, Json, Model, open_translator
from kinfolk.cli.output import log_line, print_json, print_table, visible
from kinfolk.errors import check_choice
from kinfolk.files import is_folder

if TYPE_CHECKING:
    from kinfolk.api.info import (
        FolderInfo,
        PresetInfo,
        Relative,
        Sizes,
        TextToTextFolderInfo,
        TextToTextPresetInfo,
    )

TOKEN_COLUMNS = ("token", "id", "segment", "word", "start", "end", "text")
LAYOUTS = ("kinfolk", "marian")


def info(
    name: Annotated[
        str | None,
        Argument(help='A family, a published model, a model folder, or "demo"; without it, all families.'),
    ] = None,
    json: Json = False,
    allow_pickle: AllowPickle = False,
) -> None:
    """Show all families, the models of one, or the sizes of a model. Nothing is downloaded.

    Example:
      kinfolk info bert-base-uncased
    """
    from kinfolk.api.find import DEMO, G2P, find_model
    from kinfolk.api.info import as_json, describe_folder, describe_g2p, describe_name, relatives

    if name is None:
        family = relatives()
        if json:
            print_json([as_json(relative) for relative in family])
        else:
            print_table(("family", "paper", "idea"), tree(family))
            log_line("kinfolk info bert: the models of a family")
        return
    if name in (DEMO, G2P) or is_folder(name):
        own = name == G2P and not is_folder(name)
        folder = describe_g2p() if own else describe_folder(find_model(name), allow_pickle)
        print_json(as_json(folder)) if json else show_folder(folder)
    else:
        found = describe_name(name)
        print_json(as_json(found)) if json else show_name(found)


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


def show_name(found: Relative | PresetInfo | TextToTextPresetInfo) -> None:
    """A family with its models, or one of them."""
    from kinfolk.api.info import Relative

    if isinstance(found, Relative):
        show_relative(found)
    else:
        show_preset(found)


def show_relative(relative: Relative) -> None:
    """Name and value, one line each; then its published models."""
    from kinfolk.api.info import OWN, describe_preset

    parent = (relative.parent or "none here").removeprefix(OWN)
    pairs = {"family": relative.title, "model type": relative.name, "descends from": parent}
    show_pairs(pairs | {"idea": relative.idea, "paper": relative.paper})
    models = [describe_preset(name) for name in relative.presets]
    if models:
        rows = [(model.name, f"{model.parameters:,}", model.published or None) for model in models]
        print()
        print_table(("model", "parameters", "published"), rows)


def show_preset(preset: PresetInfo | TextToTextPresetInfo) -> None:
    """Name and value, one line each."""
    from kinfolk.api.info import PresetInfo

    sizes = size_lines(preset.sizes) if isinstance(preset, PresetInfo) else setting_lines(preset.settings)
    published = f" (published: {preset.published})" if preset.published else ""
    pairs = {"model": preset.name, "family": preset.family, **sizes}
    show_pairs(pairs | {"parameters": f"{preset.parameters:,}{published}"})


def show_folder(folder: FolderInfo | TextToTextFolderInfo) -> None:
    """Name and value, one line each."""
    from kinfolk.api.info import FolderInfo

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
    steps = "none" if recipe is None else recipe.pool + ", unit length" * recipe.normalize
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
            "pooling": steps,
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


def tokenize(
    text: Annotated[str, Argument(help="A text.")],
    model: Model,
    second: Annotated[str | None, Argument(help="The second text of a pair.")] = None,
    json: Json = False,
) -> None:
    """Show the tokens of a text or pair. Each has its id, segment, word and the characters it stands for.

    Example:
      kinfolk tokenize --model demo "Unbelievable news." "Really?"
    """
    from kinfolk.api.find import find_model
    from kinfolk.text.tokenizer import Tokenizer  # all that is needed, so torch is not loaded

    encoding = Tokenizer.load(find_model(model)).encode(text if second is None else (text, second))
    texts = (text, second or "")
    slices = [
        "" if side is None else texts[side][slice(*offset)]
        for side, offset in zip(encoding.sequence_ids, encoding.offsets, strict=True)
    ]
    numbers = encoding.tokens, encoding.ids, encoding.segments, encoding.word_ids
    rows = list(zip(*numbers, *zip(*encoding.offsets, strict=True), slices, strict=True))
    if json:
        print_json([dict(zip(TOKEN_COLUMNS, row, strict=True)) for row in rows])
    else:
        print_table(TOKEN_COLUMNS, rows)


def convert(
    model: Model,
    output: Annotated[Path, Option(help="A folder that does not exist yet.")],
    to: Annotated[
        str, Option(help="kinfolk, or marian: a translator as transformers and CTranslate2 read it.")
    ] = "kinfolk",
    allow_pickle: AllowPickle = False,
) -> None:
    """Convert a checkpoint: save it again as safetensors with its tokenizer and a manifest that notices damage.

    Examples:
      kinfolk convert --model old-folder --output new-folder --allow-pickle
      kinfolk convert --model translator --output marian-folder --to marian
    """
    from kinfolk.api.loaded import load
    from kinfolk.api.to_marian import to_marian

    if check_choice("to", to, LAYOUTS) == "marian":
        saved = to_marian(open_translator(model, "cpu", allow_pickle)).save(output)
    else:
        saved = load(model, "cpu", allow_pickle).save(output)
    log_line(f"wrote {saved}")


COMMANDS = (info, tokenize, convert)
