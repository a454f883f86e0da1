"""`kinfolk info`, `tokenize` and `convert`: what a model is, what it sees of a text, its folder in another layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from kinfolk.cli.options import AllowPickle, Json, Model
from kinfolk.cli.output import log_line, print_json, print_table, visible
from kinfolk.errors import check_choice
from kinfolk.files import is_folder

if TYPE_CHECKING:
    from kinfolk.api.info import FamilyInfo, ModelInfo

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
    from kinfolk.api.info import all_family_infos, as_json, describe_folder, describe_g2p, describe_name

    if name is None:
        families = all_family_infos()
        if json:
            print_json([as_json(family) for family in families])
        else:
            print_table(("family", "paper", "idea"), tree(families))
            log_line("kinfolk info bert: the models of a family")
        return
    if name == G2P and not is_folder(name):
        info: FamilyInfo | ModelInfo = describe_g2p()
    elif name == DEMO or is_folder(name):
        info = describe_folder(find_model(name), allow_pickle)
    else:
        info = describe_name(name)
    print_json(as_json(info)) if json else show(info)


def tree(families: list[FamilyInfo], parent: str | None = None, indent: str = "") -> list[tuple[str, str, str]]:
    """One row per family, children below their parent."""
    rows = []
    children = [family for family in families if family.parent == parent]
    for family in children:
        last = family is children[-1]
        branch, below = ("", "") if parent is None else ("└── ", "    ") if last else ("├── ", "│   ")
        rows.append((f"{indent}{branch}{family.title}", family.paper, family.idea))
        rows += tree(families, family.name, indent + below)
    return rows


def show(info: FamilyInfo | ModelInfo) -> None:
    """Name and value, one line each; of a family also its published models."""
    from kinfolk.api.info import OWN, ModelInfo, describe_preset

    if isinstance(info, ModelInfo):
        show_pairs(model_lines(info))
        return
    parent = (info.parent or "none here").removeprefix(OWN)
    pairs = {"family": info.title, "model type": info.name, "descends from": parent}
    show_pairs(pairs | {"idea": info.idea, "paper": info.paper})
    models = [describe_preset(name) for name in info.presets]
    if models:
        rows = [(model.name, f"{model.parameters:,}", model.published or None) for model in models]
        print()
        print_table(("model", "parameters", "published"), rows)


def model_lines(info: ModelInfo) -> dict[str, str]:
    """What is known of a model, under the names that a reader knows."""
    lines = {"model": info.name} if info.name is not None else {"folder": str(info.folder)}
    lines["family"] = info.family
    sizes = info.settings if info.sizes is None else vars(info.sizes)
    names = {"heads": "heads per layer"} if info.sizes is not None else {}
    for name, value in (sizes or {}).items():
        shown = f"{value:,}" if type(value) is int else str(value)
        if value is not None or info.sizes is None:
            unit = " tokens" * (name == "context" and info.sizes is not None)
            lines[names.get(name, name.replace("_", " "))] = shown + unit
    published = f" (published: {info.published})" if info.published else ""
    lines["parameters"] = f"{info.parameters:,}{published}"
    if info.folder is None:
        return lines
    if info.heads is not None:
        heads = ", ".join(info.heads)
        lines["heads"] = f"{heads} ({info.head_parameters:,} more parameters)" if heads else "none"
    counts = {count: None for count in (info.tokens, info.source_tokens, info.target_tokens) if count is not None}
    lines["tokenizer"] = f"{info.tokenizer}, {' and '.join(f'{count:,}' for count in counts)} tokens"
    if info.heads is not None:
        lines["pooling"] = pooling_line(info)
    return lines | {"manifest": str(info.manifest)}


def pooling_line(info: ModelInfo) -> str:
    """The sentence-transformers pooling configuration."""
    recipe = info.recipe
    if recipe is None:
        return "none"
    steps = recipe.pool + ", unit length" * recipe.normalize
    return steps + (f", at most {recipe.max_length:,} tokens" if recipe.max_length else "")


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
    from kinfolk.api.loaded import load, load_translator
    from kinfolk.api.to_marian import to_marian

    if check_choice("to", to, LAYOUTS) == "marian":
        saved = to_marian(load_translator(model, "cpu", allow_pickle)).save(output)
    else:
        saved = load(model, "cpu", allow_pickle).save(output)
    log_line(f"wrote {saved}")


COMMANDS = (info, tokenize, convert)
