"""Fine-tuning for any task: a file in; a trained, evaluated, saved model out (experiment.py says what is written)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinfolk.api.experiment import Callbacks, check_unfinished
from kinfolk.api.finetune_report import over_seeds
from kinfolk.api.frozen import SETTINGS as FROZEN
from kinfolk.api.frozen import FrozenHeadConfig, frozen_config
from kinfolk.api.loaded import Encoder, load_encoder
from kinfolk.api.supervised import FrozenExperiment, SupervisedExperiment
from kinfolk.data.examples import AnyExample, ReadResult, check_examples, to_example
from kinfolk.data.split import stratified_split
from kinfolk.data.summary import DataSummary, summarize
from kinfolk.errors import InputError, check_choice, check_collection, check_int, shorten_list
from kinfolk.tasks.reading import READERS, Columns, guess_task, read_for
from kinfolk.tasks.registry import make_task
from kinfolk.tasks.task import EvalResult, TaskOptions
from kinfolk.tasks.windows import Windows
from kinfolk.training.distributed import world
from kinfolk.training.settings import TrainSettings, refuse_two_lengths
from kinfolk.training.step import validate_hardware
from kinfolk.training.trainer import Progress

Source = str | Path | Sequence[AnyExample]
Given = Source | Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Finetuned:
    """What came of it: the folder, the metrics on the dev set (of the best seed), and of every seed.

    `result` says where the best model errs on the dev set.
    """

    folder: Path
    metrics: Mapping[str, float]
    by_seed: Mapping[int, Mapping[str, float]]
    data: DataSummary
    initialized: Sequence[str]  # names of newly initialized parameters
    notes: Sequence[str]
    result: EvalResult

    def summary(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation over the seeds, by metric."""
        return over_seeds(self.by_seed)


def finetune(
    model: str | Path | Encoder,
    train: Given,
    output: str | Path,
    dev: Given | None = None,
    task: str | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    class_weights: str | Mapping[str, float] | None = None,
    crf: bool = False,
    frozen: str | FrozenHeadConfig | None = None,
    layers: str | Sequence[int] | None = None,
    dropout: float | None = None,
    window: int | None = None,
    stride: int | None = None,
    max_bad_rows: int = 0,
    seeds: int = 1,
    device: str = "auto",
    settings: TrainSettings | None = None,
    callbacks: Callbacks | None = None,
    tensorboard: bool = False,
    report: bool = True,
    allow_pickle: bool = False,
    **training: Any,
) -> Finetuned:
    """Fine-tune a model on labelled texts, tagged sentences, questions or choices.

    `train` and `dev` are files, or lists: of `(text, label)`, of `(text, pair, label)`, or of data/examples.py's.
    `model` may be loaded already; it is not changed. `task` is classify, multilabel, regress, tag, answer or choose;
    without it the form of the data tells (reading.py). Without `dev`, a tenth of `train` is held out; an empty list
    holds nothing out, and the last weights are kept. `dropout` replaces the model's own. The same call on the same
    folder goes on where it stopped; other data or settings are refused. How to train is said by name, as in `epochs=5,
    learning_rate=1e-4, batch_size=16` (all names: TrainSettings and OptimizerSettings), or by `settings`. `tensorboard`
    also writes the log as TensorBoard reads it; without `report` there is none. `allow_pickle` is as in `kinfolk.load`.

    With `frozen` the encoder stays as it is, and a head learns on its features: linear, bilstm, linear-crf, bilstm-crf
    or logistic, of the `layers` that `embed` knows by name or number, or of a learned "mix" of all (features.py).
    """
    here = world()
    train, dev = _source("train", train), None if dev is None else _source("dev", dev)
    columns = Columns(text, pair, label, header)
    check_int("max_bad_rows", max_bad_rows, 0)
    check_int("seeds", seeds)
    task = guess_task(train, columns) if task is None else check_choice("task", task, READERS)
    named = training if settings is None else settings.changed()
    head = frozen_config(task, frozen, layers, crf, dropout, seeds, named)
    settings, output = _settings(settings, training, TrainSettings() if head is None else FROZEN), Path(output)
    options = TaskOptions(class_weights, crf if head is None else head.crf, Windows(window, stride))
    callbacks = callbacks if callbacks is not None and here.is_main else Callbacks()
    check_unfinished(output)
    encoder = model if isinstance(model, Encoder) else load_encoder(model, device, allow_pickle)
    validate_hardware(settings.precision, settings.fsdp, encoder.device, here)
    train_examples, dev_examples, bad, read = _sides(train, dev, task, columns, max_bad_rows, settings.seed)
    if not dev_examples:
        settings = without_dev(settings, seeds)
    read = f"task {task}{read and f': {read}'}"
    data = summarize(train_examples, dev_examples, encoder.tokenizer, encoder.context, read)
    sides, names = (train_examples, dev_examples), _names(train, dev)
    arguments = (encoder, make_task(task, train_examples, options), sides, data, names, settings, output)
    experiment = (
        SupervisedExperiment(*arguments, dropout) if head is None else FrozenExperiment(*arguments, frozen=head)
    )
    logged = tensorboard and here.is_main
    with tensorboard_logs(callbacks, output, seeds > 1) if logged else nullcontext(callbacks) as callbacks:
        callbacks.before(data, experiment.initialized)
        results = experiment.train_seeds(seeds, callbacks)
    best = max(results, key=lambda seed: results[seed].result.selection_score)
    by_seed = {seed: result.result.metrics for seed, result in results.items()}
    notes = [f"{bad} bad rows were left out"] * bool(bad)
    notes += [note for result in results.values() for note in result.notes] + experiment.collapsed(by_seed)
    notes += experiment.keep(results, best, notes, report)
    return Finetuned(output, by_seed[best], by_seed, data, experiment.initialized, notes, results[best].result)


def _source(name: str, given: Given) -> Source:
    """A file as it is named, examples as a list: what can be read only once is read here."""
    if isinstance(given, str | Path):
        return given
    if hasattr(given, "columns"):
        advice = 'list(zip(table["text"], table["label"]))'
        raise InputError(f"{name} is a table: give the file it came from, or its rows, as in {advice}")
    listed = check_collection(given, f"{name} to be a file or a list of examples")
    return [to_example(example, number) for number, example in enumerate(listed)]


def _settings(given: TrainSettings | None, named: Mapping[str, Any], usual: TrainSettings) -> TrainSettings:
    if given is None:
        refuse_two_lengths(named)
        return usual.but(**named)
    if named:
        raise InputError(f"{shorten_list(named)}: say it in settings, or leave those out and name them all")
    return given


def without_dev(settings: TrainSettings, seeds: int) -> TrainSettings:
    """Without a dev set there is nothing to choose by: the run goes to its end, and its last weights are the best."""
    if seeds > 1:
        raise InputError("the best of several seeds is chosen on a dev set; give one, or use seeds=1")
    return dataclasses.replace(settings, evaluations=1, evaluate_every=None, patience=None)


@contextmanager
def tensorboard_logs(callbacks: Callbacks, output: Path, several: bool) -> Iterator[Callbacks]:
    """The callbacks, and TensorBoard's files beside it."""
    from kinfolk.training.tensorboard import Board  # an extra

    def step(seed: int, progress: Progress) -> None:
        callbacks.step(seed, progress)
        board.step(seed, progress)

    with Board(output / "tensorboard", several) as board:
        yield dataclasses.replace(callbacks, step=step)


def _names(train: Source, dev: Source | None) -> tuple[str, str]:
    """What the card calls the data: files without their folders."""
    learned, held = (Path(side).name if isinstance(side, str | Path) else "a list" for side in (train, dev))
    return learned, f"held out of {learned}" if dev is None else held


def _sides(
    train: Source, dev: Source | None, kind: str, columns: Columns, max_bad_rows: int, seed: int
) -> tuple[list[Any], list[Any], int, str]:
    """What is learned from, what is held out, how many bad rows were left out, and what was read."""
    learned = _read(train, kind, columns, max_bad_rows)
    if dev is None:
        return *stratified_split(learned.examples, seed=seed), learned.bad, learned.description
    held = _read(dev, kind, columns, max_bad_rows)
    return learned.examples, held.examples, learned.bad + held.bad, learned.description


def _read(source: Source, kind: str, columns: Columns, max_bad_rows: int) -> ReadResult[Any]:
    if isinstance(source, str | Path):
        return read_for(kind, source, columns, max_bad_rows)
    return ReadResult(check_examples(source, kind), 0, ())
