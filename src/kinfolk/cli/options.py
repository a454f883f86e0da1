"""Options that several commands share, each described once, and how their values are read."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from typer import BadParameter, Option

Model = Annotated[str, Option(help='Model folder, hub name, or "demo".', show_default=False)]
TranslatorModel = Annotated[str, Option("--model", help='Translator folder, hub name, or "g2p-en".')]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
AllowPickle = Annotated[bool, Option("--allow-pickle", help="Open pytorch_model.bin too (weights only).")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]
Top = Annotated[int, Option(help="Number of results.", min=1)]

Column = Annotated[str | None, Option(help="Column with the texts of a table.  [default: text]")]
TextColumn = Annotated[
    str | None, Option("--text", help="Column of the text, guessed by its name; 0 is a CoNLL file's first.")
]
PairColumn = Annotated[str | None, Option("--pair", help='Column of the second text; "" for none.')]
LabelColumn = Annotated[str | None, Option("--label", help="Column of the label; guessed by its name.")]
Header = Annotated[str | None, Option(help="Column names, for a file without them: text,label.")]
MaxBadRows = Annotated[int, Option(help="Number of malformed rows to skip before giving up.")]
Window = Annotated[int | None, Option(help="Tokens per window, at most the model's limit.")]
Stride = Annotated[int | None, Option(help="Tokens that neighbouring windows share.")]

ModelSettings = Annotated[
    list[str] | None, Option("--set", help="Settings of the model that differ from its size: dropout=0.3,layers=1.")
]
VocabularySize = Annotated[int | None, Option(help="Subword vocabulary size.  [default: 8000, or fewer]")]
VocabularyKind = Annotated[str | None, Option(help="bpe, unigram, byte_bpe, wordpiece or words.  [default: bpe]")]

MaxTokens = Annotated[int | None, Option(help="Maximum number of new tokens.", min=1)]
TopK = Annotated[int | None, Option(help="Top-k sampling: draw from the k most probable tokens.")]
TopP = Annotated[float | None, Option(help="Nucleus sampling: draw from the most probable tokens of this total mass.")]


def refuse(*options: tuple[str, Any], reason: str) -> None:
    """An option that means nothing here is an error, not a silence."""
    for name, value in options:
        if value:
            raise BadParameter(f"has no meaning {reason}", param_hint=name)


def parse_names(names: str | None) -> list[str] | None:
    """`text, label` as a list."""
    return None if names is None else [name.strip() for name in names.split(",")]


def parse_layers(layers: str | None) -> str | list[int] | None:
    """`0,6,12` as numbers; names stay names."""
    if layers is not None and re.fullmatch(r"\s*\d{1,4}\s*(,\s*\d{1,4}\s*)*", layers):
        return [int(layer) for layer in layers.split(",")]
    return layers


def parse_weights(weights: str | None) -> str | dict[str, float] | None:
    """`good=1,bad=3` as a table; names such as balanced stay."""
    if weights is None or "=" not in weights:
        return weights
    try:
        return {name.strip(): float(value) for name, value in (part.rsplit("=", 1) for part in weights.split(","))}
    except ValueError:
        raise BadParameter("write name=weight with commas between them", param_hint="--class-weights") from None


def parse_settings(parts: list[str] | None) -> dict[str, Any]:
    """`dropout=0.3,norm=pre` as settings: numbers, true and false as JSON has them, all else as text."""
    settings: dict[str, Any] = {}
    for part in ",".join(parts).split(",") if parts else []:
        name, sign, value = (side.strip() for side in part.partition("="))
        if not name or not sign or not value:
            raise BadParameter("write name=value with commas between them", param_hint="--set")
        if name in settings:
            raise BadParameter(f"{name} is given twice", param_hint="--set")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings
