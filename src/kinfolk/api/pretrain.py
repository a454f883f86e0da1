"""Pre-training a language model on a user's own text: a vocabulary, a model and its perplexity out of lines of text.

In the output folder:

    run.json, log.jsonl, step-N   the run; the same call goes on with it after a crash
    model/                        the best model with its vocabulary, as a folder that `kinfolk.load` opens
    report.md, loss.png           how well it foresees the dev text, how it came about, what it writes
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kinfolk.api.experiment import Callbacks, Experiment, SeedResult, check_unfinished, content_hash
from kinfolk.api.generate import token_stream
from kinfolk.api.loaded import LanguageModel
from kinfolk.api.markdown import escaped, table
from kinfolk.api.report import Report, format_settings, run_rows, training_table
from kinfolk.checkpoints.text_model import pick_device
from kinfolk.data.formats import read_texts
from kinfolk.errors import DataError, InputError, check_choice, check_texts
from kinfolk.models.family import Model, count_parameters, init_model
from kinfolk.models.recurrent_lm import FAMILY, PRESETS, RecurrentLmConfig
from kinfolk.nn.recurrent import KINDS
from kinfolk.objectives.language_model import ContiguousStreams, NextToken, perplexity
from kinfolk.objectives.objective import Objective
from kinfolk.tasks.task import EvalResult
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import DEFAULT_KIND, DEFAULT_SIZE, train_tokenizer
from kinfolk.training.distributed import world
from kinfolk.training.settings import TrainSettings, refuse_two_lengths
from kinfolk.training.step import validate_hardware

USUAL: dict[str, Any] = {
    "epochs": 10.0,
    "learning_rate": 2e-3,
    "schedule": "cosine",
    "warmup": 0.05,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "evaluations": 10,
}
# One token ends a text and stands before the first one, so that a text is read as training read it.
ROLES = {**dict.fromkeys(("bos", "cls", "eos", "sep"), "</s>"), "pad": "<pad>", "unk": "<unk>"}
HELD = 20  # without a dev file, one line in so many at the end of the corpus is held out
EVAL_STREAMS = 16  # while training; the figure at the end is computed in one
SIZES = [name.removeprefix("recurrent-lm-") for name in PRESETS]
SAMPLES, SAMPLE_TOKENS = 5, 40  # generated for the report
METRICS_NOTE = (
    "Perplexity of the dev text: exp of the mean negative log-likelihood of a token, the ends of lines included; each "
    "token is scored once, given all before it. The best checkpoint was selected on the same text (read in several "
    "streams, so those figures are a little higher): the number is slightly optimistic."
)
USE = """```python
import kinfolk

model = kinfolk.load("this-folder")
print(model.generate("a text of yours"))
print(model.perplexity(["texts", "of yours"]))
```

`kinfolk finetune --model this-folder …` starts a classifier or a tagger from it."""
Source = str | Path | Sequence[str]


@dataclass(frozen=True)
class Corpus:
    """What there is to know before training; `str` is what is printed."""

    tokens: int
    dev_tokens: int
    vocabulary: str
    unknown: float  # share of dev tokens that the vocabulary does not have
    model: str
    parameters: int

    def __str__(self) -> str:
        return "\n".join(
            [
                f"tokens      {self.tokens:,} to train on, {self.dev_tokens:,} for dev",
                f"vocabulary  {self.vocabulary}, {self.unknown:.2%} of the dev tokens unknown",
                f"model       {self.model}, {self.parameters:,} parameters, trained from scratch",
            ]
        )


@dataclass(frozen=True)
class Pretrained:
    """What came of it: the folder, the metrics on the dev text, and what there is to say."""

    folder: Path
    metrics: Mapping[str, float]
    corpus: Corpus
    notes: Sequence[str]


def pretrain(
    kind: str,
    corpus: Source,
    output: str | Path,
    dev: Source | None = None,
    size: str = "small",
    changes: Mapping[str, Any] | None = None,
    vocabulary_size: int | None = None,
    vocabulary_kind: str | None = None,
    lowercase: bool | None = None,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    bptt_length: int = 35,
    column: str | None = None,
    device: str = "auto",
    callbacks: Callbacks | None = None,
    **training: Any,
) -> Pretrained:
    """Learn a vocabulary and a recurrent language model from lines of text; keep what foresees the dev text best.

    `kind` is lstm, gru, rnn or gru_reset_before. `corpus` and `dev` are files of lines (or tables with a `column`), or
    lists of texts; without `dev` the last twentieth of the lines is held out. `size` is small, medium or large,
    `changes` are settings that differ from it, as in `{"width": 320, "tied": True}`. `vocabulary_size` is the number of
    tokens (8,000 or as many as the corpus has; `vocabulary_kind`: bpe, unigram, byte_bpe, wordpiece, words), cased
    unless `lowercase` says otherwise; a `tokenizer` that was learned before may take their place. The corpus is read in
    `batch_size` streams, `bptt_length` tokens of each in a step, and their state is carried on. How to train is said by
    name, as in `minutes=45, learning_rate=1e-3` (all names: TrainSettings and OptimizerSettings). The same call on the
    same folder goes on where it stopped.
    """
    here, output, place = world(), Path(output), pick_device(device)
    check_choice("kind", kind, KINDS)
    check_choice("size", size, SIZES)
    callbacks = callbacks if callbacks is not None and here.is_main else Callbacks()
    refuse_two_lengths(training)
    if "batch_tokens" in training:
        raise InputError("batch_tokens has no meaning here: a step reads batch_size times bptt_length tokens")
    settings = TrainSettings().but(**(USUAL | training))
    if here.size > 1:
        raise InputError(
            "the state of a language model's streams is carried from step to step; start it without torchrun"
        )
    validate_hardware(settings.precision, settings.fsdp, place, here)
    check_unfinished(output)
    asked = (vocabulary_size, vocabulary_kind, lowercase)
    if tokenizer is not None and any(option is not None for option in asked):
        raise InputError(
            "the tokenizer that is given is used: leave out vocabulary_size, vocabulary_kind and lowercase"
        )
    learned, held = _texts(corpus, dev, column)
    words = tokenizer or _learn(learned, *asked)
    config = _config(kind, size, words, changes or {})
    streams = token_stream(words, learned, config.end_id), token_stream(words, held, config.end_id)
    experiment = LanguageModelExperiment(
        words, config, streams, ContiguousStreams(streams[0], batch_size, bptt_length), settings, output, place, kind
    )
    callbacks.before(experiment.summary, ())
    results = experiment.train_seeds(1, callbacks)
    result = results[settings.seed]
    notes = result.notes + experiment.keep(results, settings.seed, result.notes)
    return Pretrained(output, result.result.metrics, experiment.summary, notes)


def _learn(texts: list[str], size: int | None, kind: str | None, lowercase: bool | None) -> Tokenizer:
    """A vocabulary of the kind and size that is asked for, or of the usual kind and at most the usual size."""
    return train_tokenizer(
        kind or DEFAULT_KIND,
        texts,
        DEFAULT_SIZE if size is None else size,
        bool(lowercase),
        ROLES,
        at_most=size is None,
    )


def _texts(corpus: Source, dev: Source | None, column: str | None) -> tuple[list[str], list[str]]:
    if column is not None and not any(isinstance(given, str | Path) for given in (corpus, dev)):
        raise InputError("a column is that of a table; a list of texts has none")
    learned = _read(corpus, column)
    if dev is not None:
        held = _read(dev, column)
    else:
        count = max(1, len(learned) // HELD)
        learned, held = learned[:-count], learned[-count:]
    if not learned or not held:
        raise DataError("the corpus has too few lines that are not blank: bring more text, or a dev text of its own")
    return learned, held


def _read(source: Source, column: str | None) -> list[str]:
    texts = read_texts(source, column) if isinstance(source, str | Path) else check_texts(source)
    return [text for text in texts if text.strip()]


def _config(kind: str, size: str, words: Tokenizer, changes: Mapping[str, Any]) -> RecurrentLmConfig:
    preset = PRESETS[f"recurrent-lm-{size}"].config
    if words.eos_id is None or words.bos_id != words.eos_id:
        raise InputError("the tokenizer must have one token that begins and ends a text (bos and eos)")
    own: dict[str, Any] = {"kind": kind, "vocabulary_size": words.vocabulary_size, "end_id": words.eos_id}
    own["pad_id"] = words.eos_id if words.pad_id is None else words.pad_id
    for name in changes:
        if name in own:
            raise InputError(f'changes: "{name}" follows from the vocabulary or the kind')
    return RecurrentLmConfig.make(**(dataclasses.asdict(preset) | own | dict(changes)))


class LanguageModelExperiment(Experiment):
    """A recurrent language model on a stream of tokens, evaluated by its perplexity."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: RecurrentLmConfig,
        streams: tuple[np.ndarray, np.ndarray],
        batches: ContiguousStreams,
        settings: TrainSettings,
        folder: Path,
        device: torch.device,
        kind: str,
    ):
        """`streams` are the tokens to train on and those of the dev text."""
        self.tokenizer, self.config, self.streams, self.device = tokenizer, config, streams, device
        self.settings, self.folder, self.samples, self.plan = settings, folder, batches, batches
        self.batches = batches
        train, dev = streams
        unknown = 0.0 if tokenizer.unk_id is None else float((dev == tokenizer.unk_id).mean())
        vocabulary = f"{tokenizer.kind}, {tokenizer.vocabulary_size:,} tokens"
        parameters = count_parameters(FAMILY, config)
        self.summary = Corpus(len(train) - 1, len(dev) - 1, vocabulary, unknown, kind, parameters)

    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        model = init_model(FAMILY, self.config, seed).to(self.device)
        return model, [name for name, _ in model.named_parameters()]

    def objective(self, model: Model) -> Objective:
        return NextToken()

    def evaluate(self, model: Model) -> tuple[float, dict[str, float]]:
        """The lower the perplexity the better; in several streams, which is faster."""
        dev = self.streams[1]
        value = perplexity(model, dev, batch_size=max(1, min(EVAL_STREAMS, len(dev) // 2)))
        return -value, {"perplexity": value}

    def finish(self, model: Model, log: Sequence[dict[str, Any]]) -> tuple[EvalResult, None]:
        return EvalResult({"perplexity": perplexity(model, self.streams[1])}), None

    def location(self, example: int) -> str:
        return f"token {example:,} of the corpus"

    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        batches = {"batch_size": self.batches.batch_size, "bptt_length": self.batches.bptt_length}
        return {
            "task": {"kind": "next_token", **batches},
            "settings": settings.described(),
            "config": dataclasses.asdict(model.config),
            "tokenizer": content_hash(self.tokenizer.to_json()),
            "data": [hashlib.sha256(stream.tobytes()).hexdigest() for stream in self.streams],
        }

    def text_model(self, result: SeedResult) -> LanguageModel:
        return LanguageModel(result.model, self.tokenizer)

    def report(self, results: dict[int, SeedResult], best: int) -> Report:
        result, config, batches = results[best], self.config, self.batches
        language_model = self.text_model(result)
        settings = {name: value for name, value in format_settings(self.settings).items() if name != "batch size"}
        settings |= {"batch": f"{batches.batch_size:,} streams, {batches.bptt_length:,} tokens of each"}
        shape = f"{config.layers} layers, width {config.width:,}, {config.vocabulary_size:,} tokens"
        rows = run_rows({best: result.log}, best, result.seconds, settings, language_model.device)
        samples = language_model.generate([""] * SAMPLES, SAMPLE_TOKENS)
        return Report(
            name=self.folder.resolve().name,
            header="library_name: kinfolk\npipeline_tag: text-generation\ntags:\n- kinfolk\n",
            description=f"This {FAMILY.title} predicts the next token of a text. It was trained with kinfolk.",
            use=USE,
            metrics=f"{table(('on the dev text', 'value'), list(result.result.metrics.items()))}\n\n{METRICS_NOTE}",
            training=training_table([("model", shape), *rows]),
            data=str(self.summary),
            limits=["It knows only its corpus. The licence is not stated here: it depends on the data."],
            logs={best: result.log},
            details={"Samples": "\n".join(f"- {escaped(text, 1000)}" for text in samples)},
        )
