"""`kinfolk finetune`, `predict`, `evaluate`: from a table to a trained model, and its use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfolk.cli.options import (
    Accumulate,
    AllowPickle,
    Average,
    Device,
    Evaluations,
    Json,
    Minutes,
    Model,
    Patience,
    Precision,
    Rate,
    Schedule,
    Shard,
    Steps,
    Stride,
    Warmup,
    Window,
    open_encoder,
    parse_layers,
)
from kinfolk.cli.output import log_line, print_json, print_table
from kinfolk.cli.progress import training, working
from kinfolk.cli.translate import read, show_measured

if TYPE_CHECKING:
    from kinfolk.api.evaluate import Evaluation
    from kinfolk.api.finetune import Finetuned

FINETUNE_EXAMPLE = """\
Example:
  kinfolk finetune --model demo --train reviews.csv --output stars --minutes 10
"""
PREDICT_EXAMPLE = """\
Example:
  kinfolk predict --model stars --input new.csv --output judged.csv
"""
EVALUATE_EXAMPLE = """\
Example:
  kinfolk evaluate --model stars --input test.csv
"""

TRAINING = (  # options that are settings of the trainer or its optimizer, by the same names
    "gradient_accumulation", "weight_averaging", "batch_size", "batch_tokens", "max_grad_norm", "epochs",
    "evaluate_every", "evaluations", "freeze",
    "layer_decay", "minutes", "patience", "precision",
    "learning_rate", "schedule", "seed", "fsdp", "steps", "gradual_unfreezing", "warmup",
    "weight_decay",
)  # fmt: skip

TextColumn = Annotated[
    str | None, typer.Option("--text", help="Column of the text, guessed by its name; 0 is a CoNLL file's first.")
]
PairColumn = Annotated[str | None, typer.Option("--pair", help='Column of the second text; "" for none.')]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Column of the label; guessed by its name.")]
Header = Annotated[
    str | None, typer.Option("--header", help="Names of the columns, for a file without them: text,label.")
]
BadRows = Annotated[int, typer.Option("--max-bad-rows", help="Leave out up to so many rows that cannot be read.")]


def columns(header: str | None) -> list[str] | None:
    """`text,label` as names."""
    return None if header is None else [name.strip() for name in header.split(",")]


def finetune(
    context: typer.Context,
    model: Model,
    train: Annotated[
        Path, typer.Option("--train", help="Labelled table, CoNLL file, folder with seq.in and seq.out, or SQuAD json.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Folder of the run; the same command goes on with it.")],
    dev: Annotated[Path | None, typer.Option("--dev", help="Held-out file; without it a tenth of --train.")] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", help="classify, multilabel, regress, tag, answer or choose; guessed by the form."),
    ] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    header: Header = None,
    class_weights: Annotated[
        str | None, typer.Option("--class-weights", help="balanced, or by name: good=1,bad=3.")
    ] = None,
    crf: Annotated[bool, typer.Option("--crf", help="Tags: judge whole sentences, not words one by one.")] = False,
    dropout: Annotated[
        float | None, typer.Option("--dropout", help="Instead of the model's own; 0 often suits regress.")
    ] = None,
    window: Window = None,
    stride: Stride = None,
    frozen: Annotated[
        str | None,
        typer.Option(
            "--frozen",
            help="Leave the encoder as it is and train this on its vectors, which are computed once: linear, logistic, "
            "bilstm, linear-crf or bilstm-crf. Usually 6 epochs in batches of 16 at 4e-3, cosine.",
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option("--layers", help="With --frozen: mix (learned weights, the default) or what embed takes."),
    ] = None,
    epochs: Annotated[float, typer.Option("--epochs", help="Passes over the data.")] = 3.0,
    minutes: Minutes = None,
    steps: Steps = None,
    learning_rate: Rate = 5e-5,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Texts per batch.")] = 32,
    batch_tokens: Annotated[int | None, typer.Option("--batch-tokens", help="Most tokens per batch, as well.")] = None,
    gradient_accumulation: Accumulate = 1,
    schedule: Schedule = "linear",
    warmup: Warmup = 0.1,
    max_grad_norm: Annotated[float, typer.Option("--max-grad-norm", help="Longest gradient; 0 for any.")] = 1.0,
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="Of matrices, as AdamW has it.")] = 0.01,
    layer_decay: Annotated[float, typer.Option("--layer-decay", help="Rate of a layer over that of the next.")] = 1.0,
    freeze: Annotated[
        int, typer.Option("--freeze", help="1 freezes the embeddings, 2 the first layer too, and so on.")
    ] = 0,
    gradual_unfreezing: Annotated[
        float, typer.Option("--gradual-unfreezing", help="Share of the run over which layers thaw from the top.")
    ] = 0.0,
    weight_averaging: Average = 0.0,
    patience: Patience = None,
    evaluations: Evaluations = 4,
    evaluate_every: Annotated[
        int | None, typer.Option("--evaluate-every", help="Instead: evaluate after every so many steps.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Order of the data, dropout, new weights.")] = 0,
    seeds: Annotated[int, typer.Option("--seeds", help="Train with so many seeds, keep the best.")] = 1,
    precision: Precision = "fp32",
    fsdp: Shard = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write OUTPUT/tensorboard as well.")] = False,
    max_bad_rows: BadRows = 0,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Train a model on labelled texts, tagged words, questions or choices. After a crash the same command goes on."""
    from kinfolk.api.experiment import Callbacks
    from kinfolk.api.finetune import finetune as train_it
    from kinfolk.training.distributed import world

    leads = world().is_main
    with training() if leads else nullcontext(lambda seed, progress: None) as step:
        found = train_it(
            model,
            train,
            output,
            dev=dev,
            task=task,
            text=text,
            pair=pair,
            label=label,
            header=columns(header),
            class_weights=parse_weights(class_weights),
            crf=crf,
            frozen=frozen,
            layers=parse_layers(layers),
            dropout=dropout,
            window=window,
            stride=stride,
            max_bad_rows=max_bad_rows,
            seeds=seeds,
            device=device,
            callbacks=Callbacks(tell_survey, step),
            tensorboard=tensorboard,
            allow_pickle=allow_pickle,
            **asked(context, TRAINING),
        )
    if leads:  # of several processes under torchrun one speaks
        show_training(found, json)


def asked(context: typer.Context, names: Sequence[str]) -> dict[str, Any]:
    """Those of the options that were given: what the others come to depends on what is trained."""
    sources = {name: context.get_parameter_source(name) for name in names}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    return {name: context.params[name] for name in given}


def refuse(*given: tuple[str, Any], without: str | None = None, beside: str | None = None) -> None:
    """An option that means nothing here is an error, not a silence."""
    for name, value in given:
        if value:
            why = f"has no meaning without {without}" if without else f"has no meaning beside {beside}"
            raise typer.BadParameter(why, param_hint=name)


def parse_weights(wanted: str | None) -> str | dict[str, float] | None:
    """`good=1,bad=3` as a table; names such as balanced stay."""
    if wanted is None or "=" not in wanted:
        return wanted
    pairs = [part.rsplit("=", 1) for part in wanted.split(",")]
    try:
        return {name.strip(): float(value) for name, value in pairs}
    except ValueError:
        raise typer.BadParameter("write name=weight with commas between them", param_hint="--class-weights") from None


def tell_survey(survey: Any, fresh: Any) -> None:
    """What there is to know before training."""
    log_line(str(survey))
    log_line(f"weights that start at random: {', '.join(fresh)}")


def show_training(found: Finetuned, json: bool) -> None:
    """Metrics on the dev set, over the seeds where there are several."""
    for note in found.notes:
        log_line(f"note: {note}")
    if json:
        by_seed = {str(seed): dict(metrics) for seed, metrics in found.by_seed.items()}
        told = {"folder": str(found.folder), "metrics": dict(found.metrics), "by_seed": by_seed}
        if len(by_seed) > 1:  # `metrics` are those of the best seed
            summary = found.summary()
            told["mean"] = {name: mean for name, (mean, _) in summary.items()}
            told["deviation"] = {name: deviation for name, (_, deviation) in summary.items()}
        print_json(told)
        return
    if len(found.by_seed) == 1:
        print_table(("on the dev set", "value"), list(found.metrics.items()))
    else:
        rows = [(name, mean, deviation) for name, (mean, deviation) in found.summary().items()]
        print_table((f"on the dev set, {len(found.by_seed)} seeds", "mean", "deviation"), rows)
    log_line(f"the model is in {found.folder / 'model'}, how it came about in {found.folder / 'report.md'}")


def predict(
    model: Model,
    source: Annotated[
        str,
        typer.Option(
            "--input", help="A table, texts one a line, a CoNLL file, seq.in or SQuAD json; - reads lines from stdin."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", help="A .csv, .tsv, .jsonl or .parquet file; CoNLL stays CoNLL, SQuAD also .json."),
    ],
    text: TextColumn = None,
    pair: PairColumn = None,
    header: Header = None,
    top: Annotated[int, typer.Option("--top", help="Of a question: so many answers, in a .jsonl file.", min=1)] = 1,
    max_bad_rows: Annotated[int, typer.Option("--max-bad-rows", help="Of a table: leave out up to so many rows.")] = 0,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Write what a trained model says beside every row of a file: class, number, tags, answer or choice."""
    from kinfolk.api.predict_file import predict_file
    from kinfolk.tasks.reading import Columns

    encoder = open_encoder(model, device, allow_pickle)
    with working(None) as (work, report):
        named = Columns(text, pair, None, columns(header))
        done = predict_file(encoder, source, output, named, max_bad_rows, report, top)
    if done.bad:
        log_line(f"note: {done.bad} bad rows were left out")
    log_line(f"{work.done:,} rows, {work.seconds:.1f} s, {work.rate}")


def evaluate(
    model: Model,
    source: Annotated[
        Path, typer.Option("--input", help="A labelled file, pairs of a translator, or text of a language model.")
    ],
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    header: Header = None,
    target: Annotated[
        Path | None, typer.Option("--target", help="Of a translator: the targets, where --input has sources only.")
    ] = None,
    beam: Annotated[int | None, typer.Option("--beam", help="Of a translator: as in translate.", min=1)] = None,
    max_bad_rows: BadRows = 0,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Measure a trained model on a labelled file: metrics, who is taken for whom, the most confident mistakes.

    A translator is measured on pairs, by BLEU; a language model on lines of text, by perplexity.
    """
    from kinfolk.api.evaluate import evaluate as measure
    from kinfolk.api.loaded import load
    from kinfolk.api.translator import Translator

    encoder = load(model, device, allow_pickle)
    if isinstance(encoder, Translator):
        refuse(("--pair", pair), ("--header", header), beside="a translator")
        show_measured(encoder, source, target, (text, label), beam, max_bad_rows, json)
        return
    refuse(("--target", target), ("--beam", beam), without="a translator")
    if "next_token" in encoder.model.heads:
        others = ("--pair", pair), ("--label", label), ("--header", header), ("--max-bad-rows", max_bad_rows)
        refuse(*others, beside="a language model")
        show_perplexity(encoder.perplexity(read(str(source), text)), json)
        return
    found = measure(encoder, source, text, pair, label, columns(header), max_bad_rows)
    print_json(asdict(found)) if json else show_evaluation(found)


def show_perplexity(found: float, json: bool) -> None:
    """The one figure of a language model."""
    print_json({"metrics": {"perplexity": found}}) if json else print_table(("", "value"), [("perplexity", found)])


def show_evaluation(found: Evaluation) -> None:
    """Tables for a reader."""
    from kinfolk.data.tagging import has_spans

    if found.bad:
        log_line(f"note: {found.bad} bad rows were left out")
    print_table((f"on {found.examples:,} examples", "value"), list(found.metrics.items()))
    if "recall" in found.metrics and has_spans(found.labels):
        print("f1, precision and recall are those of whole entities")
    if found.confusion is not None and len(found.labels) <= 20:
        print("\nrows: the truth; columns: what the model says")
        print_table(
            ("", *found.labels), [(name, *row) for name, row in zip(found.labels, found.confusion, strict=True)]
        )
        outside = found.examples - sum(map(sum, found.confusion))
        if outside:
            print(f"and {outside:,} whose label training did not see")
    if found.mistakes:
        print("\nthe worst mistakes")
        rows = [(item.probability, item.truth, item.guess, item.where, item.text[:80]) for item in found.mistakes]
        print_table(("probability", "truth", "said", "where", "text"), rows)
