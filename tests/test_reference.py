"""The reference of commands is made of what `--help` shows, and that of Python has every public name and verb.

After a change of an option or its help: .venv/bin/python tests/test_reference.py
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import get_args

import pytest
from typer.models import ArgumentInfo

import kinfolk
from kinfolk.cli.main import COMMANDS as FILES
from kinfolk.cli.main import load_command
from kinfolk.models.family import count_parameters, family, preset
from kinfolk.training.settings import settings_fields

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
COMMANDS = REFERENCE / "commands.md"
FOUND = {"vocabulary_size", "target_vocabulary_size", "shared_tables", "pad_id", "start_id", "end_id"}  # in the data
FOUND |= {"segments", "init_std"}
BERTS = [f"bert-{size}" for size in ("tiny", "mini", "small", "medium", "base-uncased", "large-uncased")]
TOP = """# Commands and options

`kinfolk COMMAND --help` says the same, with the defaults of each command. Results go to stdout (`--json` where a script
would want it), everything else to stderr. A mistake is one line, `kinfolk: …`, and exit code 2; Ctrl-C is 130.
`--device` is `auto`, `cpu` or `cuda` wherever a model computes. An output that exists is replaced when the new one is
whole, never the input itself; a model's own folder is refused as `--output`. Files: [data](data.md),
[folders](folders.md).

<!-- Written by tests/test_reference.py from the commands themselves. -->
"""


def commands_page() -> str:
    """docs/reference/commands.md as it should be."""
    commands = {name: load_command(name).registered_commands[0] for name in FILES}
    helps = {name: " ".join((command.help or "").split()) for name, command in commands.items()}
    parts = [TOP, "| command | what it does |", "|---|---|"]
    parts += [f"| [{name}](#{name}) | {re.split(r'(?<=[.]) ', text)[0]} |" for name, text in helps.items()]
    for name, command in commands.items():
        example = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]
        parts += ["", f"## {name}", "", helps[name], "", "```text", *example, "```", ""]
        parts += ["| argument or option | value | default | meaning |", "|---|---|---|---|"]
        parts += [
            row(parameter) for parameter in inspect.signature(command.callback, eval_str=True).parameters.values()
        ]
    return "\n".join(parts) + "\n"


def row(parameter: inspect.Parameter) -> str:
    """An argument or option: its names, the type of its value, its default and its help."""
    kind, said = get_args(parameter.annotation)
    declared = [name for name in (said.default, *(said.param_decls or ())) if str(name).startswith("--")]
    names, types = declared or [f"--{parameter.name.replace('_', '-')}"], [kind, *get_args(kind)]
    if isinstance(said, ArgumentInfo):
        names = [parameter.name.upper()]
    elif bool in types and not declared:
        names.append(f"--no-{names[0][2:]}")
    value = next(
        (name for name in ("Path", "str", "int", "float") if name in str(types)), "str" if said.metavar else ""
    ).lower()
    default = "" if parameter.default is None or parameter.default is False else str(parameter.default)
    if parameter.default is parameter.empty:
        default = "required"
    meaning, mark, stated = (said.help or "").partition("[default: ")
    default = stated.rstrip("]") if mark else said.show_default if isinstance(said.show_default, str) else default
    cells = [", ".join(f"`{name}`" for name in names), value, default, meaning]
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def test_the_reference_of_commands_is_what_the_commands_say() -> None:
    again = "run .venv/bin/python tests/test_reference.py"
    assert COMMANDS.read_text(encoding="utf-8") == commands_page(), again


def test_the_reference_of_python_has_every_public_name_verb_and_setting() -> None:
    text = (REFERENCE / "python.md").read_text(encoding="utf-8")
    verbs = {
        name
        for kind in (kinfolk.LanguageModel, kinfolk.Translator)
        for name, _ in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    settings = {item.name for item in settings_fields()}
    names = (set(kinfolk.__all__) | verbs | settings) - {"__version__"}
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


@pytest.mark.parametrize("name", ["kinfolk-transformer", "kinfolk-attention", "kinfolk-recurrent-lm", "bert", "gpt2"])
def test_the_reference_of_models_has_every_setting_that_a_user_may_choose(name: str) -> None:
    text = (REFERENCE / "models.md").read_text(encoding="utf-8")
    names = {item.name for item in dataclasses.fields(family(name).config)} - FOUND
    assert {item for item in names if f"`{item}`" not in text} == set()


@pytest.mark.parametrize("name", [*BERTS, *family("gpt2").presets])
def test_the_reference_of_models_has_the_sizes_as_they_are(name: str) -> None:
    record, found = preset(name)
    config, size = found.config, name.removeprefix(f"{record.name}-")
    parameters = f"{count_parameters(record, config) / 1e6:,.1f}M"
    sizes = (config.width, config.layers, config.heads, config.inner_width, parameters)
    rows = [line.replace(" (the default)", "") for line in (REFERENCE / "models.md").read_text().splitlines()]
    assert f"| {' | '.join(map(str, (size, *sizes)))} |" in rows


if __name__ == "__main__":
    COMMANDS.write_text(commands_page(), encoding="utf-8")
