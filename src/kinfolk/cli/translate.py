"""`kinfolk translate` and `align`: what a text-to-text model makes of texts, and what it looks at."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from kinfolk.cli import options
from kinfolk.cli.options import option
from kinfolk.cli.output import log_line, print_json, print_table, visible, working

PENALTY = "gnmt: ((5+n)/6)^alpha, or power: n^alpha.  [default: gnmt, Marian's power]"
EARLY_STOPPING = (
    "When beam search ends. never: when nothing better can follow; heuristic: by Hugging Face's estimate of that; "
    "full: when as many hypotheses as beams are complete.  [default: never, Marian's as its config says]"
)
DECODING = {
    "beam": option(int, "Beam size; 1 is greedy.  [default: 4]", min=1),
    "length_penalty": option(float, "Exponent alpha; greater favours longer texts.  [default: the model's, or 0.6]"),
    "penalty": option(str, PENALTY),
    "early_stopping": option(str, EARLY_STOPPING),
    "n_best": option(int, "Number of translations of each text.  [default: 1]", min=1),
    **options.SAMPLING,
    "max_tokens": option(int, "Maximum number of new tokens.", min=1),
    "copy_unknown": option(bool, "Copy source words that the vocabulary cannot spell.", "--copy-unknown"),
}


@options.group("decoding", DECODING)
def translate(
    *,
    model: options.TranslatorModel,
    texts: Annotated[list[str] | None, Argument(help="Texts to translate.")] = None,
    source: Annotated[str | None, Option("--input", help="A file of lines or a table; - is standard input.")] = None,
    output: Annotated[Path | None, Option(help="A file of lines, or a .csv, .tsv, .jsonl or .parquet table.")] = None,
    column: options.Column = None,
    decoding: dict[str, Any],
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Translate texts, or a file line by line: order and blank lines are kept.

    Examples:
      kinfolk translate --model english-french "Where is the station?"
      kinfolk translate --model english-french --input texts.txt --output translations.txt
    """
    if bool(texts) == (source is not None):
        raise BadParameter("give texts, or a file with --input", param_hint="TEXTS")
    if source is None:
        options.refuse(("--output", output), ("--column", column), reason="without --input")
    options.refuse(("--output", output and json), reason="beside --json")
    from kinfolk.api.loaded import load_translator
    from kinfolk.api.translate import one_line, translate_file
    from kinfolk.data.formats import read_texts

    translator = load_translator(model, device, allow_pickle)
    settings = translator.translate_settings(**decoding)
    if source is not None and output is not None:
        with working(None) as work:
            translate_file(translator, source, output, settings, column, work.add)
        work.close("texts")
        return
    chunks = translator.translate_stream(texts or [] if source is None else read_texts(source, column), settings)
    if json:
        print_json([[asdict(hypothesis) for hypothesis in hypotheses] for chunk in chunks for hypotheses in chunk])
        return
    numbers, several = count(1), source is not None or len(texts or []) > 1
    for chunk in chunks:
        for hypotheses, number in zip(chunk, numbers, strict=False):
            for hypothesis in hypotheses:
                prefix = "" if settings.search.n_best == 1 else f"{number}\t" * several + f"{hypothesis.score:.4f}\t"
                print(prefix + one_line(hypothesis.text))
        sys.stdout.flush()  # whoever reads a pipe need not wait for the next chunk


def align(
    model: options.TranslatorModel,
    source: Annotated[str, Argument(help="A text.")],
    target: Annotated[str | None, Argument(help="Its translation; without it the model's own.")] = None,
    output: Annotated[Path | None, Option(help="Draw it: a .png file.")] = None,
    layer: Annotated[int | None, Option(help="Only this layer, from 1.", min=1)] = None,
    head: Annotated[int | None, Option(help="Only this head of it, from 1.", min=1)] = None,
    pieces: Annotated[bool, Option("--pieces", help="Subwords, not words.")] = False,
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Show the attention of each target word over the source words.

    Example:
      kinfolk align --model english-french "the black cat" "le chat noir" --output cat.png
    """
    from kinfolk.api.align import alignment_layer
    from kinfolk.api.loaded import load_translator
    from kinfolk.training.pictures import alignment_picture

    alignment = load_translator(model, device, allow_pickle).align(source, target, pieces)
    matrix = alignment.matrix(layer, head)
    if output is not None:
        alignment_picture(alignment, output, layer, head)
        log_line(f"wrote {output}")
    if json:
        print_json(alignment.only(layer, head).as_json())
    elif output is None:
        shown = "" if len(alignment.weights) == 1 else f"layer {layer or alignment_layer(len(alignment.weights)) + 1}"
        rows = [(word, *row) for word, row in zip(alignment.target, matrix.tolist(), strict=True)]
        print_table((shown, *map(visible, alignment.source)), rows)
