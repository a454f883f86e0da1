"""`kinfolk predict` and `kinfolk evaluate`: a trained model on a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Option

from kinfolk.cli import options
from kinfolk.cli.output import log_line, print_json, print_table, working


@options.group("columns", {name: kind for name, kind in options.COLUMNS.items() if name != "label"})
def predict(
    model: options.ModelName,
    source: Annotated[
        str, Option("--input", help="Table, lines of text, CoNLL file, seq.in or SQuAD json; - reads lines from stdin.")
    ],
    output: Annotated[Path, Option(help="A .csv, .tsv, .jsonl or .parquet file; CoNLL stays CoNLL, SQuAD also .json.")],
    columns: dict[str, Any],
    top: Annotated[int, Option(help="Number of answers to each question, in a .jsonl file.", min=1)] = 1,
    max_bad_rows: options.MaxBadRows = 0,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Write a trained model's predictions beside every row of a file: class, number, tags, answer or choice.

    Example:
      kinfolk predict --model stars --input new.csv --output predicted.csv
    """
    from kinfolk.api.predict_file import predict_file
    from kinfolk.checkpoints.folder import open_encoder
    from kinfolk.tasks.task import Columns

    encoder = open_encoder(model, device, allow_pickle)
    with working(None) as work:
        done = predict_file(encoder, source, output, Columns(**columns), max_bad_rows, work.add, top)
    show_skipped(done.bad)
    work.close("rows")


@options.group("columns", options.COLUMNS)
def evaluate(
    model: options.ModelName,
    source: Annotated[
        Path, Option("--input", help="Labelled file; pairs for a translator, text for a language model.")
    ],
    columns: dict[str, Any],
    target: Annotated[Path | None, Option(help="Translator: the targets, where --input has sources only.")] = None,
    beam: Annotated[int | None, Option(help="Translator: beam size.", min=1)] = None,
    documents: Annotated[str | None, Option(help=f"Language model: {options.DOCUMENTS}")] = None,
    max_bad_rows: options.MaxBadRows = 0,
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Evaluate a trained model on a labelled file: metrics, confusion matrix, most confident errors.

    A translator is evaluated on pairs, by BLEU; a language model on documents, as `pretrain` reads them, by perplexity.

    Example:
      kinfolk evaluate --model stars --input test.csv
    """
    from kinfolk.api.evaluate import evaluate as evaluate_file
    from kinfolk.api.loaded import LanguageModel, Translator, load
    from kinfolk.data.corpus import read_documents

    loaded = load(model, device, allow_pickle)
    if not isinstance(loaded, LanguageModel):
        options.refuse(("--documents", documents), reason="without a language model")
    if isinstance(loaded, Translator):
        refuse(columns, "pair", "header", reason="beside a translator")
        evaluate_translator(loaded, read_translations(source, target, columns, max_bad_rows), beam, json)
        return
    options.refuse(("--target", target), ("--beam", beam), reason="without a translator")
    if isinstance(loaded, LanguageModel):
        refuse(columns, "pair", "label", "header", reason="beside a language model")
        options.refuse(("--max-bad-rows", max_bad_rows), reason="beside a language model")
        perplexity = loaded.perplexity(read_documents(source, documents, columns.get("text")))
        show_metrics({"metrics": {"perplexity": perplexity}}, "on the text", json)
        return
    result = evaluate_file(loaded, source, **columns, max_bad_rows=max_bad_rows)
    show_metrics(asdict(result), f"on {result.examples:,} examples", json)
    if not json:
        show_evaluation(result)


def refuse(columns: dict[str, Any], *names: str, reason: str) -> None:
    options.refuse(*((f"--{name}", columns.get(name)) for name in names), reason=reason)


def read_translations(source: Path, target: Path | None, columns: dict[str, Any], max_bad_rows: int) -> Any:
    """The pairs of one table, or of two files of lines."""
    from kinfolk.data.tables import read_pairs, read_parallel

    if target is not None:
        refuse(columns, "text", "label", reason="beside --target")
        return read_parallel(source, target, max_bad_rows)
    if ("text" in columns) != ("label" in columns):
        raise BadParameter("name both columns of a table of pairs, or none", param_hint="--text, --label")
    return read_pairs(source, (columns["text"], columns["label"]) if columns else None, max_bad_rows)


def evaluate_translator(translator: Any, pairs: Any, beam: int | None, json: bool) -> None:
    from kinfolk.api.evaluate import evaluate_bleu

    bleu = evaluate_bleu(translator, pairs.examples, translator.translate_settings(beam=beam))
    bleu.stats.report()
    content = {"pairs": len(pairs.examples), "bad": pairs.bad, "metrics": dict(bleu.metrics)}
    show_metrics(content | {"signature": bleu.signature}, f"on {len(pairs.examples):,} pairs", json)
    if not json:
        print(f"sacreBLEU {bleu.signature}")


def show_evaluation(result: Any) -> None:
    """What a table of metrics does not say: how they count, the confusion matrix, the most confident errors."""
    from kinfolk.data.tagging import has_spans

    if "recall" in result.metrics and has_spans(result.labels):
        print("f1, precision and recall are those of whole entities")
    if result.confusion is not None and len(result.labels) <= 20:
        print("\nconfusion matrix (rows: true label, columns: predicted label)")
        rows = [(name, *row) for name, row in zip(result.labels, result.confusion, strict=True)]
        print_table(("", *result.labels), rows)
        unseen = result.examples - sum(map(sum, result.confusion))
        if unseen:
            print(f"and {unseen:,} whose label is not in the training data")
    if result.mistakes:
        print("\nmost confident errors")
        errors = [(item.probability, item.truth, item.guess, item.location, item.text[:80]) for item in result.mistakes]
        print_table(("probability", "true", "predicted", "location", "text"), errors)


def show_metrics(content: dict[str, Any], title: str, json: bool) -> None:
    """All of an evaluation as JSON, or its metrics as a table."""
    if json:
        print_json(content)
    else:
        show_skipped(content.get("bad", 0))
        print_table((title, "value"), list(content["metrics"].items()))


def show_skipped(rows: int) -> None:
    """Rows that --max-bad-rows allowed to be malformed."""
    if rows:
        log_line(f"note: {rows} bad rows were left out")
