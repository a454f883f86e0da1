"""Training a model that turns a text into a text: pairs in; a vocabulary, a model and its measure out.

Nothing in it is about languages: dates and the same dates in another form are pairs as well. experiment.py says what is
written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from kinfolk.api.experiment import Sides, Trained, begin, make_config, without_dev
from kinfolk.api.fitting import Fitted, fit_translator
from kinfolk.api.translation import DecoderStart, TranslationExperiment
from kinfolk.checkpoints.folder import pick_device
from kinfolk.data.examples import ReadResult, split_pairs
from kinfolk.data.tables import Pair, read_pairs, read_parallel, to_pairs
from kinfolk.errors import ConfigError, DataError, InputError, check_choice, check_number
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Family, all_families, preset
from kinfolk.models.seq2seq import require_shape
from kinfolk.objectives.translation import SamplingSchedule
from kinfolk.text.pairs import PairTokenizer
from kinfolk.text.train import DEFAULT_KIND, DEFAULT_SIZE, PAIR_ROLES, train_pair_tokenizer, train_tokenizer
from kinfolk.training.metrics import sacrebleu_metric
from kinfolk.training.runs import Callbacks
from kinfolk.training.settings import TrainSettings, refuse_two_lengths

# Vaswani et al. 2017, section 5.3, but for the length of the run and the share of it over which the rate rises.
USUAL: dict[str, Any] = {
    "epochs": 20.0,
    "batch_size": 512,
    "batch_tokens": 4096,  # of both sides
    "min_steps": 2_000,
    "learning_rate": 1e-3,
    "schedule": "inverse_sqrt",
    "warmup": 0.1,
    "betas": (0.9, 0.98),
    "epsilon": 1e-9,
    "weight_decay": 0.0,
    "weight_averaging": 0.1,
    "evaluations": 10,
}
USUAL_MODEL: dict[str, Any] = {  # where nothing else suits the pairs
    "size": "small",
    "label_smoothing": 0.1,
    "vocabulary_kind": DEFAULT_KIND,
    "vocabulary_size": DEFAULT_SIZE,
}
FEWEST_PAIRS = 10
PairData = str | Path | tuple[str | Path, str | Path] | Sequence[Pair] | Sequence[tuple[str, str]]


def train_translator(
    output: str | Path,
    pairs: PairData | None = None,
    source: str | Path | None = None,
    target: str | Path | None = None,
    dev: PairData | None = None,
    columns: Sequence[str] | None = None,
    kind: str = "transformer",
    size: str | None = None,
    changes: Mapping[str, Any] | None = None,
    vocabulary_size: int | None = None,
    vocabulary_kind: str | None = None,
    joint: bool | None = None,
    whole_numbers: bool | None = None,
    tokenizer: PairTokenizer | None = None,
    init_decoder: str | Path | nn.Module | None = None,
    label_smoothing: float | None = None,
    scheduled_sampling: float = 0.0,
    sampling_schedule: str = "linear",
    sampling_mode: str = "two-pass",
    max_bad_rows: int = 0,
    device: str = "auto",
    callbacks: Callbacks | None = None,
    **training: Any,
) -> Trained:
    """Learn a vocabulary and a model from pairs, and keep the model with the best BLEU on the dev set.

    The pairs stand in one file (`pairs`; a .tsv is source TAB target, `columns` names two columns of another table), in
    two files with a line for each (`source`, `target`), or in a list. `dev` is a file, a list, or a tuple of two files;
    without it 2,000 pairs or a tenth are held out, no source on both sides; an empty list holds nothing out, and the
    last weights are kept. `kind` is transformer, attention or seq2seq. `size`, the vocabulary, label smoothing, dropout
    and learning rate are chosen to suit the pairs where they are not given (fitting.py), unless `tokenizer` or
    `init_decoder` is; batches suit the time.
    `changes` are settings of the model that differ from its size, as in `{"dropout": 0.3}`. `vocabulary_size` is the
    number of pieces that both sides share, or with `joint=False` of each; `vocabulary_kind` is bpe, unigram, byte_bpe,
    wordpiece, characters or words; each digit is a piece, unless `whole_numbers` may be. A `tokenizer` that was learned
    before may take their place. `init_decoder` starts a recurrent decoder as a language model, whose shape it then has:
    the model's folder, whose vocabulary the target has then, while the source learns its own, or the model, with a
    tokenizer for both sides.
    With `scheduled_sampling` the model reads its own guesses instead of the true target while it learns: at most with
    that chance, which rises by `sampling_schedule` (linear, sigmoid, constant). They are guessed in a pass of their own
    that reads the truth (`sampling_mode="two-pass"`) or, by recurrent models, token by token ("step-wise"): there 1 and
    constant is free running.
    How to train is named, as in `minutes=45, learning_rate=5e-4` (all names: TrainSettings and OptimizerSettings).
    The same call on the same folder goes on where it stopped.
    """
    sacrebleu_metric()  # an extra: better missed now than after hours
    refuse_two_lengths(training)
    fixed = {"batch_size", "batch_tokens"} & training.keys()
    settings = TrainSettings.usual(USUAL | ({"min_steps": 0} if fixed else {}), training)
    output, used = Path(output), pick_device(device)
    sampling = SamplingSchedule(scheduled_sampling, sampling_schedule, sampling_mode)
    if label_smoothing is not None:
        check_number("label_smoothing", label_smoothing, 0, math.nextafter(1, 0), "a share from 0 up to 1", True)
    session = begin(output, settings, used, callbacks)
    family = _family(kind, size or USUAL_MODEL["size"])
    recurrent = hasattr(family.body, "differentiable_steps")
    if sampling.mode == "step-wise" and not recurrent:
        raise InputError(f'sampling_mode="step-wise" is for recurrent models; a {family.title} takes "two-pass"')
    start = None if init_decoder is None else DecoderStart.of(init_decoder, recurrent)
    _check_vocabulary(tokenizer, start, joint, (vocabulary_size, vocabulary_kind, joint, whole_numbers))
    sides = _read_sides(pairs, source, target, dev, columns, max_bad_rows, settings.seed)
    named: dict[str, Any] = {"vocabulary_kind": vocabulary_kind, "vocabulary_size": vocabulary_size, "size": size}
    named |= {
        "label_smoothing": label_smoothing,
        "learning_rate": training.get("learning_rate", training.get("optimization")),
    }
    named["dropout"] = (changes or {}).get("dropout")
    learned = tokenizer is None and start is None  # is the vocabulary?
    fitted = fit_translator(sides.train, recurrent, named) if learned else Fitted(named)
    chosen = USUAL_MODEL | {name: value for name, value in fitted.values.items() if value is not None}
    if tokenizer is None:
        how = chosen["vocabulary_kind"], chosen["vocabulary_size"], joint, bool(whole_numbers)
        tokenizer = _train_tokenizer(sides.train, *how, vocabulary_size is None, start)
    shape = ({} if start is None else start.shape) | dict(changes or {})
    if "dropout" in chosen:
        shape["dropout"] = chosen["dropout"]
    if "learning_rate" in fitted.reasons:
        settings = settings.but(learning_rate=chosen["learning_rate"])
    config = _config(family.presets[f"{kind}-{chosen['size']}"].config, tokenizer, shape)
    if start is not None:
        require_shape(start.model.config, config)
    settings, smoothing = settings if sides.dev else without_dev(settings), chosen["label_smoothing"]
    experiment = TranslationExperiment(
        family, config, tokenizer, sides, settings, output, smoothing, sampling, start, used, fitted
    )
    return experiment.run(session, [*sides.notes, *experiment.notes])


def _family(kind: str, size: str) -> Family:
    """The family whose presets have this kind, if one of them has the size."""
    sizes: dict[str, list[str]] = {}
    for name in (name for relative in all_families() if relative.is_conditional for name in relative.presets):
        known, _, other = name.rpartition("-")
        sizes.setdefault(known, []).append(other)
    check_choice("size", size, sizes[check_choice("kind", kind, sizes)])
    return preset(f"{kind}-{size}", conditional=True)[0]


def _read_sides(
    pairs: PairData | None,
    source: str | Path | None,
    target: str | Path | None,
    dev: PairData | None,
    columns: Sequence[str] | None,
    max_bad_rows: int,
    seed: int,
) -> Sides:
    if (pairs is None) == (source is None) or (source is None) != (target is None):
        raise InputError("give the training pairs as one file (pairs), or as two (source and target)")
    train: Any = (source, target) if pairs is None else pairs
    if columns is not None and not any(isinstance(side, str | Path) for side in (train, dev)):
        raise InputError("columns are those of a table of pairs; files of lines and lists have none")
    split, held_out = partial(split_pairs, seed=seed), "held out of the training pairs"
    sides = Sides.read(train, dev, lambda side: _read(side, columns, max_bad_rows), split, held_out)
    if 0 < len(sides.train) < FEWEST_PAIRS:
        raise DataError(f"{len(sides.train)} training pairs are too few to learn from: bring {FEWEST_PAIRS} or more")
    return sides


def _read(source: PairData, columns: Sequence[str] | None, max_bad_rows: int) -> ReadResult[Pair]:
    if isinstance(source, str | Path):
        return read_pairs(source, columns, max_bad_rows)
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(side, str | Path) for side in source):
        return read_parallel(source[0], source[1], max_bad_rows)  # type: ignore[arg-type]
    return ReadResult(to_pairs(source), 0)


def _check_vocabulary(
    tokenizer: PairTokenizer | None,
    start: DecoderStart | None,
    joint: bool | None,
    options: Sequence[Any],
) -> None:
    of_start, reason = None if start is None else start.tokenizer, None
    if start is not None and tokenizer is None and of_start is None:
        reason = "init_decoder: give the tokenizer of the language model too, or its folder instead"
    elif tokenizer is not None and of_start is not None:
        reason = "init_decoder: its folder has a tokenizer: leave out the other one"
    elif tokenizer is not None and any(option is not None for option in options):
        names = "vocabulary_size, vocabulary_kind, whole_numbers and joint (--separate-vocabularies)"
        reason = f"the vocabulary that is given is used: leave out {names}"
    elif start is not None and joint:
        reason = "init_decoder: the target has the language model's vocabulary, none is shared: leave joint out"
    if reason is not None:
        raise InputError(reason)


def _train_tokenizer(
    pairs: Sequence[Pair],
    kind: str,
    size: int,
    joint: bool | None,
    whole_numbers: bool,
    at_most: bool,
    start: DecoderStart | None,
) -> PairTokenizer:
    """A vocabulary of this kind and size, or with `at_most` of fewer tokens."""
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if start is not None and start.tokenizer is not None:  # the target's is there already
        own = train_tokenizer(kind, sources, size, False, PAIR_ROLES, at_most, whole_numbers)
        return PairTokenizer(own, start.tokenizer)
    return train_pair_tokenizer(kind, sources, targets, size, joint is not False, False, at_most, whole_numbers)


def _config(sizes: TranslationConfig, tokenizer: PairTokenizer, changes: Mapping[str, Any]) -> Any:
    """The preset with the sizes and ids of a tokenizer, and with what the user wants otherwise."""
    own: dict[str, Any] = {
        "vocabulary_size": tokenizer.source_size,
        "target_vocabulary_size": 0 if tokenizer.joint else tokenizer.target_size,
        "pad_id": tokenizer.end_id if tokenizer.pad_id is None else tokenizer.pad_id,
        "start_id": tokenizer.begin_id,
        "end_id": tokenizer.end_id,
        **({} if tokenizer.joint else {"shared_tables": False}),
    }
    config = make_config(sizes, own, changes)
    if changes.get("score_width") and config.score != "additive":
        raise ConfigError(f"score_width is the inner width of the additive score; this score is {config.score}")
    return config
