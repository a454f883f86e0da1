"""Options that several commands share, each described once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kinfolk.api.loaded import Encoder
    from kinfolk.api.translator import Translator

Model = Annotated[str, typer.Option("--model", help='Model folder, hub name, or "demo".', show_default=False)]
TranslatorModel = Annotated[
    str, typer.Option("--model", help='Translator\'s folder, hub name, or "g2p-en".', show_default=False)
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="Open pytorch_model.bin too (weights only).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Top = Annotated[int, typer.Option("--top", help="How many answers.", min=1)]
Column = Annotated[
    str | None,
    typer.Option("--column", help="Column with the texts of a table.  [default: text]"),
]

Window = Annotated[int | None, typer.Option("--window", help="Tokens read at once, at most the model's limit.")]
Stride = Annotated[int | None, typer.Option("--stride", help="Tokens that neighbouring windows share.")]

Minutes = Annotated[float | None, typer.Option("--minutes", help="Instead of epochs: as long as that.")]
Steps = Annotated[int | None, typer.Option("--steps", help="Instead of epochs: so many steps.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Peak learning rate.")]
Schedule = Annotated[
    str, typer.Option("--schedule", help="constant, linear, cosine, inverse_sqrt, one_cycle, slanted_triangular.")
]
Warmup = Annotated[float, typer.Option("--warmup", help="Share of the run over which the rate rises.")]
Average = Annotated[float, typer.Option("--weight-averaging", help="Share of the run whose weights are averaged.")]
Accumulate = Annotated[int, typer.Option("--gradient-accumulation", help="Batches per step; they count as one.")]
Patience = Annotated[int | None, typer.Option("--patience", help="Stop after so many evaluations in vain.")]
Evaluations = Annotated[int, typer.Option("--evaluations", help="How often to evaluate.")]
Precision = Annotated[
    str, typer.Option("--precision", help="fp32, or bf16 where the processor has it: faster products while learning.")
]
Shard = Annotated[bool, typer.Option("--fsdp", help="Under torchrun: divide the weights as well.")]


def open_encoder(model: str, device: str = "auto", allow_pickle: bool = False) -> Encoder:
    """The model that the options ask for."""
    from kinfolk.api.loaded import load_encoder

    return load_encoder(model, device, allow_pickle)


def open_translator(model: str, device: str = "auto", allow_pickle: bool = False) -> Translator:
    """The same for a model that writes texts."""
    from kinfolk.api.loaded import load_translator

    return load_translator(model, device, allow_pickle)


def parse_layers(layers: str | None) -> str | list[int] | None:
    """`0,6,12` as numbers; names stay names."""
    if layers is not None and re.fullmatch(r"\s*\d{1,4}\s*(,\s*\d{1,4}\s*)*", layers):
        return [int(number) for number in layers.split(",")]
    return layers
