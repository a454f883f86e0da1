"""`kinfolk predict` and `kinfolk evaluate`: a trained model on a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Option

from kinfolk.cli import options
from kinfolk.cli.output import log_line, print_json, print_table, working

if TYPE_CHECKING:
    from kinfolk.api.evaluate import Evaluation
    from kinfolk.api.loaded import Translator


def predict(
    model: options.Model,
    source: Annotated[
        str, Option("--input", help="Table, lines of text, CoNLL file, seq.in or SQuAD json; - reads lines from stdin.")
    ],
    output: Annotated[Path, Option(help="A .csv, .tsv, .jsonl or .parquet file; CoNLL stays CoNLL, SQuAD also .json.")],
    text: options.TextColumn = None,
    pair: options.PairColumn = None,
    header: options.Header = None,
    top: Annotated[int, Option(help="Number of answers to each question, in a .jsonl file.", min=1)] = 1,
    max_bad_rows: options.MaxBadRows = 0,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Write a trained model's predictions beside every row of a file: class, number, tags, answer or choice.

    Example:
      kinfolk predict --model stars --input new.csv --output predicted.csv
    """
    from kinfolk.api.loaded import load_encoder
    from kinfolk.api.predict_file import predict_file
    from kinfolk.tasks.reading import Columns

    encoder = load_encoder(model, device, allow_pickle)
    columns = Columns(text, pair, None, options.parse_names(header))
    with working(None) as (work, report):
        done = predict_file(encoder, source, output, columns, max_bad_rows, report, top)
    show_skipped(done.bad)
    work.close("rows")


def evaluate(
    model: options.Model,
    source: Annotated[
        Path, Option("--input", help="Labelled file; pairs for a translator, text for a language model.")
    ],
    text: options.TextColumn = None,
    pair: options.PairColumn = None,
    label: options.LabelColumn = None,
    header: options.Header = None,
    target: Annotated[Path | None, Option(help="Translator: the targets, where --input has sources only.")] = None,
    beam: Annotated[int | None, Option(help="Translator: beam size.", min=1)] = None,
    max_bad_rows: options.MaxBadRows = 0,
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Evaluate a trained model on a labelled file: metrics, confusion matrix, most confident errors.

    A translator is evaluated on pairs, by BLEU; a language model on lines of text, by perplexity.

    Example:
      kinfolk evaluate --model stars --input test.csv
    """
    from kinfolk.api.evaluate import evaluate as evaluate_file
    from kinfolk.api.loaded import LanguageModel, Translator, load
    from kinfolk.data.formats import read_texts

    loaded = load(model, device, allow_pickle)
    if isinstance(loaded, Translator):
        options.refuse(("--pair", pair), ("--header", header), reason="beside a translator")
        evaluate_translator(loaded, source, target, (text, label), beam, max_bad_rows, json)
        return
    options.refuse(("--target", target), ("--beam", beam), reason="without a translator")
    if isinstance(loaded, LanguageModel):
        others = ("--pair", pair), ("--label", label), ("--header", header), ("--max-bad-rows", max_bad_rows)
        options.refuse(*others, reason="beside a language model")
        metrics = {"perplexity": loaded.perplexity(read_texts(str(source), text))}
        show_metrics({"metrics": metrics}, "on the text", json)
        return
    evaluation = evaluate_file(loaded, source, text, pair, label, options.parse_names(header), max_bad_rows)
    show_metrics(asdict(evaluation), f"on {evaluation.examples:,} examples", json)
    if not json:
        show_errors(evaluation)


def evaluate_translator(
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
        raise BadParameter("name both columns of a table of pairs, or none", param_hint="--text, --label")
    if target is not None:
        read = read_parallel(source, str(target), max_bad_rows)
    else:
        read = read_pairs(source, None if None in columns else columns, max_bad_rows)  # type: ignore[arg-type]
    bleu = measure(translator, read.examples, translator.translate_settings(beam=beam))
    bleu.stats.tell()
    content = {"pairs": len(read.examples), "bad": read.bad, "metrics": dict(bleu.metrics), "signature": bleu.signature}
    show_metrics(content, f"on {len(read.examples):,} pairs", json)
    if not json:
        print(f"sacreBLEU {bleu.signature}")


def show_metrics(content: dict[str, Any], title: str, json: bool) -> None:
    """All of an evaluation as JSON, or its metrics as a table."""
    if json:
        print_json(content)
        return
    show_skipped(content.get("bad", 0))
    print_table((title, "value"), list(content["metrics"].items()))


def show_skipped(rows: int) -> None:
    """Rows that --max-bad-rows allowed to be malformed."""
    if rows:
        log_line(f"note: {rows} bad rows were left out")


def show_errors(evaluation: Evaluation) -> None:
    """What else a reader wants to know of a classifier or tagger."""
    from kinfolk.data.tagging import has_spans

    labels, confusion = evaluation.labels, evaluation.confusion
    if "recall" in evaluation.metrics and has_spans(labels):
        print("f1, precision and recall are those of whole entities")
    if confusion is not None and len(labels) <= 20:
        print("\nconfusion matrix (rows: true label, columns: predicted label)")
        print_table(("", *labels), [(name, *row) for name, row in zip(labels, confusion, strict=True)])
        unseen = evaluation.examples - sum(map(sum, confusion))
        if unseen:
            print(f"and {unseen:,} whose label is not in the training data")
    if evaluation.mistakes:
        print("\nmost confident errors")
        rows = [(item.probability, item.truth, item.guess, item.where, item.text[:80]) for item in evaluation.mistakes]
        print_table(("probability", "true", "predicted", "location", "text"), rows)


COMMANDS = (predict, evaluate)
