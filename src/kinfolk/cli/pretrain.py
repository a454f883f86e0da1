"""`kinfolk pretrain` and `generate`: from a text of one's own to a language model, and its use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kinfolk.cli.options import (
    AllowPickle,
    Average,
    Column,
    Device,
    Evaluations,
    Json,
    Minutes,
    Model,
    Patience,
    Precision,
    Rate,
    Schedule,
    Steps,
    Warmup,
    open_encoder,
)
from kinfolk.cli.output import log_line, print_json, print_table
from kinfolk.cli.progress import training
from kinfolk.cli.translate import parse_changes

PRETRAIN_EXAMPLE = """\
Examples:
  kinfolk pretrain lstm --corpus articles.txt --minutes 45 --output language-model
  kinfolk finetune --model language-model --train reviews.csv --output stars
"""
GENERATE_EXAMPLE = """\
Example:
  kinfolk generate --model language-model "Once upon a time" --tokens 40 --seed 1
"""


def pretrain(
    kind: Annotated[str, typer.Argument(help="lstm, gru, rnn, or deck_gru (the lectures' form of the GRU).")],
    corpus: Annotated[Path, typer.Option("--corpus", help="Lines of text, or a table with a column of texts.")],
    output: Annotated[Path, typer.Option("--output", help="Folder of the run; the same command goes on with it.")],
    dev: Annotated[
        Path | None, typer.Option("--dev", help="Held-out text; without it the last twentieth of the lines.")
    ] = None,
    size: Annotated[str, typer.Option("--size", help="small, medium or large.")] = "small",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Settings of the model that differ from its size: width=320,tied=true."),
    ] = None,
    vocabulary_size: Annotated[
        int | None, typer.Option("--vocabulary-size", help="Number of tokens to learn.  [default: 8000]")
    ] = None,
    vocabulary_kind: Annotated[
        str | None,
        typer.Option("--vocabulary-kind", help="bpe, unigram, byte_bpe, wordpiece or words.  [default: bpe]"),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Read everything in lower case.")] = False,
    lanes: Annotated[
        int, typer.Option("--batch-size", help="Places of the text that are read side by side.", min=1)
    ] = 32,
    length: Annotated[int, typer.Option("--bptt-length", help="Tokens of each lane in a step.", min=1)] = 35,
    epochs: Annotated[float | None, typer.Option("--epochs", help="Passes over the text.", show_default="10")] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    learning_rate: Rate = 2e-3,
    schedule: Schedule = "cosine",
    warmup: Warmup = 0.05,
    weight_averaging: Average = 0.0,
    patience: Patience = None,
    evaluations: Evaluations = 10,
    seed: Annotated[int, typer.Option("--seed", help="Dropout and first weights.")] = 0,
    precision: Precision = "fp32",
    column: Column = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Train a language model on your own text; a vocabulary is learned on the way.

    After a crash the same command goes on. The model can write (generate), be measured (evaluate), and start a
    classifier or tagger (finetune) or a decoder (train-translator --init-decoder).
    """
    from kinfolk.api.pretrain import PretrainCallbacks
    from kinfolk.api.pretrain import pretrain as train_it

    named: dict[str, Any] = {"minutes": minutes, "steps": steps, "learning_rate": learning_rate, "seed": seed}
    named |= {} if epochs is None else {"epochs": epochs}
    named |= {"schedule": schedule, "warmup": warmup, "weight_averaging": weight_averaging}
    named |= {"patience": patience, "evaluations": evaluations, "precision": precision}
    with training() as step:
        found = train_it(
            kind,
            corpus,
            output,
            dev,
            size=size,
            changes=parse_changes(changes),
            vocabulary_size=vocabulary_size,
            vocabulary_kind=vocabulary_kind,
            lowercase=lowercase,
            lanes=lanes,
            length=length,
            column=column,
            device=device,
            callbacks=PretrainCallbacks(lambda corpus: log_line(str(corpus)), step),
            **named,
        )
    for note in found.notes:
        log_line(f"note: {note}")
    if json:
        print_json({"folder": str(found.folder), "metrics": dict(found.metrics)})
        return
    print_table(("on the dev text", "value"), list(found.metrics.items()))
    log_line(f"the model is in {found.folder / 'model'}, how it came about in {found.folder / 'report.md'}")


def generate(
    model: Model,
    prompts: Annotated[list[str] | None, typer.Argument(help="What the texts begin with; nothing by default.")] = None,
    tokens: Annotated[int, typer.Option("--tokens", help="Most tokens to write.", min=1)] = 50,
    temperature: Annotated[float, typer.Option("--temperature", help="Below 1 less daring.")] = 1.0,
    top_k: Annotated[int | None, typer.Option("--top-k", help="Draw from so many likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Draw from so much of the probability.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed draws the same text.")] = 0,
    beam: Annotated[
        int | None, typer.Option("--beam", help="Draw nothing, seek the likeliest text; 1 is greedy.", min=1)
    ] = None,
    json: Json = False,
    device: Device = "auto",
    allow_pickle: AllowPickle = False,
) -> None:
    """Write on from prompts with a language model."""
    encoder = open_encoder(model, device, allow_pickle)
    texts = encoder.generate(prompts or [""], tokens, temperature, top_k, top_p, seed, beam)
    if json:
        print_json(texts)
        return
    for text in texts:
        print(text)
