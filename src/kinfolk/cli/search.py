"""`kinfolk search`: the nearest texts to a query, and the index they are found in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfolk.cli.embed import count_texts
from kinfolk.cli.options import AllowPickle, Column, Device, Json, Model, Top, open_encoder
from kinfolk.cli.output import print_json, print_table
from kinfolk.cli.progress import working
from kinfolk.errors import InputError

if TYPE_CHECKING:
    from kinfolk.api.loaded import Encoder
    from kinfolk.api.search import Hit, Index

EXAMPLE = """\
Examples:
  kinfolk search --model demo --index facts --build lines.txt
  kinfolk search --model demo --index facts "Why is the sky blue?"
"""


def search(
    model: Model,
    index: Annotated[Path, typer.Option("--index", help="The index folder.")],
    query: Annotated[str | None, typer.Argument(help="What to look for.")] = None,
    build: Annotated[
        str | None, typer.Option("--build", help="First build the index of these lines or of this table.")
    ] = None,
    column: Column = None,
    top: Top = 5,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Find texts by meaning. The score is the cosine of the vectors of query and text."""
    if query is None and build is None:
        raise InputError("nothing to do: give a query, or --build with the file to search in")
    if build is None and column is not None:
        raise InputError("--column belongs to --build: the index already knows its texts")
    total = None if build is None else count_texts(build, column)
    from kinfolk.api.search import Index

    opened = Index.open(index) if build is None else None
    encoder = open_encoder(model, device, allow_pickle)
    if build is not None:
        opened = build_from(encoder, build, column, index, total)
    if query is not None and opened is not None:
        show(opened.search(encoder, query, top), json)


def build_from(encoder: Encoder, source: str, column: str | None, folder: Path, total: int | None) -> Index:
    """The index of a file's rows."""
    from kinfolk.api.search import build_index
    from kinfolk.data.formats import TEXT_COLUMN, is_table, read_rows, read_texts

    wanted = TEXT_COLUMN if column is None else column
    rows = read_rows(source, wanted) if is_table(source) else read_texts(source, column)
    with working(total) as (work, report):
        built = build_index(encoder, rows, folder, wanted, report)
    work.close(built.vectors.shape[1])
    return built


def show(hits: list[Hit], json: bool) -> None:
    """The hits, best first; the other columns of a table beside the text."""
    if json:
        print_json([asdict(hit) for hit in hits])
        return
    names = list(dict.fromkeys(name for hit in hits for name in hit.columns))
    rows = [(hit.score, hit.row, hit.text, *(hit.columns.get(name) for name in names)) for hit in hits]
    print_table(("score", "row", "text", *names), rows)
