"""`kinfolk finetune`, `pretrain` and `train-translator`: from data to a trained model.

All of them resume after a crash when the same command is run again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from kinfolk.cli import options
from kinfolk.cli.options import PRETRAINED_ONLY, option, parsed, training_options
from kinfolk.cli.output import run_training, show_result
from kinfolk.objectives.kinds import FILES

TASK = "classify, multilabel, regress, tag (token classification), answer (extractive question answering) or choose "
FROZEN = (
    "Freeze the encoder and train this head on its cached features: linear, logistic, bilstm, linear-crf or bilstm-crf."
    " Defaults are then 6 epochs, batches of 16, learning rate 4e-3, cosine."
)
HEAD_LAYERS = "With --frozen: mix (learned weights, the default) or what embed takes."
FINETUNING = {
    "dev": option(Path, "Dev set; without it a tenth of --train is held out."),
    "task": option(str, TASK + "(multiple choice); guessed from the data."),
    **options.COLUMNS,
    "class_weights": parsed(options.parse_weights, "balanced, or by name: good=1,bad=3."),
    "crf": option(bool, "Token classification: add a CRF layer.", "--crf"),
    "dropout": option(float, "Instead of the model's own; 0 often suits regress."),
    **options.WINDOWS,
    "frozen": option(str, FROZEN),
    "layers": parsed(options.parse_layers, HEAD_LAYERS),
    "seeds": option(int, "Number of seeds to train with; the best run is kept.  [default: 1]"),
    "tensorboard": option(bool, "Write OUTPUT/tensorboard as well.", "--tensorboard"),
}


@training_options(
    FINETUNING,
    epochs="3.0; more where examples are few",
    learning_rate="5e-5; of models below width 512 1e-4",
    min_steps="150; 0 beside --batch-size or --batch-tokens",
)
def finetune(
    model: options.ModelName,
    train: Annotated[Path, Option(help="Labelled table, CoNLL file, folder with seq.in and seq.out, or SQuAD json.")],
    output: options.RunFolder,
    training: dict[str, Any],
    max_bad_rows: options.MaxBadRows = 0,
    json: options.Json = False,
    device: options.Device = "auto",
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Fine-tune a model on labelled texts, tagged words, questions or choices. The same command resumes after a crash.

    Example:
      kinfolk finetune --model demo --train reviews.csv --output stars --minutes 10
    """
    from kinfolk.api.finetune import finetune as train_model

    more: dict[str, Any] = {"max_bad_rows": max_bad_rows, "device": device, "allow_pickle": allow_pickle}
    result = run_training(train_model, model=model, train=train, output=output, **more, **training)
    if result is None:
        return
    more = {"by_seed": {str(seed): dict(metrics) for seed, metrics in result.by_seed.items()}}
    if len(result.by_seed) == 1:
        show_result(result, json, ("on the dev set", "value"), list(result.metrics.items()), **more)
        return
    summary = result.summary()  # `metrics` are those of the best seed
    more["mean"] = {name: mean for name, (mean, _) in summary.items()}
    more["deviation"] = {name: deviation for name, (_, deviation) in summary.items()}
    header_row = f"on the dev set, {len(result.by_seed)} seeds", "mean", "deviation"
    show_result(result, json, header_row, [(name, *values) for name, values in summary.items()], **more)


OWN = "of the kind"  # a default that depends on what is trained
BPTT = "Recurrent models: tokens per stream in a step (truncated BPTT).  [default: 35]"
PRETRAINING = {
    "dev": option(Path, "Dev text; without it the last twentieth of the documents is held out."),
    "documents": option(str, options.DOCUMENTS),
    "init": option(str, "Continue this checkpoint, with its tokenizer."),
    "size": option(str, "Of the kind: tiny, mini, small …; recurrent: small, medium, large."),
    **options.VOCABULARY,
    "lowercase": option(bool, "Lower-case the text.  [default: bert does]", "--lowercase/--cased"),
    "batch_size": option(int, "Samples, or contiguous streams, per batch.  [default: 16 or 32]", min=1),
    "max_length": option(int, "Tokens per sample; a new model's context.  [default: 128]", min=1),
    "bptt_length": option(int, BPTT, min=1),
}
NOT_HERE = (*PRETRAINED_ONLY, "batch_tokens", "min_steps", "gradient_accumulation", "fsdp")


@training_options(
    PRETRAINING,
    NOT_HERE,
    epochs=10.0,
    learning_rate=f"{OWN}; with --init 1e-4",
    schedule=OWN,
    warmup=OWN,
    weight_decay=OWN,
    optimizer=OWN,
    evaluations=10,
)
def pretrain(
    kind: Annotated[str, Argument(help=f"{', '.join(FILES)}.")],
    corpus: Annotated[Path, Option(help="Text, or a table with a column of texts.")],
    output: options.RunFolder,
    training: dict[str, Any],
    more: Annotated[list[Path] | None, Argument(metavar="[FILE]...", help="More files of the corpus.")] = None,
    settings: options.ModelSettings = None,
    column: options.Column = None,
    json: options.Json = False,
    device: options.Device = "auto",
) -> None:
    """Pre-train a model on your own text; its tokenizer is trained too, or comes with the checkpoint to continue.

    bert: masked LM and next sentence; the others: next token (gru_reset_before: Cho 2014). The same command
    resumes after a crash. The model initialises a classifier or tagger (finetune); a language model generates, and can
    start a translator's decoder.

    Examples:
      kinfolk pretrain bert --corpus articles.txt --minutes 45 --output my-bert
      kinfolk pretrain gpt2 --corpus plays.txt --minutes 20 --output my-gpt2
      kinfolk pretrain lstm --corpus articles.txt --minutes 45 --output language-model
      kinfolk finetune --model language-model --train reviews.csv --output stars
    """
    from kinfolk.api.pretrain import comparison
    from kinfolk.api.pretrain import pretrain as train_model

    data = {"kind": kind, "corpus": [corpus, *(more or [])], "output": output, "column": column, "device": device}
    result = run_training(train_model, **data, changes=options.parse_settings(settings), **training)
    if result is not None:
        header, rows = comparison(result.metrics, result.before, result.baselines)
        show_result(result, json, header, rows, before=dict(result.before), baselines=dict(result.baselines))


TRANSLATOR = {
    "pairs": option(Path, "A .tsv with source TAB target, or a table with two columns."),
    "source": option(Path, "Instead: sources, one a line."),
    "target": option(Path, "And their targets, one a line."),
    "dev": option(Path, "Dev pairs; without them 2,000 or a tenth are held out."),
    "dev_source": option(Path, "Instead: dev sources."),
    "dev_target": option(Path, "And their targets."),
    "columns": parsed(options.parse_names, "Columns of source and target in a table with a header: en,fr."),
    "kind": option(str, "transformer, attention or seq2seq.  [default: transformer]"),
    "size": option(str, "tiny, small, base, big (transformer).  [default: suits the pairs]"),
    **options.VOCABULARY,
    "separate_vocabularies": option(bool, "One for each side.", "--separate-vocabularies"),
    "init_decoder": option(Path, "Language model to initialise a recurrent decoder from."),
    "label_smoothing": option(float, "0 = none.  [default: 0.1; for characters 0]"),
    "scheduled_sampling": option(float, "Maximum probability of reading its own prediction.  [default: 0.0]"),
    "sampling_schedule": option(str, "How that rises: linear, sigmoid or constant.  [default: linear]"),
    "sampling_mode": option(str, "two-pass, or step-wise (token by token).  [default: two-pass]"),
}
TRANSLATOR_DEFAULTS: dict[str, Any] = {
    "epochs": 20.0,
    "learning_rate": "1e-3; tiny recurrent models 2e-3",
    "batch_size": 512,
    "batch_tokens": 4096,
    "min_steps": "2000; 0 beside --batch-size or --batch-tokens",
    "evaluations": 10,
}
TRANSLATOR_DEFAULTS |= {"schedule": "inverse_sqrt", "weight_decay": 0.0, "weight_averaging": 0.1}


@training_options(TRANSLATOR, PRETRAINED_ONLY, **TRANSLATOR_DEFAULTS)
def train_translator(
    output: options.RunFolder,
    training: dict[str, Any],
    settings: options.ModelSettings = None,
    max_bad_rows: options.MaxBadRows = 0,
    json: options.Json = False,
    device: options.Device = "auto",
) -> None:
    """Train a text-to-text model from pairs; its vocabulary is trained too. The same command resumes after a crash.

    Examples:
      kinfolk train-translator --pairs train.tsv --minutes 45 --output english-french
      kinfolk train-translator --source train.en --target train.fr --kind attention --output run
    """
    from kinfolk.api.train_translator import train_translator as train_model

    dev = training.pop("dev_source", None), training.pop("dev_target", None)
    if dev != (None, None):
        if None in dev:
            raise BadParameter("are given together, or none of them", param_hint="--dev-source, --dev-target")
        options.refuse(("--dev", training.get("dev")), reason="beside --dev-source")
        training["dev"] = dev
    joint = False if training.pop("separate_vocabularies", False) else None
    more: dict[str, Any] = {"max_bad_rows": max_bad_rows, "device": device, "joint": joint}
    result = run_training(train_model, output=output, changes=options.parse_settings(settings), **more, **training)
    if result is None:
        return
    title, rows = result.result.table()
    facts = {"measured": len(result.result.samples), "signature": result.result.signature}
    show_result(result, json, (title, "value"), rows if result.metrics else [], **facts)
    if result.metrics and not json:
        print(f"sacreBLEU {result.result.signature}")
