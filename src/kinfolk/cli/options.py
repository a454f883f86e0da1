"""Options that several commands share, each described once, and how their values are read.

Those of the training commands are made of the trainer's settings.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import BadParameter, Option

Command = Callable[..., None]

PYTHON_ONLY = ("betas", "epsilon")
PRETRAINED_ONLY = ("layer_decay", "freeze", "gradual_unfreezing")


def option(kind: Any, help: str, *names: str, **more: Any) -> Any:
    """An option whose absence is None, so that a group of them has only what is given."""
    return Annotated[kind | None, Option(*names, help=help, **more)]


def parsed(parse: Callable[[str], Any], help: str) -> Any:
    """One whose text is read by a function."""
    return Annotated[Any, Option(parser=parse, help=help, metavar="TEXT")]


def parse_names(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def parse_layers(layers: str) -> str | list[int]:
    """`0,6,12` as numbers; names stay names."""
    whole = re.fullmatch(r"\s*\d{1,4}\s*(,\s*\d{1,4}\s*)*", layers)
    return [int(layer) for layer in layers.split(",")] if whole else layers


def parse_weights(weights: str) -> str | dict[str, float]:
    """`good=1,bad=3` as a table; names such as balanced stay."""
    if "=" not in weights:
        return weights
    try:
        return {name.strip(): float(value) for name, value in (part.rsplit("=", 1) for part in weights.split(","))}
    except ValueError:
        raise BadParameter("write name=weight with commas between them", param_hint="--class-weights") from None


def parse_settings(parts: list[str] | None) -> dict[str, Any]:
    """`dropout=0.3,norm=pre` as settings: numbers, true and false as JSON has them, all else as text."""
    settings: dict[str, Any] = {}
    for part in ",".join(parts).split(",") if parts else []:
        name, _, value = (side.strip() for side in part.partition("="))
        if not name or not value or name in settings:
            raise BadParameter(
                f"{part!r}: write name=value with commas between them, each name once", param_hint="--set"
            )
        settings[name] = value
        with suppress(ValueError):
            settings[name] = json.loads(value)
    return settings


ModelName = Annotated[str, Option(help='Model folder, hub name, or "demo".', show_default=False)]
TranslatorModel = Annotated[str, Option("--model", help="Translator folder or hub name.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
AllowPickle = Annotated[bool, Option("--allow-pickle", help="Open pytorch_model.bin too (weights only).")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]
Top = Annotated[int, Option(help="Number of results.", min=1)]
Column = Annotated[str | None, Option(help="Column with the texts of a table.  [default: text]")]
RunFolder = Annotated[Path, Option(help="Folder of the run; the same command resumes it.")]
MaxBadRows = Annotated[int, Option(help="Number of malformed rows to skip before giving up.")]
ModelSettings = Annotated[
    list[str] | None, Option("--set", help="Settings of the model that differ from its size: dropout=0.3,layers=1.")
]
DOCUMENTS = "blank-lines, lines or whole: what a document is.  [default: blank lines if any, else lines]"

COLUMNS = {
    "text": option(str, "Column of the text, guessed by its name; 0 is a CoNLL file's first.", "--text"),
    "pair": option(str, 'Column of the second text; "" for none.', "--pair"),
    "label": option(str, "Column of the label; guessed by its name.", "--label"),
    "header": parsed(parse_names, "Column names, for a file without them: text,label."),
}
WINDOWS = {
    "window": option(int, "Tokens per window, at most the model's limit."),
    "stride": option(int, "Tokens that neighbouring windows share."),
}
VOCABULARY = {
    "vocabulary_size": option(int, "Vocabulary size.  [default: 8000, or fewer]"),
    "vocabulary_kind": option(
        str, "bpe, unigram, byte_bpe, wordpiece, characters or words.  [default: suits kind or pairs]"
    ),
    "whole_numbers": option(bool, "Let several digits be one piece.", "--whole-numbers"),
}
SAMPLING = {
    "temperature": option(float, "Sample; softmax temperature, below 1 is sharper, 0 greedy."),
    "top_k": option(int, "Top-k sampling: draw from the k most probable tokens."),
    "top_p": option(float, "Nucleus sampling: draw from the most probable tokens of this total mass."),
    "seed": option(int, "Sample, with this seed."),
}


def refuse(*options: tuple[str, Any], reason: str) -> None:
    """An option that means nothing here is an error, not a silence."""
    for name, value in options:
        if value:
            raise BadParameter(f"has no meaning {reason}", param_hint=name)


def group(parameter: str, options: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Options in place of one parameter of a command, which receives by name those that were given (main.py)."""

    def decorate(command: Command) -> Command:
        keyword = inspect.Parameter.KEYWORD_ONLY
        made = [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in options.items()]
        parameters: list[inspect.Parameter] = []
        for name, own in inspect.signature(command, eval_str=True).parameters.items():
            parameters += made if name == parameter else [own.replace(kind=keyword)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.group = parameter, tuple(options)  # type: ignore[attr-defined]
        return command

    return decorate


def training_options(
    own: Mapping[str, Any], exclude: Sequence[str] = (), **defaults: Any
) -> Callable[[Command], Command]:
    """A group `training`: a command's `own` options and the settings of the trainer, but for those in `exclude`.

    Help shows the command's own `defaults`.
    """
    from kinfolk.training.settings import OptimizerSettings, TrainSettings, settings_fields

    types, options = get_type_hints(TrainSettings) | get_type_hints(OptimizerSettings), dict(own)
    for setting in settings_fields():
        name = setting.name
        if name not in (*own, *exclude, *PYTHON_ONLY):
            default = defaults.get(name, setting.default)
            choices = f" {', '.join(setting.metadata['choices'])}." if "choices" in setting.metadata else ""
            shown = "" if default is None or types[name] is bool else f"  [default: {default}]"
            names = [f"--{name.replace('_', '-')}", *(["--lr"] if name == "learning_rate" else [])]
            options[name] = option(types[name], setting.metadata["help"] + choices + shown, *names)
    return group("training", options)
