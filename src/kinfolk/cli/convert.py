"""`kinfolk convert`: a model folder, written anew in today's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinfolk.cli.options import AllowPickle, Model
from kinfolk.cli.output import say

EXAMPLE = """\
Example:
  kinfolk convert --model old-folder --output new-folder --allow-pickle
"""


def convert(
    model: Model,
    output: Annotated[Path, typer.Option("--output", help="A folder that does not exist yet.")],
    allow_pickle: AllowPickle = False,
) -> None:
    """Write a model folder anew. It holds safetensors, tokenizer.json and a manifest that notices damage."""
    from kinfolk.jobs.loaded import load

    saved = load(model, "cpu", allow_pickle).save(output)
    say(f"wrote {saved}")
