"""`kinfolk layers-table`: which layers of a frozen encoder serve a tagger best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfolk.cli.options import AllowPickle, Device, Json, Model, open_encoder
from kinfolk.cli.output import log_line, print_json, print_table
from kinfolk.cli.progress import working

if TYPE_CHECKING:
    from kinfolk.api.layers_table import LayersTable

EXAMPLE = """\
Example:
  kinfolk layers-table --model demo --train train.txt --dev valid.txt --share 0.25
"""


def layers_table(
    model: Model,
    train: Annotated[Path, typer.Option("--train", help="CoNLL file, or a folder with seq.in, seq.out and label.")],
    dev: Annotated[Path, typer.Option("--dev", help="The same, to measure on.")],
    share: Annotated[float, typer.Option("--share", help="Share of the training sentences that is used.")] = 1.0,
    seeds: Annotated[int, typer.Option("--seeds", help="Train every head so many times.")] = 3,
    head: Annotated[str, typer.Option("--head", help="linear, linear-crf, bilstm or bilstm-crf.")] = "bilstm",
    hidden: Annotated[int, typer.Option("--hidden", help="Width of each direction of the LSTM.")] = 128,
    epochs: Annotated[float | None, typer.Option("--epochs", help="Passes over the data.", show_default="4")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Number of the column of tags; the last.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Also write the table to this .md file.")] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder that keeps features and runs; the same command goes on.")
    ] = None,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Read a frozen encoder at every choice of layers, and measure which serves tagging best."""
    from dataclasses import replace

    from kinfolk.api.layers_table import SETTINGS, TableCallbacks
    from kinfolk.api.layers_table import layers_table as measure

    settings = SETTINGS if epochs is None else replace(SETTINGS, epochs=epochs)
    encoder = open_encoder(model, device, allow_pickle)
    with working(None) as (_, report):
        callbacks = TableCallbacks(report, tell_figure)
        found = measure(
            encoder, train, dev, share, seeds, head, hidden, label, cache, settings=settings, callbacks=callbacks
        )
    show(found, output, json)


def tell_figure(layers: str, seed: int, figure: float) -> None:
    """One line for each trained head: it may take a minute."""
    log_line(f"{layers}, seed {seed}: {figure:.2f}")


def show(found: LayersTable, output: Path | None, json: bool) -> None:
    """The table on stdout, and as Markdown in a file where asked for."""
    from kinfolk.files import write_bytes

    if json:
        print_json(found.as_json())
    else:
        header = ("layers", f"{found.metric}, %", "deviation", "± (95 %)", "BERT base, paper")
        print_table(header, [(row.title, row.mean, row.deviation, row.margin, row.published) for row in found.rows])
    if output is not None:
        write_bytes(output, f"{found.markdown()}\n".encode())
