"""`kinfolk convert`: a model folder, written anew in today's layout, or in that of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinfolk.cli.options import AllowPickle, Model, open_translator
from kinfolk.cli.output import log_line

EXAMPLE = """\
Examples:
  kinfolk convert --model old-folder --output new-folder --allow-pickle
  kinfolk convert --model translator --output marian-folder --to marian
"""
LAYOUTS = ("kinfolk", "marian")


def convert(
    model: Model,
    output: Annotated[Path, typer.Option("--output", help="A folder that does not exist yet.")],
    to: Annotated[
        str, typer.Option("--to", help="kinfolk, or marian: a translator as transformers and CTranslate2 read it.")
    ] = "kinfolk",
    allow_pickle: AllowPickle = False,
) -> None:
    """Write a model folder anew. It holds safetensors, the tokenizer and a manifest that notices damage."""
    from kinfolk.api.loaded import load
    from kinfolk.errors import check_choice

    if check_choice("to", to, LAYOUTS) == "marian":
        from kinfolk.api.to_marian import to_marian

        saved = to_marian(open_translator(model, "cpu", allow_pickle)).save(output)
    else:
        saved = load(model, "cpu", allow_pickle).save(output)
    log_line(f"wrote {saved}")
