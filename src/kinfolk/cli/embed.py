"""`kinfolk embed`: texts to vectors; `kinfolk search`: the texts nearest to a query."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from kinfolk.cli import options
from kinfolk.cli.output import print_json, print_table, working
from kinfolk.errors import InputError
from kinfolk.files import check_not_same_file, reading

if TYPE_CHECKING:
    from kinfolk.api.loaded import Encoder
    from kinfolk.api.search import Index


def embed(
    model: options.Model,
    source: Annotated[str, Option("--input", help="Texts, one a line, or a table; - is standard input.")],
    output: Annotated[Path, Option(help="A .npy file, with --pool none a .jsonl file; replaced if it exists.")],
    column: options.Column = None,
    layers: Annotated[
        str | None,
        Option(
            help="first, last, second_to_last, sum_last_4, concat_last_4, sum_all, or indices: 0,6,12."
            "  [default: the model's pooling configuration, or last]"
        ),
    ] = None,
    pool: Annotated[
        str | None,
        Option(
            help="Pooling: cls (or first), mean, max or none.  [default: the model's pooling configuration, or mean]"
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        Option(
            "--normalize/--no-normalize",
            help="Normalize vectors to unit length.  [default: the model's pooling configuration]",
        ),
    ] = None,
    on_long: Annotated[str, Option(help="Texts longer than the model's context: window, cut or error.")] = "window",
    window: options.Window = None,
    stride: options.Stride = None,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Turn a file of texts into vectors. Row i of the output belongs to text i of the input.

    Example:
      kinfolk embed --model demo --input lines.txt --output vectors.npy
    """
    from kinfolk.data.formats import read_texts

    check_not_same_file(source, output)
    total = count_texts(source, column)
    from kinfolk.api.embed import embed_file
    from kinfolk.api.loaded import load_encoder

    encoder = load_encoder(model, device, allow_pickle)
    settings = encoder.embed_settings(options.parse_layers(layers), pool, normalize, on_long, window, stride)
    with working(total) as (work, report):
        embed_file(encoder, read_texts(source, column), output, settings, report)
    work.close("texts", f"{encoder.embed_width(settings):,} dimensions")


def count_texts(path: str, column: str | None) -> int | None:
    """The number of texts in a file: read in advance, so that a fault in its last line is reported before the work.

    None for what can be read only once: standard input, a pipe.
    """
    from kinfolk.data.formats import STDIN, read_texts

    texts = read_texts(path, column)
    with reading(Path(path)):
        if path == STDIN or Path(path).is_fifo() or Path(path).is_char_device():
            return None
    return sum(1 for _ in texts)


def search(
    model: options.Model,
    index: Annotated[Path, Option(help="The index folder.")],
    query: Annotated[str | None, Argument(help="What to look for.")] = None,
    build: Annotated[str | None, Option(help="First build the index from these lines or this table.")] = None,
    column: options.Column = None,
    top: options.Top = 5,
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Semantic search: the texts of an index that are nearest to a query, by cosine similarity.

    Examples:
      kinfolk search --model demo --index facts --build lines.txt
      kinfolk search --model demo --index facts "Why is the sky blue?"
    """
    if query is None and build is None:
        raise InputError("nothing to do: give a query, or --build with the file to search in")
    if build is None and column is not None:
        raise InputError("--column belongs to --build: the index already knows its texts")
    total = None if build is None else count_texts(build, column)
    from kinfolk.api.loaded import load_encoder
    from kinfolk.api.search import Index

    opened = Index.open(index) if build is None else None
    encoder = load_encoder(model, device, allow_pickle)
    if build is not None:
        opened = build_from(encoder, build, column, index, total)
    if query is None or opened is None:
        return
    hits = opened.search(encoder, query, top)
    if json:
        print_json([asdict(hit) for hit in hits])
        return
    names = list(dict.fromkeys(name for hit in hits for name in hit.columns))
    rows = [(hit.score, hit.row, hit.text, *(hit.columns.get(name) for name in names)) for hit in hits]
    print_table(("score", "row", "text", *names), rows)


def build_from(encoder: Encoder, source: str, column: str | None, folder: Path, total: int | None) -> Index:
    """The index of a file's rows."""
    from kinfolk.api.search import build_index
    from kinfolk.data.formats import TEXT_COLUMN, is_table, read_rows, read_texts

    name = TEXT_COLUMN if column is None else column
    rows = read_rows(source, name) if is_table(source) else read_texts(source, column)
    with working(total) as (work, report):
        index = build_index(encoder, rows, folder, name, report)
    work.close("texts", f"{index.vectors.shape[1]:,} dimensions")
    return index


COMMANDS = (embed, search)
