"""Pre-training a language model on a user's own text: a vocabulary, a model and its perplexity out of lines of text.

In the output folder:

    run.json, log.jsonl, step-N   the run; the same call goes on with it after a crash
    model/                        the best model with its vocabulary, as a folder that `kinfolk.load` opens
    report.md, loss.png           how well it foresees the dev text, how it came about, what it writes
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kinfolk.api.experiment import content_hash, refuse_finished
from kinfolk.api.generate import token_stream
from kinfolk.api.loaded import LanguageModel
from kinfolk.api.pretrain_report import PretrainSummary, pretrain_card, write_pretrain_report
from kinfolk.checkpoints.text_model import pick_device
from kinfolk.data.formats import read_texts
from kinfolk.errors import DataError, InputError, check_choice, check_texts
from kinfolk.models.family import Model, init_model
from kinfolk.models.recurrent_lm import FAMILY, PRESETS, RecurrentLmConfig
from kinfolk.nn.recurrent import KINDS
from kinfolk.objectives.language_model import ContiguousStreams, NextToken, perplexity
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import DEFAULT_KIND, DEFAULT_SIZE, train_tokenizer
from kinfolk.training.distributed import world
from kinfolk.training.runs import Run
from kinfolk.training.settings import TrainSettings, refuse_two_lengths
from kinfolk.training.step import validate_hardware
from kinfolk.training.trainer import Progress, Trained, Trainer

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


@dataclass(frozen=True)
class PretrainCallbacks:
    """Called with what there is to know before training, and after each step with the seed."""

    before: Callable[[Corpus], None] = lambda corpus: None
    step: Callable[[int, Progress], None] = lambda seed, progress: None


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
    callbacks: PretrainCallbacks | None = None,
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
    callbacks = callbacks if callbacks is not None and here.is_main else PretrainCallbacks()
    refuse_two_lengths(training)
    if "batch_tokens" in training:
        raise InputError("batch_tokens has no meaning here: a step reads batch_size times bptt_length tokens")
    settings = TrainSettings().but(**(USUAL | training))
    if here.size > 1:
        raise InputError(
            "the state of a language model's streams is carried from step to step; start it without torchrun"
        )
    validate_hardware(settings.precision, settings.fsdp, place, here)
    refuse_finished(output)
    asked = (vocabulary_size, vocabulary_kind, lowercase)
    if tokenizer is not None and any(option is not None for option in asked):
        raise InputError(
            "the tokenizer that is given is used: leave out vocabulary_size, vocabulary_kind and lowercase"
        )
    learned, held = _texts(corpus, dev, column)
    words = tokenizer or _learn(learned, *asked)
    config = _config(kind, size, words, changes or {})
    streams = [token_stream(words, side, config.end_id) for side in (learned, held)]
    model = init_model(FAMILY, config, settings.seed).to(place)
    found = _surveyed(streams, words, kind, sum(weight.numel() for weight in model.parameters()))
    work = LanguageRun(model, words, streams, ContiguousStreams(streams[0], batch_size, bptt_length), settings)
    callbacks.before(found)
    trained = work.train(output, callbacks.step)
    metrics, notes = {"perplexity": perplexity(model, streams[1])}, list(trained.notes)
    encoder = LanguageModel(model, words)

    def keep() -> list[str]:
        account = PretrainSummary(output.resolve().name, encoder, str(found), metrics, settings, work.batches, trained)
        told = write_pretrain_report(output, account, notes)
        encoder.save(output / "model", pretrain_card(account))
        Run(output).drop_checkpoints()
        return told

    notes += here.on_main(keep) or []
    return Pretrained(output, metrics, found, notes)


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


def _surveyed(streams: Sequence[np.ndarray], words: Tokenizer, kind: str, parameters: int) -> Corpus:
    learned, held = streams
    unknown = 0.0 if words.unk_id is None else float((held == words.unk_id).mean())
    spelled = f"{words.kind}, {words.vocabulary_size:,} tokens"
    return Corpus(len(learned) - 1, len(held) - 1, spelled, unknown, kind, parameters)


@dataclass(frozen=True)
class LanguageRun:
    """One run of training a language model on a stream of tokens."""

    model: Model
    tokenizer: Tokenizer
    streams: Sequence[np.ndarray]  # to learn from, and to be judged by
    batches: ContiguousStreams
    settings: TrainSettings

    def train(self, folder: Path, watch: Callable[[int, Progress], None]) -> Trained:
        """Run to the end, or on from where it stopped."""
        run = Run.open(folder, self.description())
        try:
            step = partial(watch, self.settings.seed)
            where = "token {:,} of the corpus".format
            trainer = Trainer(
                self.model,
                NextToken(),
                self.batches,
                self.settings,
                run,
                self.evaluate,
                step,
                where,
                plan=self.batches,
            )
            return trainer.complete()
        finally:
            run.close()

    def evaluate(self, model: Model) -> tuple[float, dict[str, float]]:
        """By perplexity: the lower the better."""
        held = self.streams[1]
        found = perplexity(model, held, batch_size=max(1, min(EVAL_STREAMS, len(held) // 2)))
        return -found, {"perplexity": found}

    def description(self) -> dict[str, Any]:
        """All that the weights depend on: a run goes on only if this is the same."""
        return {
            "task": {
                "kind": "next_token",
                "batch_size": self.batches.batch_size,
                "bptt_length": self.batches.bptt_length,
            },
            "settings": self.settings.described(),
            "config": dataclasses.asdict(self.model.config),
            "tokenizer": content_hash(self.tokenizer.to_json()),
            "data": [hashlib.sha256(stream.tobytes()).hexdigest() for stream in self.streams],
        }
