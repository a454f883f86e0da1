"""Training a model that turns a text into a text: pairs in; a vocabulary, a model and its measure out.

Nothing in it is about languages: dates and the same dates in another form are pairs as well. In the output folder:

    run.json, log.jsonl, step-N   the run; the same call goes on with it after a crash
    model/                        the best model with its vocabulary, as a folder that `kinfolk.load` opens
    report.md, loss.png           how good it is, how it came about, what it writes
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from kinfolk.api.decoder_start import DecoderStart
from kinfolk.api.experiment import Callbacks, check_unfinished
from kinfolk.api.pairs import PairSurvey, pair_samples, survey_pairs
from kinfolk.api.translation import TranslationExperiment, TranslationResult
from kinfolk.checkpoints.text_model import pick_device
from kinfolk.data.examples import ReadResult
from kinfolk.data.pairs import Pair, hold_out, read_pairs, read_parallel, to_pairs
from kinfolk.errors import ConfigError, InputError, check_choice, check_number
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Family, count_parameters
from kinfolk.models.registry import all_families
from kinfolk.models.registry import preset as find_preset
from kinfolk.models.seq2seq import require_shape
from kinfolk.objectives.scheduled_sampling import SamplingSchedule
from kinfolk.text.pairs import ROLES, PairTokenizer, train_pair_tokenizer
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import DEFAULT_KIND, DEFAULT_SIZE, train_tokenizer
from kinfolk.training.distributed import world
from kinfolk.training.settings import TrainSettings, refuse_two_lengths
from kinfolk.training.step import validate_hardware

# Vaswani et al. 2017, section 5.3, but for the length of the run and the share of it over which the rate rises.
USUAL: dict[str, Any] = {
    "epochs": 20.0,
    "batch_size": 512,
    "batch_tokens": 4096,  # of both sides
    "learning_rate": 1e-3,
    "schedule": "inverse_sqrt",
    "warmup": 0.1,
    "betas": (0.9, 0.98),
    "epsilon": 1e-9,
    "weight_decay": 0.0,
    "weight_averaging": 0.1,
    "evaluations": 10,
}
Source = str | Path | tuple[str | Path, str | Path] | Sequence[Pair] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class TrainedTranslator:
    """What came of it: the folder, the metrics on the dev set with sacreBLEU's signature, and what there is to say.

    `bleu` is measured with the search that `translate` uses, `bleu_greedy` as while training, both on `measured` pairs.
    """

    folder: Path
    metrics: Mapping[str, float]
    measured: int
    signature: str
    survey: PairSurvey
    notes: Sequence[str]


def train_translator(
    output: str | Path,
    pairs: Source | None = None,
    source: str | Path | None = None,
    target: str | Path | None = None,
    dev: Source | None = None,
    columns: Sequence[str] | None = None,
    kind: str = "transformer",
    size: str = "small",
    changes: Mapping[str, Any] | None = None,
    vocabulary_size: int | None = None,
    vocabulary_kind: str | None = None,
    joint: bool | None = None,
    tokenizer: PairTokenizer | None = None,
    init_decoder: str | Path | nn.Module | None = None,
    label_smoothing: float = 0.1,
    scheduled_sampling: float = 0.0,
    sampling_schedule: str = "linear",
    sampling_mode: str = "two-pass",
    max_bad_rows: int = 0,
    device: str = "auto",
    callbacks: Callbacks | None = None,
    **training: Any,
) -> TrainedTranslator:
    """Learn a vocabulary and a model from pairs, and keep the model with the best BLEU on the dev set.

    The pairs stand in one file (`pairs`; a .tsv is source TAB target, `columns` names two columns of another table), in
    two files with a line for each (`source`, `target`), or in a list. `dev` is a file, a list, or a tuple of two files;
    without it 2,000 pairs or a tenth are held out, no source on both sides; an empty list holds nothing out, and the
    last weights are kept. `kind` is transformer, attention or seq2seq; `changes` are settings of the model that differ
    from its `size`, as in `{"dropout": 0.3}`. `vocabulary_size` is the number of pieces (8,000 or fewer;
    `vocabulary_kind`: bpe, unigram, byte_bpe, wordpiece, words) that both sides share, or with `joint=False` of each; a
    `tokenizer` that was learned before may take their place. `init_decoder` starts a recurrent decoder as a language
    model, whose shape it then has: the model's folder, whose vocabulary the target has then, while the source learns
    its own, or the model, with a tokenizer for both sides.
    With `scheduled_sampling` the model reads its own guesses instead of the true target while it learns: at most with
    that chance, which rises by `sampling_schedule` (linear, sigmoid, constant). They are guessed in a pass of their own
    that reads the truth (`sampling_mode="two-pass"`) or, by recurrent models, token by token ("step-wise"): there 1 and
    constant is free running.
    How to train is named, as in `minutes=45, learning_rate=5e-4` (all names: TrainSettings and OptimizerSettings).
    The same call on the same folder goes on where it stopped.
    """
    from kinfolk.training import bleu  # noqa: F401 (an extra: better missed now than after hours)

    here, output, place = world(), Path(output), pick_device(device)
    callbacks = callbacks if callbacks is not None and here.is_main else Callbacks()
    refuse_two_lengths(training)
    settings = TrainSettings().but(**(USUAL | training))
    validate_hardware(settings.precision, settings.fsdp, place, here)
    sampling = SamplingSchedule(scheduled_sampling, sampling_schedule, sampling_mode)
    check_number("label_smoothing", label_smoothing, 0, math.nextafter(1, 0), "a share from 0 up to 1", True)
    check_unfinished(output)
    family, preset = _preset(kind, size)
    if sampling.mode == "step-wise" and not hasattr(family.body, "differentiable_steps"):
        raise InputError(f'sampling_mode="step-wise" is for recurrent models; a {family.title} takes "two-pass"')
    start = None if init_decoder is None else DecoderStart.of(init_decoder, preset)
    _check_words(tokenizer, start, (vocabulary_size, vocabulary_kind, joint))
    train = _training_source(pairs, source, target)
    learned, held, bad = _gather(train, dev, columns, max_bad_rows, settings.seed)
    target_words = None if start is None else start.words
    words = tokenizer or _learn(learned, vocabulary_size, vocabulary_kind, joint, target_words)
    config = _config(preset, words, ({} if start is None else start.shape) | dict(changes or {}))
    if start is not None:
        require_shape(start.model.config, config)
    dataset, judged = (pair_samples(side, words, config.context) for side in (learned, held))
    weights = count_parameters(family, config), 0 if start is None else start.weights
    found = survey_pairs(dataset, judged, words, family.title, weights)
    if held and not judged.items:
        raise InputError(
            f"none of the {len(held):,} dev pairs can be judged: they are longer than the model's {config.context:,} "
            "tokens or have nothing to read; bring others, or in Python dev=[] to hold nothing out"
        )
    if not held:  # nothing to choose by: the run goes to its end, and its last weights are kept
        settings = dataclasses.replace(settings, evaluations=1, evaluate_every=None, patience=None)
    names = (_name(train), "held out of the training pairs" if dev is None else _name(dev))
    experiment = TranslationExperiment(
        family, config, words, dataset, judged, settings, output, found, names, label_smoothing, sampling, start, place
    )
    callbacks.before(found, ())
    results = experiment.train_seeds(1, callbacks)
    seed = results[settings.seed]
    assert isinstance(seed.result, TranslationResult)
    notes = [f"{bad} bad rows were left out"] * bool(bad) + [*found.notes, *seed.notes]
    notes += experiment.keep(results, settings.seed, notes)
    result = seed.result
    return TrainedTranslator(output, result.metrics, len(result.samples), result.signature, found, notes)


def _preset(kind: str, size: str) -> tuple[Family, TranslationConfig]:
    """The family and the settings that a preset called kind-size has."""
    names = [name.rsplit("-", 1) for relative in all_families() if relative.is_conditional for name in relative.presets]
    check_choice("kind", kind, dict.fromkeys(known for known, _ in names))
    check_choice("size", size, [other for known, other in names if known == kind])
    family, found = find_preset(f"{kind}-{size}", conditional=True)
    return family, found.config


def _training_source(pairs: Source | None, source: str | Path | None, target: str | Path | None) -> Source:
    if (pairs is None) == (source is None) or (source is None) != (target is None):
        raise InputError("give the training pairs as one file (pairs), or as two (source and target)")
    if pairs is not None:
        return pairs
    assert source is not None
    assert target is not None
    return source, target


def _gather(
    train: Source, dev: Source | None, columns: Sequence[str] | None, max_bad_rows: int, seed: int
) -> tuple[list[Pair], list[Pair], int]:
    """Pairs to train on, pairs that are held out, and how many rows were bad."""
    if columns is not None and not any(isinstance(given, str | Path) for given in (train, dev)):
        raise InputError("columns are those of a table of pairs; files of lines and lists have none")
    learned = _read(train, columns, max_bad_rows)
    if dev is None:
        return *hold_out(learned.examples, seed=seed), learned.bad
    held = _read(dev, columns, max_bad_rows)
    return learned.examples, held.examples, learned.bad + held.bad


def _read(given: Source, columns: Sequence[str] | None, max_bad_rows: int) -> ReadResult[Pair]:
    if isinstance(given, str | Path):
        return read_pairs(given, columns, max_bad_rows)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(side, str | Path) for side in given):
        return read_parallel(given[0], given[1], max_bad_rows)  # type: ignore[arg-type]
    return ReadResult(to_pairs(given), 0)


def _name(given: Source) -> str:
    """What a card calls the data: files without their folders."""
    if isinstance(given, str | Path):
        return Path(given).name
    paths = isinstance(given, tuple) and all(isinstance(side, str | Path) for side in given)
    return " and ".join(Path(str(side)).name for side in given) if paths else "a list"


def _check_words(
    tokenizer: PairTokenizer | None, start: DecoderStart | None, asked: tuple[int | None, str | None, bool | None]
) -> None:
    """Refuse what has no meaning beside a vocabulary that is there already."""
    given = tokenizer is not None
    if start is not None and (start.words is None) != given:
        told = "give the tokenizer of the language model too, or its folder instead"
        raise InputError(f"init_decoder: {'its folder has a tokenizer: leave out the other one' if given else told}")
    if given and any(option is not None for option in asked):
        raise InputError(
            "the vocabulary that is given is used: leave out vocabulary_size, vocabulary_kind and joint (--separate)"
        )
    if start is not None and asked[2]:
        raise InputError(
            "init_decoder: the target has the language model's vocabulary, none is shared: leave joint out"
        )


def _learn(
    learned: Sequence[Pair], size: int | None, kind: str | None, joint: bool | None, target: Tokenizer | None
) -> PairTokenizer:
    """A vocabulary of the kind and size that is asked for, or of the usual kind and at most the usual size.

    `target` is there already.
    """
    sources, targets = [pair.source for pair in learned], [pair.target for pair in learned]
    kind, wanted, at_most = kind or DEFAULT_KIND, DEFAULT_SIZE if size is None else size, size is None
    if target is not None:
        return PairTokenizer(train_tokenizer(kind, sources, wanted, False, ROLES, at_most), target)
    return train_pair_tokenizer(kind, sources, targets, wanted, joint is not False, at_most=at_most)


def _config(preset: TranslationConfig, words: PairTokenizer, changes: Mapping[str, Any]) -> Any:
    """The preset with the sizes and ids of a tokenizer, and with what the user wants otherwise."""
    own: dict[str, Any] = {
        "vocabulary_size": words.source_size,
        "target_vocabulary_size": 0 if words.joint else words.target_size,
        "pad_id": words.end_id if words.pad_id is None else words.pad_id,
        "start_id": words.begin_id,
        "end_id": words.end_id,
    }
    if not words.joint:
        own["shared_tables"] = False
    for name in changes:
        if name in own:
            raise InputError(f'changes: "{name}" follows from the vocabulary')
    found = type(preset).make(**(dataclasses.asdict(preset) | own | dict(changes)))
    if changes.get("score_width") and found.score != "additive":  # type: ignore[attr-defined]
        raise ConfigError(f"score_width is the inner width of the additive score; this score is {found.score}")  # type: ignore[attr-defined]
    return found
