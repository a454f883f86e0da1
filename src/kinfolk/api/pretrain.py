"""Pre-training on a user's own text: a tokenizer, a model and its metrics out of documents.

What is learned, from which samples, is a matter of the objective (objectives/pretraining.py); experiment.py says what
is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kinfolk.api.experiment import Experiment, SeedResult, Trained, begin, content_hash, make_config
from kinfolk.api.fitting import Fitted, fit_pretraining
from kinfolk.api.loaded import Encoder, LanguageModel, load_encoder
from kinfolk.api.report import HEADER, USE, escaped, table
from kinfolk.checkpoints.folder import pick_device
from kinfolk.data.corpus import Corpus, EncodedCorpus, corpus_name, encode_corpus, read_documents, split_documents
from kinfolk.data.summary import Summary
from kinfolk.errors import InputError, check_choice, check_int
from kinfolk.files import read_object, write_json
from kinfolk.models.family import Model, count_parameters, init_model, weights_hash, with_dropout
from kinfolk.models.family import family as family_of
from kinfolk.objectives.pretraining import Pretraining, PretrainingTask, pretraining
from kinfolk.tasks.task import EvalResult
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import DEFAULT_SIZE, train_tokenizer
from kinfolk.training.distributed import world
from kinfolk.training.runs import Callbacks
from kinfolk.training.settings import TrainSettings, refuse_two_lengths

USUAL: dict[str, Any] = {"epochs": 10.0, "evaluations": 10}
HELD_OUT = 0.05  # of the documents, the last ones, where there is no dev text
SHORTEST = 8  # tokens of a sample
SAMPLES, SAMPLE_TOKENS = 5, 40  # generated for the report
FINETUNE = "`kinfolk finetune --model this-folder …` starts a classifier or a tagger from it."


def pretrain(
    kind: str,
    corpus: Corpus,
    output: str | Path,
    dev: Corpus | None = None,
    size: str | None = None,
    changes: Mapping[str, Any] | None = None,
    documents: str | None = None,
    vocabulary_size: int | None = None,
    vocabulary_kind: str | None = None,
    lowercase: bool | None = None,
    whole_numbers: bool | None = None,
    tokenizer: Tokenizer | None = None,
    init: str | Path | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    bptt_length: int | None = None,
    column: str | None = None,
    device: str = "auto",
    callbacks: Callbacks | None = None,
    **training: Any,
) -> Trained:
    """Learn a tokenizer and a model from documents; keep the checkpoint that predicts the dev text best.

    `kind` is bert (masked LM and next sentence), gpt2, lstm, gru, rnn or gru_reset_before (next token). `corpus` and
    `dev` are files, or lists of texts; `documents` says what a document is in a file ("blank-lines", "lines", "whole";
    by default blank lines where there are some, else lines), `column` where the texts of a table are. Without `dev` the
    last twentieth of the documents is held out. `size` names a preset, `changes` are settings that differ from it, as
    in `{"width": 320}`. A tokenizer of `vocabulary_size` tokens (8,000 or as many as the corpus has) is trained too,
    unless one is given as `tokenizer`; each digit is a piece, unless `whole_numbers` may be. `init` continues a
    checkpoint, with its tokenizer. `max_length` is the number of tokens of a sample; recurrent models read `batch_size`
    streams, `bptt_length` tokens of each in a step, and carry their state on. How to train is said by name, as in
    `minutes=45, learning_rate=1e-3` (all names: TrainSettings and OptimizerSettings). The same call on the same folder
    resumes its run.
    """
    record, folder, used = pretraining(kind), Path(output), pick_device(device)
    family = family_of(record.family)
    sizes = [name.removeprefix(f"{record.preset}-") for name in family.presets]
    refuse_two_lengths(training)
    for name in {"batch_tokens", "min_steps"} & training.keys():
        raise InputError(f"{name} has no meaning here: a batch has batch_size samples of one length")
    length = _length(record, {"max_length": max_length, "bptt_length": bptt_length})
    settings = TrainSettings.usual(USUAL | dict(record.settings), training)
    if world().size > 1 and family.config.carries_state:
        raise InputError("a language model's state is carried from step to step; start it without torchrun")
    session = begin(folder, settings, used, callbacks)
    wanted = {"vocabulary_size": vocabulary_size, "vocabulary_kind": vocabulary_kind}
    wanted |= {"lowercase": lowercase, "whole_numbers": whole_numbers}
    changed = size is not None or bool((changes or {}).keys() - {"dropout", "attention_dropout"})
    start = None if init is None else _start(init, record, changed, tokenizer)
    tokenizer = tokenizer if start is None else start.tokenizer
    if tokenizer is not None and any(value is not None for value in wanted.values()):
        raise InputError(f"the tokenizer that is given is used: leave out {', '.join(wanted)}")
    texts = read_documents(corpus, documents, column)
    if dev is None:
        sides = split_documents(texts, HELD_OUT, record.task.least_documents, corpus_name(corpus))
    else:
        sides = texts, read_documents(dev, documents, column)
    tokenizer = tokenizer or train_tokenizer(
        vocabulary_kind or record.tokenizer,
        sides[0],
        DEFAULT_SIZE if vocabulary_size is None else vocabulary_size,
        record.lowercase if lowercase is None else lowercase,
        dict(record.roles),
        at_most=vocabulary_size is None,
        whole_numbers=bool(whole_numbers),
    )
    if start is None:
        preset = family.presets[f"{record.preset}-{check_choice('size', size or record.size, sizes)}"].config
        config = _config(preset, tokenizer, record, length, changes or {})
    else:
        config = make_config(start.model.config, {}, changes or {})
    if length > config.context and not config.carries_state:
        if max_length is not None:
            raise InputError(f"max_length={max_length:,}: the checkpoint reads {config.context:,} tokens")
        length = config.context
    train, held_out = (encode_corpus(tokenizer, side, record.task.by_sentence) for side in sides)
    named = {"dropout": (changes or {}).get("dropout", (changes or {}).get("attention_dropout"))}
    named["learning_rate"] = training.get("learning_rate", training.get("optimization"))
    fitted = fit_pretraining(len(train.ids), count_parameters(family, config), start is not None, named)
    usual = config
    if "dropout" in fitted.reasons:
        config = with_dropout(config, fitted["dropout"])
    if "learning_rate" in fitted.reasons:
        settings = settings.but(learning_rate=fitted["learning_rate"])
    batch = record.batch_size if batch_size is None else check_int("batch_size", batch_size)
    task = record.task(train, held_out, tokenizer, config, batch, length, settings.seed)
    return PretrainingExperiment(kind, record, task, settings, folder, used, start, usual, fitted).run(session)


def _length(record: Pretraining, given: Mapping[str, int | None]) -> int:
    """Tokens of a sample, under the one name that means something for this kind."""
    for name, value in given.items():
        if value is not None and name != record.length_name:
            raise InputError(f"{name} has no meaning here: the length of a sample is {record.length_name}")
    value = given[record.length_name]
    least = 1 if record.length_name == "bptt_length" else SHORTEST
    return record.length if value is None else check_int(record.length_name, value, least)


def _start(init: str | Path, record: Pretraining, changed: bool, tokenizer: Tokenizer | None) -> Encoder:
    """The checkpoint to continue."""
    start = load_encoder(init, "cpu")
    if start.model.family.name != record.family:
        raise InputError(f"init: {init} is a {start.model.family.title}; a {family_of(record.family).title} is needed")
    for name, value in record.changes.items():
        own = getattr(start.model.config, name)
        if own != value:
            raise InputError(f"init: {init} has {name}={own}; {value} is needed")
    if changed:
        raise InputError("init: the checkpoint has its size and settings: leave out size and changes (--set)")
    if tokenizer is not None:
        raise InputError("init: the checkpoint has its tokenizer: leave out the other one")
    return start


def _config(preset: Any, tokenizer: Tokenizer, record: Pretraining, length: int, changes: Mapping[str, Any]) -> Any:
    """The preset with what follows from tokenizer and length, and with what the user wants otherwise."""
    own: dict[str, Any] = {"vocabulary_size": tokenizer.vocabulary_size, **record.changes}
    if hasattr(preset, "end_id"):
        if tokenizer.eos_id is None or tokenizer.bos_id != tokenizer.eos_id:
            raise InputError("the tokenizer must have one token that begins and ends a text (bos and eos)")
        own["end_id"] = tokenizer.eos_id
    own["pad_id"] = tokenizer.eos_id if tokenizer.pad_id is None else tokenizer.pad_id
    if not preset.carries_state:  # positions that no sample reaches would stay as random as they began
        own["positions"] = length
        if tokenizer.max_length is not None and length > tokenizer.max_length:
            limit = f"{tokenizer.max_length:,} tokens (model_max_length in its tokenizer_config.json)"
            raise InputError(f"{record.length_name}={length:,}: the tokenizer is for texts of {limit}")
    if isinstance(width := changes.get("width"), int) and hasattr(preset, "inner_width"):
        changes = {"inner_width": 4 * width, **changes}  # as in all presets
    return make_config(preset, own, changes)


class PretrainingExperiment(Experiment):
    """A task on a corpus, evaluated by its own metrics. The saved config is the `usual` one, for those who fine-tune on
    fewer texts."""

    def __init__(
        self,
        kind: str,
        record: Pretraining,
        task: PretrainingTask,
        settings: TrainSettings,
        folder: Path,
        device: torch.device,
        start: Encoder | None,
        usual: Any,
        fitted: Fitted,
    ):
        self.record, self.task, self.settings, self.folder, self.device = record, task, settings, folder, device
        self.start, self.samples, self.location, self.usual = start, task.samples, task.location, usual
        self.baselines = task.baselines()
        train, dev, tokenizer, config = task.train, task.dev, task.tokenizer, task.config
        self.rows = [
            ("model", f"{config.layers} layers, width {config.width:,}, {config.vocabulary_size:,} tokens"),
        ]
        self.identity = {
            "task": {"kind": kind, "batch_size": task.batch_size, record.length_name: task.length},
            "tokenizer": content_hash(tokenizer.to_json()),
            "data": [_corpus_hash(corpus) for corpus in (train, dev)],
            "start": None if start is None else weights_hash(start.model),
            "chosen": dict(fitted.reasons),
        }
        unknown = 0.0 if tokenizer.unk_id is None else float((dev.ids == tokenizer.unk_id).mean())
        vocabulary = f"{tokenizer.kind}, {tokenizer.vocabulary_size:,} tokens"
        model, initialized = self.init_model(settings.seed)
        self.initialized = [] if start is None else initialized
        parameters = sum(weight.numel() for weight in model.parameters())
        origin = "trained from scratch" if start is None else f"continued from {start.name}"
        self.summary = Summary(
            [
                ("documents", f"{len(train.documents) - 1:,}"),
                ("tokens", f"{len(train.ids):,} to train on, {len(dev.ids):,} for dev"),
                ("vocabulary", f"{vocabulary}, {unknown:.2%} of the dev tokens unknown"),
                ("model", f"{kind}, {parameters:,} parameters, {origin}"),
                *fitted.rows,
            ]
        )

    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        if self.start is None:
            model = init_model(family_of(self.record.family), self.task.config, seed, self.record.heads)
            return model.to(self.device), [name for name, _ in model.named_parameters()]
        model, initialized = _continued(self.start.model, self.task.config, self.record.heads, seed)
        return model.to(self.device), initialized

    def prepare(self, model: Model, folder: Path) -> None:
        """The checkpoint is evaluated before it is continued, once."""
        if self.start is not None:
            path, here = folder / "before.json", world()
            kept = here.broadcast(here.on_main(lambda: read_object(path) if path.exists() else None))
            self.before = kept or self.task.evaluate(model.eval(), thorough=True)
            model.train()
            here.on_main(lambda: write_json(path, dict(self.before)))

    def objective(self, model: Model) -> Any:
        return self.task.objective

    def evaluate(self, model: Model) -> tuple[float, dict[str, float]]:
        metrics = self.task.evaluate(model)
        return -next(iter(metrics.values())), metrics

    def evaluated_tokens(self) -> tuple[float, float]:
        return self.task.evaluated_tokens(), self.task.evaluated_tokens(thorough=True)

    def finish(self, model: Model, log: Sequence[dict[str, Any]]) -> tuple[EvalResult, None]:
        return EvalResult(self.task.evaluate(model, thorough=True)), None

    def text_model(self, model: Model, task: Any = None) -> Encoder:
        saved = LanguageModel if "next_token" in model.heads else Encoder
        model = model.with_heads(dict(model.heads.items()))
        model.config = self.usual
        return saved(model, self.task.tokenizer)

    def reported_settings(self) -> dict[str, str]:
        settings = {name: value for name, value in super().reported_settings().items() if name != "batch size"}
        return settings | {"batch": f"{self.task.batch_size:,} samples of {self.task.length:,} tokens"}

    def content(self, results: dict[int, SeedResult], best: int) -> dict[str, Any]:
        model, record = self.text_model(results[best].model), self.record
        header, metrics = comparison(results[best].result.metrics, self.before, self.baselines)
        texts = model.generate([""] * SAMPLES, SAMPLE_TOKENS, slide=True) if isinstance(model, LanguageModel) else []
        note = f"{self.task.note} The best checkpoint was selected on the same text: slightly optimistic."
        knows = "It knows only its corpus." if self.start is None else "It continued a checkpoint, which knew more."
        return {
            "header": HEADER.format(record.pipeline),
            "description": f"This {model.model.family.title} {record.effect}. It was trained with kinfolk.",
            "use": USE.format(record.example, FINETUNE),
            "metrics": f"{table(header, metrics)}\n\n{note}",
            "limits": [f"{knows} The licence is not stated here: it depends on the data."],
            "details": {"Samples": "\n".join(f"- {escaped(text, 1000)}" for text in texts)} if texts else {},
        }


def comparison(
    metrics: Mapping[str, float], before: Mapping[str, float], baselines: Mapping[str, float]
) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """A table of the metrics beside those of the checkpoint before, if one was continued, and those without a model."""
    columns = {"value": metrics} | ({"checkpoint before": before} if before else {}) | {"without a model": baselines}
    rows = [(name, *(column.get(name, "") for column in columns.values())) for name in metrics]
    return ("on the dev text", *columns), rows


def _continued(start: Model, config: Any, heads: Mapping[str, int], seed: int) -> tuple[Model, list[str]]:
    """A copy of a checkpoint's body under these heads, its own where it has them; the names of what is new."""
    model = init_model(start.family, config, seed, heads)
    return model, model.load_state_dict(start.state_dict(), strict=False).missing_keys


def _corpus_hash(corpus: EncodedCorpus) -> str:
    digest = hashlib.sha256()
    for array in (corpus.ids, corpus.sentences, corpus.documents):
        digest.update(array.tobytes())
    return digest.hexdigest()
