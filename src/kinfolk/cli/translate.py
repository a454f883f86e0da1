"""`kinfolk train-translator`, `translate` and `align`: from pairs of texts to a text-to-text model, and its use."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from kinfolk.cli import options
from kinfolk.cli.output import log_line, print_json, print_table, visible, working
from kinfolk.cli.training import PRETRAINED_ONLY, run_training, show_result, training_options


@training_options(
    exclude=PRETRAINED_ONLY,
    epochs=20.0,
    learning_rate=1e-3,
    batch_size=512,
    batch_tokens=4096,
    schedule="inverse_sqrt",
    weight_decay=0.0,
    weight_averaging=0.1,
    evaluations=10,
)
def train_translator(
    *,
    output: Annotated[Path, Option(help="Folder of the run; the same command resumes it.")],
    pairs: Annotated[Path | None, Option(help="A .tsv with source TAB target, or a table with two columns.")] = None,
    source: Annotated[Path | None, Option(help="Instead: sources, one a line.")] = None,
    target: Annotated[Path | None, Option(help="And their targets, one a line.")] = None,
    dev: Annotated[Path | None, Option(help="Dev pairs; without them 2,000 or a tenth are held out.")] = None,
    dev_source: Annotated[Path | None, Option(help="Instead: dev sources.")] = None,
    dev_target: Annotated[Path | None, Option(help="And their targets.")] = None,
    columns: Annotated[str | None, Option(help="Columns of source and target in a table with a header: en,fr.")] = None,
    kind: Annotated[str, Option(help="transformer, attention or seq2seq.")] = "transformer",
    size: Annotated[str, Option(help="tiny (transformer), small, base, big (transformer).")] = "small",
    settings: options.ModelSettings = None,
    vocabulary_size: options.VocabularySize = None,
    vocabulary_kind: options.VocabularyKind = None,
    separate_vocabularies: Annotated[
        bool, Option("--separate-vocabularies", help="A vocabulary for each side instead of a joint one.")
    ] = False,
    init_decoder: Annotated[
        Path | None, Option(help="Initialise a recurrent decoder from this language model, with its vocabulary.")
    ] = None,
    label_smoothing: Annotated[float, Option(help="0 = none.")] = 0.1,
    scheduled_sampling: Annotated[
        float, Option(help="Maximum probability of feeding back the model's own prediction.")
    ] = 0.0,
    sampling_schedule: Annotated[
        str, Option(help="How that probability rises: linear, sigmoid or constant.")
    ] = "linear",
    sampling_mode: Annotated[
        str, Option(help="Scheduled sampling in a second pass (two-pass), or token by token (step-wise).")
    ] = "two-pass",
    training: dict[str, Any],
    max_bad_rows: options.MaxBadRows = 0,
    json: options.Json = False,
    device: options.Device = "auto",
) -> None:
    """Train a text-to-text model from pairs; its vocabulary is trained too. The same command resumes after a crash.

    Examples:
      kinfolk train-translator --pairs train.tsv --minutes 45 --output english-french
      kinfolk train-translator --source train.en --target train.fr --kind attention --output run
    """
    from kinfolk.api.experiment import Callbacks
    from kinfolk.api.train_translator import train_translator as train_model
    from kinfolk.api.translation import metrics_table

    if (dev_source is None) != (dev_target is None):
        missing, present = ("--dev-source", "--dev-target")[:: 1 if dev_source is None else -1]
        raise BadParameter(f"needs {missing} beside it", param_hint=present)
    dev_files = None if dev_source is None else (dev_source, dev_target)
    options.refuse(("--dev", dev and dev_files), reason="beside --dev-source")
    result = run_training(
        train_model,
        Callbacks,
        output=output,
        pairs=pairs,
        source=source,
        target=target,
        dev=dev_files or dev,
        columns=options.parse_names(columns),
        kind=kind,
        size=size,
        changes=options.parse_settings(settings),
        vocabulary_size=vocabulary_size,
        vocabulary_kind=vocabulary_kind,
        joint=False if separate_vocabularies else None,
        init_decoder=init_decoder,
        label_smoothing=label_smoothing,
        scheduled_sampling=scheduled_sampling,
        sampling_schedule=sampling_schedule,
        sampling_mode=sampling_mode,
        max_bad_rows=max_bad_rows,
        device=device,
        **training,
    )
    if result is None:
        return
    title, rows = metrics_table(result.metrics, result.measured, result.survey.dev_pairs)
    more = {"measured": result.measured, "signature": result.signature}
    show_result(result, json, (title, "value"), rows if result.metrics else [], **more)
    if result.metrics and not json:
        print(f"sacreBLEU {result.signature}")


def translate(
    model: options.TranslatorModel,
    texts: Annotated[list[str] | None, Argument(help="Texts to translate.")] = None,
    source: Annotated[str | None, Option("--input", help="A file of lines or a table; - is standard input.")] = None,
    output: Annotated[Path | None, Option(help="A file of lines, or a .csv, .tsv, .jsonl or .parquet table.")] = None,
    column: options.Column = None,
    beam: Annotated[int | None, Option(help="Beam size; 1 is greedy.  [default: 4]", min=1)] = None,
    length_penalty: Annotated[
        float | None, Option(help="Exponent alpha; greater favours longer texts.  [default: the model's, or 0.6]")
    ] = None,
    penalty: Annotated[
        str | None, Option(help="gnmt: ((5+n)/6)^alpha, or power: n^alpha.  [default: gnmt, Marian's power]")
    ] = None,
    early_stopping: Annotated[
        str | None,
        Option(
            help="When beam search ends. never: when nothing better can follow; heuristic: by Hugging Face's "
            "estimate of that; full: when as many hypotheses as beams are complete.  [default: never, Marian's as "
            "its config says]"
        ),
    ] = None,
    n_best: Annotated[int, Option(help="Number of translations of each text.", min=1)] = 1,
    temperature: Annotated[float | None, Option(help="Sample; softmax temperature, below 1 is sharper.")] = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: Annotated[int | None, Option(help="Sample, with this seed.")] = None,
    max_tokens: options.MaxTokens = None,
    copy_unknown: Annotated[
        bool, Option("--copy-unknown", help="Copy source words that the vocabulary cannot spell.")
    ] = False,
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
    from kinfolk.api.translate import translate_file
    from kinfolk.data.formats import read_texts

    translator = load_translator(model, device, allow_pickle)
    settings = translator.translate_settings(
        beam=beam,
        length_penalty=length_penalty,
        penalty=penalty,
        early_stopping=early_stopping,
        n_best=n_best,
        max_length=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        copy_unknown=copy_unknown,
    )
    if source is not None and output is not None:
        with working(None) as (work, report):
            translate_file(translator, source, output, settings, column, report)
        work.close("texts")
        return
    inputs: Iterable[str] = texts or [] if source is None else read_texts(source, column)
    several = source is not None or len(texts or []) > 1
    show_translations(translator.translate_stream(inputs, settings), n_best, several, json)


def show_translations(chunks: Iterable[Any], n_best: int, several: bool, json: bool) -> None:
    """A line for each text, a chunk of texts at a time, or one JSON document.

    With `n_best` above 1 each line is a score and a translation; of several texts, their number stands before it.
    """
    if json:
        print_json([[asdict(hypothesis) for hypothesis in hypotheses] for chunk in chunks for hypotheses in chunk])
        return
    from kinfolk.api.translate import one_line

    numbers = count(1)
    for chunk in chunks:
        for hypotheses, number in zip(chunk, numbers, strict=False):
            prefix = f"{number}\t" if several else ""
            for hypothesis in hypotheses:
                print(("" if n_best == 1 else f"{prefix}{hypothesis.score:.4f}\t") + one_line(hypothesis.text))
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

    alignment = load_translator(model, device, allow_pickle).align(source, target, pieces)
    matrix = alignment.matrix(layer, head)
    if output is not None:
        from kinfolk.api.align_picture import alignment_picture

        alignment_picture(alignment, output, layer, head)
        log_line(f"wrote {output}")
    if json:
        print_json(alignment.only(layer, head).as_json())
    elif output is None:
        shown = "" if alignment.layers == 1 else f"layer {layer or alignment_layer(alignment.layers) + 1}"
        rows = [(word, *row) for word, row in zip(alignment.target, matrix.tolist(), strict=True)]
        print_table((shown, *map(visible, alignment.source)), rows)


COMMANDS = (train_translator, translate, align)
