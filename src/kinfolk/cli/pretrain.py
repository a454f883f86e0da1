"""`kinfolk pretrain`: from a text to a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from kinfolk.cli.options import Column, Device, Json, ModelSettings, VocabularyKind, VocabularySize, parse_settings
from kinfolk.cli.training import PRETRAINED_ONLY, run_training, show_result, training_options


@training_options(
    exclude=(*PRETRAINED_ONLY, "batch_tokens", "gradient_accumulation", "fsdp"),
    epochs=10.0,
    learning_rate=2e-3,
    schedule="cosine",
    warmup=0.05,
    weight_decay=0.0,
    evaluations=10,
)
def pretrain(
    *,
    kind: Annotated[str, Argument(help="lstm, gru, rnn, or gru_reset_before (before the product, Cho 2014).")],
    corpus: Annotated[Path, Option(help="Lines of text, or a table with a column of texts.")],
    output: Annotated[Path, Option(help="Folder of the run; the same command resumes it.")],
    dev: Annotated[
        Path | None, Option(help="Dev text; without it the last twentieth of the lines is held out.")
    ] = None,
    size: Annotated[str, Option(help="small, medium or large.")] = "small",
    settings: ModelSettings = None,
    vocabulary_size: VocabularySize = None,
    vocabulary_kind: VocabularyKind = None,
    lowercase: Annotated[bool, Option("--lowercase", help="Lower-case the text.")] = False,
    batch_size: Annotated[int, Option(help="Contiguous streams that the text is cut into.", min=1)] = 32,
    bptt_length: Annotated[
        int, Option(help="Truncated back-propagation through time: tokens per stream in a step.", min=1)
    ] = 35,
    training: dict[str, Any],
    column: Column = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Pre-train a recurrent language model on your own text; its vocabulary is trained too.

    The same command resumes after a crash. The model can generate, be evaluated, and initialise a classifier or tagger
    (finetune) or a decoder (train-translator --init-decoder).

    Examples:
      kinfolk pretrain lstm --corpus articles.txt --minutes 45 --output language-model
      kinfolk finetune --model language-model --train reviews.csv --output stars
    """
    from kinfolk.api.experiment import Callbacks
    from kinfolk.api.pretrain import pretrain as train_model

    result = run_training(
        train_model,
        Callbacks,
        kind=kind,
        corpus=corpus,
        output=output,
        dev=dev,
        size=size,
        changes=parse_settings(settings),
        vocabulary_size=vocabulary_size,
        vocabulary_kind=vocabulary_kind,
        lowercase=lowercase,
        batch_size=batch_size,
        bptt_length=bptt_length,
        column=column,
        device=device,
        **training,
    )
    if result is not None:
        show_result(result, json, ("on the dev text", "value"), list(result.metrics.items()))


COMMANDS = (pretrain,)
