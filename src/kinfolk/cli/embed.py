"""`kinfolk embed`: texts to vectors; `kinfolk search`: the texts nearest to a query."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from kinfolk.cli import options
from kinfolk.cli.output import print_json, print_table, working
from kinfolk.errors import InputError
from kinfolk.files import check_not_same_file, reading

LAYERS = "first, last, second_to_last, sum_last_4, concat_last_4, sum_all, or indices: 0,6,12."
RECIPE = "[default: the model's pooling configuration"
SETTINGS = {
    "layers": options.parsed(options.parse_layers, f"{LAYERS}  {RECIPE}, or last]"),
    "pool": options.option(str, f"Pooling: cls (or first), last (token), mean, max or none.  {RECIPE}, or mean]"),
    "normalize": options.option(bool, f"Normalize vectors to unit length.  {RECIPE}]", "--normalize/--no-normalize"),
    "on_long": options.option(str, "Texts longer than the model's context: window, cut or error.  [default: window]"),
    **options.WINDOWS,
}


@options.group("settings", SETTINGS)
def embed(
    model: options.ModelName,
    source: Annotated[str, Option("--input", help="Texts, one a line, or a table; - is standard input.")],
    output: Annotated[Path, Option(help="A .npy file, with --pool none a .jsonl file; replaced if it exists.")],
    settings: dict[str, Any],
    column: options.Column = None,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Turn a file of texts into vectors. Row i of the output belongs to text i of the input.

    Example:
      kinfolk embed --model demo --input lines.txt --output vectors.npy
    """
    check_not_same_file(source, output)
    total = count_texts(source, column)
    from kinfolk.api.embed import embed_file, embed_settings, embed_width
    from kinfolk.checkpoints.folder import open_encoder
    from kinfolk.data.formats import display_name, is_table, read_texts

    encoder = open_encoder(model, device, allow_pickle)
    how, kind = embed_settings(encoder, **settings), ", row " if is_table(source) else ":"
    with working(total) as work:
        texts = read_texts(source, column)
        embed_file(encoder, texts, output, how, work.add, lambda index: f"{display_name(source)}{kind}{index + 1}")
    work.close("texts", f"{embed_width(encoder, how):,} dimensions")


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
    model: options.ModelName,
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
    from kinfolk.api.search import Index, build_index
    from kinfolk.checkpoints.folder import open_encoder
    from kinfolk.data.formats import TEXT_COLUMN, is_table, read_rows, read_texts

    opened = Index.open(index) if build is None else None
    encoder = open_encoder(model, device, allow_pickle)
    if build is not None:
        name = TEXT_COLUMN if column is None else column
        with working(total) as work:
            source = read_rows(build, name) if is_table(build) else read_texts(build, column)
            opened = build_index(encoder, source, index, name, work.add)
        work.close("texts", f"{opened.vectors.shape[1]:,} dimensions")
    if query is None or opened is None:
        return
    hits = opened.search(encoder, query, top)
    if json:
        print_json([asdict(hit) for hit in hits])
        return
    names = list(dict.fromkeys(name for hit in hits for name in hit.columns))
    rows = [(hit.score, hit.row, hit.text, *(hit.columns.get(name) for name in names)) for hit in hits]
    print_table(("score", "row", "text", *names), rows)
