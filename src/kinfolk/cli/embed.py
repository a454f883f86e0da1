"""`kinfolk embed`: a file of texts to a file of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinfolk.cli.options import AllowPickle, Column, Device, Model, Stride, Window, open_encoder, parse_layers
from kinfolk.cli.progress import working
from kinfolk.files import check_not_same_file, reading

EXAMPLE = """\
Example:
  kinfolk embed --model demo --input lines.txt --output vectors.npy
"""


def embed(
    model: Model,
    source: Annotated[str, typer.Option("--input", help="Texts, one a line, or a table; - is standard input.")],
    output: Annotated[
        Path, typer.Option("--output", help="A .npy file, with --pool none a .jsonl file; replaced if it exists.")
    ],
    column: Column = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            help="first, last, second_to_last, sum_last_4, concat_last_4, sum_all, or numbers: 0,6,12.",
            show_default="the model's own recipe, or last",
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option("--pool", help="first, mean, max or none.", show_default="the model's own recipe, or mean"),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize", help="Vectors of unit length.", show_default="the model's own recipe"
        ),
    ] = None,
    on_long: Annotated[str, typer.Option("--on-long", help="Texts too long for the model: window, cut or error.")] = (
        "window"
    ),
    window: Window = None,
    stride: Stride = None,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Turn a file of texts into vectors. Row i of the output belongs to text i of the input."""
    from kinfolk.data.formats import read_texts

    check_not_same_file(source, output)
    total = count_texts(source, column)
    from kinfolk.api.embed_file import embed_file

    encoder = open_encoder(model, device, allow_pickle)
    settings = encoder.embed_settings(parse_layers(layers), pool, normalize, on_long, window, stride)
    with working(total) as (work, report):
        embed_file(encoder, read_texts(source, column), output, settings, report)
    work.close(encoder.embed_width(settings))


def count_texts(path: str, column: str | None) -> int | None:
    """How many texts a file holds: read once in advance, so that a fault in its last line is told before the work.

    None for what can be read only once: standard input, a pipe.
    """
    from kinfolk.data.formats import STDIN, read_texts

    texts = read_texts(path, column)
    with reading(Path(path)):
        if path == STDIN or Path(path).is_fifo() or Path(path).is_char_device():
            return None
    return sum(1 for _ in texts)
