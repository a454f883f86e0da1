"""`kinfolk train-translator`, `translate`, `align`: from pairs of texts to a model that writes, and its use."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfolk.cli.options import (
    Accumulate,
    AllowPickle,
    Average,
    Column,
    Device,
    Evaluations,
    Json,
    Minutes,
    Patience,
    Precision,
    Rate,
    Schedule,
    Shard,
    Steps,
    TranslatorModel,
    Warmup,
    open_translator,
)
from kinfolk.cli.output import log_line, print_json, print_table, visible
from kinfolk.cli.progress import training, working

if TYPE_CHECKING:
    from kinfolk.api.train_translator import TrainedTranslator
    from kinfolk.api.translator import Translator
    from kinfolk.training.trainer import Progress

TRAIN_EXAMPLE = """\
Examples:
  kinfolk train-translator --pairs train.tsv --minutes 45 --output english-french
  kinfolk train-translator --source train.en --target train.fr --kind attention --output run
"""
TRANSLATE_EXAMPLE = """\
Examples:
  kinfolk translate --model english-french "Where is the station?"
  kinfolk translate --model english-french --input texts.txt --output translations.txt
"""
ALIGN_EXAMPLE = """\
Example:
  kinfolk align --model english-french "the black cat" "le chat noir" --output cat.png
"""


def train_translator(
    output: Annotated[Path, typer.Option("--output", help="Folder of the run; the same command goes on with it.")],
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="A .tsv with source TAB target, or a table with two columns.")
    ] = None,
    source: Annotated[Path | None, typer.Option("--source", help="Instead: sources, one a line.")] = None,
    target: Annotated[Path | None, typer.Option("--target", help="And their targets, one a line.")] = None,
    dev: Annotated[
        Path | None, typer.Option("--dev", help="Held-out pairs; without them 2,000 or a tenth are held out.")
    ] = None,
    dev_source: Annotated[Path | None, typer.Option("--dev-source", help="Instead: held-out sources.")] = None,
    dev_target: Annotated[Path | None, typer.Option("--dev-target", help="And their targets.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Columns of source and target in a table with a header: en,fr.")
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="transformer, attention or seq2seq.")] = "transformer",
    size: Annotated[str, typer.Option("--size", help="tiny (transformer), small, base, big (transformer).")] = "small",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Settings of the model that differ from its size: dropout=0.3,encoder_layers=4."),
    ] = None,
    vocabulary_size: Annotated[
        int | None, typer.Option("--vocabulary-size", help="Number of pieces to learn.  [default: 8000]")
    ] = None,
    vocabulary_kind: Annotated[
        str | None,
        typer.Option("--vocabulary-kind", help="bpe, unigram, byte_bpe, wordpiece or words.  [default: bpe]"),
    ] = None,
    separate: Annotated[bool, typer.Option("--separate", help="A vocabulary for each side, not one for both.")] = False,
    init_decoder: Annotated[
        Path | None,
        typer.Option("--init-decoder", help="Start a recurrent decoder as this language model, with its words."),
    ] = None,
    label_smoothing: Annotated[float, typer.Option("--label-smoothing", help="0 for none.")] = 0.1,
    scheduled_sampling: Annotated[
        float, typer.Option("--scheduled-sampling", help="Greatest chance of reading an own guess while learning.")
    ] = 0.0,
    sampling_schedule: Annotated[
        str, typer.Option("--sampling-schedule", help="How the chance rises: linear, sigmoid or constant.")
    ] = "linear",
    sampling_way: Annotated[
        str, typer.Option("--sampling-way", help="Guess in a pass of its own (passes), or token by token (steps).")
    ] = "passes",
    epochs: Annotated[float | None, typer.Option("--epochs", help="Passes over the data.", show_default="20")] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    learning_rate: Rate = 1e-3,
    batch_tokens: Annotated[int, typer.Option("--batch-tokens", help="Most tokens of a batch, both sides.")] = 4096,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Most pairs of a batch.")] = 512,
    gradient_accumulation: Accumulate = 1,
    schedule: Schedule = "inverse_sqrt",
    warmup: Warmup = 0.1,
    weight_averaging: Average = 0.1,
    patience: Patience = None,
    evaluations: Evaluations = 10,
    seed: Annotated[int, typer.Option("--seed", help="Order of the data, dropout, first weights.")] = 0,
    precision: Precision = "fp32",
    fsdp: Shard = False,
    max_bad_rows: Annotated[
        int, typer.Option("--max-bad-rows", help="Leave out up to so many rows that cannot be read.")
    ] = 0,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Train a model that turns a text into a text, from pairs; a vocabulary is learned on the way.

    After a crash the same command goes on.
    """
    from kinfolk.api.train_translator import TranslatorCallbacks
    from kinfolk.api.train_translator import train_translator as train_it

    held: Any = both("--dev-source", dev_source, "--dev-target", dev_target)
    if dev is not None and held is not None:
        raise typer.BadParameter("has no meaning beside --dev-source", param_hint="--dev")
    named: dict[str, Any] = {"minutes": minutes, "steps": steps, "learning_rate": learning_rate, "seed": seed}
    named |= {} if epochs is None else {"epochs": epochs}
    named |= {
        "batch_tokens": batch_tokens,
        "batch_size": batch_size,
        "gradient_accumulation": gradient_accumulation,
        "schedule": schedule,
    }
    named |= {"warmup": warmup, "weight_averaging": weight_averaging, "patience": patience, "evaluations": evaluations}
    named |= {"precision": precision, "fsdp": fsdp}
    with training() as step:
        found = train_it(
            output,
            pairs,
            source,
            target,
            dev if held is None else held,
            None if columns is None else [name.strip() for name in columns.split(",")],
            kind=kind,
            size=size,
            changes=parse_changes(changes),
            vocabulary_size=vocabulary_size,
            vocabulary_kind=vocabulary_kind,
            joint=False if separate else None,
            init_decoder=init_decoder,
            label_smoothing=label_smoothing,
            scheduled_sampling=scheduled_sampling,
            sampling_schedule=sampling_schedule,
            sampling_way=sampling_way,
            max_bad_rows=max_bad_rows,
            device=device,
            callbacks=TranslatorCallbacks(
                lambda survey: log_line(str(survey)), lambda seed, at: step(seed, dev_loss_named(at))
            ),
            **named,
        )
    show_training(found, json)


def dev_loss_named(progress: Progress) -> Progress:
    """The loss on the dev pairs under a name of its own, for the line that tells it begins with that of the batch."""
    if progress.metrics is None:
        return progress
    named = {"dev loss" if name == "loss" else name: value for name, value in progress.metrics.items()}
    return replace(progress, metrics=named)


def both(first: str, one: Path | None, second: str, other: Path | None) -> tuple[Path, Path] | None:
    """Two files that belong together, or none."""
    if one is None and other is None:
        return None
    if one is None or other is None:
        raise typer.BadParameter(f"needs {second if other is None else first} beside it", param_hint=first)
    return one, other


def parse_changes(given: list[str] | None) -> dict[str, Any]:
    """`dropout=0.3,norm=pre` as settings: numbers, true and false as JSON has them, all else as text."""
    found: dict[str, Any] = {}
    for part in ",".join(given).split(",") if given else []:
        name, sign, value = (side.strip() for side in part.partition("="))
        if not name or not sign or not value:
            raise typer.BadParameter("write name=value with commas between them", param_hint="--set")
        if name in found:
            raise typer.BadParameter(f"{name} is given twice", param_hint="--set")
        try:
            found[name] = json_module.loads(value)
        except ValueError:
            found[name] = value
    return found


def show_training(found: TrainedTranslator, json: bool) -> None:
    """Metrics on dev pairs, and where the model is."""
    from kinfolk.api.translator_report import metrics_table

    for note in found.notes:
        log_line(f"note: {note}")
    if json:
        told = {"folder": str(found.folder), "metrics": dict(found.metrics), "measured": found.measured}
        print_json(told | {"signature": found.signature})
        return
    if found.metrics:
        title, rows = metrics_table(found.metrics, found.measured, found.survey.dev_pairs)
        print_table((title, "value"), rows)
        print(f"sacreBLEU {found.signature}")
    log_line(f"the model is in {found.folder / 'model'}, how it came about in {found.folder / 'report.md'}")


def translate(
    model: TranslatorModel,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to translate.")] = None,
    source: Annotated[
        str | None, typer.Option("--input", help="A file of lines or a table; - is standard input.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="A file of lines, or a .csv, .tsv, .jsonl or .parquet table.")
    ] = None,
    column: Column = None,
    beam: Annotated[
        int | None, typer.Option("--beam", help="Texts looked at side by side; 1 is greedy.  [default: 4]", min=1)
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option("--length-penalty", help="How much longer texts are favoured.  [default: the model's, or 0.6]"),
    ] = None,
    penalty: Annotated[
        str | None, typer.Option("--penalty", help="gnmt: ((5+n)/6)^x, or power: n^x.  [default: gnmt, Marian's power]")
    ] = None,
    stop: Annotated[
        str | None, typer.Option("--stop", help="exact, present or full.  [default: exact, Marian's as it says]")
    ] = None,
    best: Annotated[int, typer.Option("--best", help="How many translations of each text.", min=1)] = 1,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Draw at random; below 1 less daring.")
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Draw from so many likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Draw from so much of the probability.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Draw at random, the same each time.")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", help="Most tokens of a translation.")] = None,
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="Copy source words that the vocabulary cannot spell.")
    ] = False,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Translate texts, or a file line by line: order and blank lines are kept."""
    if bool(texts) == (source is not None):
        raise typer.BadParameter("give texts, or a file with --input", param_hint="TEXTS")
    if output is not None and (source is None or json):
        why = "has no meaning beside --json" if json else "has no meaning without --input"
        raise typer.BadParameter(why, param_hint="--output")
    if column is not None and source is None:
        raise typer.BadParameter("has no meaning without --input", param_hint="--column")
    translator = open_translator(model, device, allow_pickle)
    sought: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "penalty": penalty, "stop": stop}
    sought |= {"best": best, "max_length": max_length}
    drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    settings = translator.translate_settings(**sought, **drawn, copy_unknown=copy_unknown)
    if output is not None and source is not None:
        from kinfolk.api.translate_file import translate_file

        with working(None) as (work, report):
            translate_file(translator, source, output, settings, column, report)
        log_line(f"{work.done:,} texts, {work.seconds:.1f} s, {work.rate}")
        return
    given = texts if source is None else read(source, column)
    several = source is not None or len(texts or []) > 1
    show_translations(translator.translate_stream(given or [], settings), best, several, json)


def read(source: str, column: str | None) -> Any:
    """The texts of a file."""
    from kinfolk.data.formats import read_texts

    return read_texts(source, column)


def show_translations(found: Any, best: int, several: bool, json: bool) -> None:
    """A line for each text, a chunk of texts at a time, or one JSON document.

    With `best` above 1 each line is a score and a translation; where texts are several, their number stands before it.
    """
    if json:
        print_json([[asdict(option) for option in options] for chunk in found for options in chunk])
        return
    from kinfolk.api.translate_file import one_line

    numbers = count(1)
    for chunk in found:
        for options, number in zip(chunk, numbers, strict=False):
            place = f"{number}\t" if several else ""
            for option in options:
                print(("" if best == 1 else f"{place}{option.score:.4f}\t") + one_line(option.text))
        sys.stdout.flush()  # whoever reads a pipe need not wait for the next chunk


def show_measured(
    translator: Translator,
    source: Path,
    target: Path | None,
    columns: tuple[str | None, str | None],
    beam: int | None,
    max_bad_rows: int,
    json: bool,
) -> None:
    """BLEU on the pairs of a file, or of two."""
    from kinfolk.api.bleu import measure
    from kinfolk.data.pairs import read_pairs, read_parallel

    if (columns[0] is None) != (columns[1] is None):
        raise typer.BadParameter("name both columns of a table of pairs, or none", param_hint="--text, --label")
    named = None if columns[0] is None or columns[1] is None else [columns[0], columns[1]]
    one = target is None
    read = read_pairs(source, named, max_bad_rows) if one else read_parallel(source, str(target), max_bad_rows)
    found = measure(translator, read.pairs, translator.translate_settings(beam=beam))
    found.stats.tell()
    if json:
        told = {"pairs": len(read.pairs), "bad": read.bad, "metrics": dict(found.metrics), "signature": found.signature}
        print_json(told)
        return
    if read.bad:
        log_line(f"note: {read.bad} bad rows were left out")
    print_table((f"on {len(read.pairs):,} pairs", "value"), list(found.metrics.items()))
    print(f"sacreBLEU {found.signature}")


def align(
    model: TranslatorModel,
    source: Annotated[str, typer.Argument(help="A text.")],
    target: Annotated[str | None, typer.Argument(help="Its translation; without it the model's own.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Draw it: a .png file.")] = None,
    layer: Annotated[int | None, typer.Option("--layer", help="Only this layer, from 1.", min=1)] = None,
    head: Annotated[int | None, typer.Option("--head", help="Only this head of it, from 1.", min=1)] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Pieces of the vocabulary, not words.")] = False,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Show which source words a model looks at when it writes each target word."""
    from kinfolk.api.align import usual_layer

    found = open_translator(model, device, allow_pickle).align(source, target, pieces)
    matrix = found.matrix(layer, head)
    if output is not None:
        from kinfolk.api.align_picture import alignment_picture

        alignment_picture(found, output, layer, head)
        log_line(f"wrote {output}")
    if json:
        print_json(found.only(layer, head).as_json())
    elif output is None:
        shown = "" if found.layers == 1 else f"layer {layer or usual_layer(found.layers) + 1}"
        print_table(
            (shown, *map(visible, found.source)),
            [(word, *row) for word, row in zip(found.target, matrix.tolist(), strict=True)],
        )
