"""`kinfolk finetune`: from labelled data to a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from kinfolk.cli import options
from kinfolk.cli.training import run_training, show_result, training_options


@training_options()
def finetune(
    *,
    model: options.Model,
    train: Annotated[Path, Option(help="Labelled table, CoNLL file, folder with seq.in and seq.out, or SQuAD json.")],
    output: Annotated[Path, Option(help="Folder of the run; the same command resumes it.")],
    dev: Annotated[Path | None, Option(help="Dev set; without it a tenth of --train is held out.")] = None,
    task: Annotated[
        str | None,
        Option(
            help="classify, multilabel, regress, tag (token classification), answer (extractive question answering) "
            "or choose (multiple choice); guessed from the data."
        ),
    ] = None,
    text: options.TextColumn = None,
    pair: options.PairColumn = None,
    label: options.LabelColumn = None,
    header: options.Header = None,
    class_weights: Annotated[str | None, Option(help="balanced, or by name: good=1,bad=3.")] = None,
    crf: Annotated[bool, Option("--crf", help="Token classification: add a CRF layer.")] = False,
    dropout: Annotated[float | None, Option(help="Instead of the model's own; 0 often suits regress.")] = None,
    window: options.Window = None,
    stride: options.Stride = None,
    frozen: Annotated[
        str | None,
        Option(
            help="Freeze the encoder and train this head on its cached features: linear, logistic, bilstm, linear-crf "
            "or bilstm-crf. Defaults are then 6 epochs, batches of 16, learning rate 4e-3, cosine."
        ),
    ] = None,
    layers: Annotated[
        str | None, Option(help="With --frozen: mix (learned weights, the default) or what embed takes.")
    ] = None,
    training: dict[str, Any],
    seeds: Annotated[int, Option(help="Number of seeds to train with; the best run is kept.")] = 1,
    tensorboard: Annotated[bool, Option("--tensorboard", help="Write OUTPUT/tensorboard as well.")] = False,
    max_bad_rows: options.MaxBadRows = 0,
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Fine-tune a model on labelled texts, tagged words, questions or choices. The same command resumes after a crash.

    Example:
      kinfolk finetune --model demo --train reviews.csv --output stars --minutes 10
    """
    from kinfolk.api.experiment import Callbacks
    from kinfolk.api.finetune import finetune as train_model

    data = {"train": train, "dev": dev, "task": task, "text": text, "pair": pair, "label": label}
    result = run_training(
        train_model,
        Callbacks,
        model=model,
        output=output,
        **data,
        header=options.parse_names(header),
        class_weights=options.parse_weights(class_weights),
        crf=crf,
        frozen=frozen,
        layers=options.parse_layers(layers),
        dropout=dropout,
        window=window,
        stride=stride,
        max_bad_rows=max_bad_rows,
        seeds=seeds,
        device=device,
        tensorboard=tensorboard,
        allow_pickle=allow_pickle,
        **training,
    )
    if result is None:
        return
    more: dict[str, Any] = {"by_seed": {str(seed): dict(metrics) for seed, metrics in result.by_seed.items()}}
    if len(result.by_seed) == 1:
        show_result(result, json, ("on the dev set", "value"), list(result.metrics.items()), **more)
        return
    summary = result.summary()  # `metrics` are those of the best seed
    more["mean"] = {name: mean for name, (mean, _) in summary.items()}
    more["deviation"] = {name: deviation for name, (_, deviation) in summary.items()}
    header_row = f"on the dev set, {len(result.by_seed)} seeds", "mean", "deviation"
    show_result(result, json, header_row, [(name, *values) for name, values in summary.items()], **more)


COMMANDS = (finetune,)
