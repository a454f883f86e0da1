"""Fine-tuning for any task: a file in; a trained, evaluated, saved model out.

What lies in the output folder:

    run.json, log.jsonl, step-N   the run; the same call goes on with it after a crash. Steps go when the model is there
    seed-N/                       one such run per seed, where several are asked for
    model/                        the best model, as a folder that kinfolk and transformers load, with its card
    report.md and what it shows   metrics, pictures, mistakes (report.py)
    tensorboard/                  where asked for: the log as TensorBoard reads it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from kinfolk.api.card import model_card
from kinfolk.api.experiment import Callbacks, Job, Result, refuse_finished
from kinfolk.api.frozen import SETTINGS as FROZEN
from kinfolk.api.frozen import FeatureJob, FrozenHeadConfig, reading_for
from kinfolk.api.loaded import Encoder, load_encoder
from kinfolk.api.report import write_report
from kinfolk.api.summary import RunSummary, over_seeds
from kinfolk.data.examples import AnyExample, ReadResult, check_examples, to_example
from kinfolk.data.split import stratified_split
from kinfolk.data.summary import DataSummary, summarize
from kinfolk.errors import InputError, check_choice, check_collection, check_int, shorten_list, type_name
from kinfolk.tasks.reading import READERS, Columns, guess_task, read_for
from kinfolk.tasks.registry import make_task
from kinfolk.tasks.task import EvalResult, TaskOptions
from kinfolk.tasks.windows import Windows
from kinfolk.training.distributed import world
from kinfolk.training.settings import OptimizerSettings, TrainSettings, refuse_two_lengths
from kinfolk.training.step import validate_hardware
from kinfolk.training.trainer import Progress

Source = str | Path | Sequence[AnyExample]
Given = Source | Sequence[tuple[Any, ...]]
KINDS: dict[str, tuple[type, ...]] = {  # of arguments that hold settings
    "output": (str, Path),
    "frozen": (str, FrozenHeadConfig, NoneType),
    "settings": (TrainSettings, NoneType),
    "optimizer": (OptimizerSettings,),
    "callbacks": (Callbacks, NoneType),
}


@dataclass(frozen=True)
class Finetuned:
    """What came of it: the folder, the metrics on the dev set (of the best seed), and of every seed.

    `judged` says where the best model errs on the dev set.
    """

    folder: Path
    metrics: Mapping[str, float]
    by_seed: Mapping[int, Mapping[str, float]]
    survey: DataSummary
    fresh: Sequence[str]
    notes: Sequence[str]
    judged: EvalResult

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
    _require_kinds({"output": output, "frozen": frozen, "settings": settings, "callbacks": callbacks, **training})
    train, dev = _source("train", train), None if dev is None else _source("dev", dev)
    columns = Columns(text, pair, label, header)
    check_int("max_bad_rows", max_bad_rows, 0)
    check_int("seeds", seeds)
    task = guess_task(train, columns) if task is None else check_choice("task", task, READERS)
    named = training if settings is None else settings.changed()
    reading = reading_for(task, frozen, layers, crf, dropout, seeds, named)
    settings, output = _settings(settings, training, TrainSettings() if reading is None else FROZEN), Path(output)
    options = TaskOptions(class_weights, crf if reading is None else reading.crf, Windows(window, stride))
    callbacks = callbacks if callbacks is not None and here.is_main else Callbacks()
    refuse_finished(output)
    encoder = model if isinstance(model, Encoder) else load_encoder(model, device, allow_pickle)
    validate_hardware(settings.precision, settings.fsdp, encoder.device, here)
    learned, held, bad, read = _sides(train, dev, task, columns, max_bad_rows, settings.seed)
    if not held:
        settings = _blind(settings, seeds)
    posed = make_task(task, learned, options)
    found = summarize(learned, held, encoder.tokenizer, encoder.context, f"task {task}{read and f': {read}'}")
    given = (encoder, posed, learned, held, settings, output)
    work = Job(*given, dropout) if reading is None else FeatureJob(*given, reading)
    with (
        _on_board(callbacks, output, seeds > 1) if tensorboard and here.is_main else nullcontext(callbacks) as callbacks
    ):
        callbacks.before(found, work.fresh)
        results = work.train_all(seeds, callbacks)
    best = max(results, key=lambda seed: results[seed].selection_score)
    by_seed = {seed: result.judged.metrics for seed, result in results.items()}
    notes = [f"{bad} bad rows were left out"] * bool(bad)
    notes += [note for result in results.values() for note in result.notes] + work.collapsed(by_seed)

    def keep() -> list[str]:
        account = _account(work, results, best, found, _names(train, dev), reading)
        told = write_report(output, account, notes) if report else []
        results[best].save(encoder, output, model_card(account))
        work.drop_checkpoints(results)
        return told

    notes += here.on_main(keep) or []
    return Finetuned(output, by_seed[best], by_seed, found, work.fresh, notes, results[best].judged)


def _require_kinds(given: Mapping[str, object]) -> None:
    """A wrong kind is told now, in one line, and not where it is used first."""
    for name, kinds in KINDS.items():
        if name in given and not isinstance(given[name], kinds):
            known = " or ".join(kind.__name__ for kind in kinds if kind is not NoneType)
            raise InputError(f"{name} is {type_name(given[name])}; expected {known}")


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


def _blind(settings: TrainSettings, seeds: int) -> TrainSettings:
    """Without a dev set there is nothing to choose by: the run goes to its end, and its last weights are the best."""
    if seeds > 1:
        raise InputError("the best of several seeds is chosen on a dev set; give one, or use seeds=1")
    return dataclasses.replace(settings, evaluations=1, evaluate_every=None, patience=None)


@contextmanager
def _on_board(callbacks: Callbacks, output: Path, several: bool) -> Iterator[Callbacks]:
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


def _account(
    job: Job,
    results: Mapping[int, Result],
    best: int,
    found: DataSummary,
    names: tuple[str, str],
    reading: FrozenHeadConfig | None,
) -> RunSummary:
    seconds = [result.seconds for result in results.values() if result.seconds is not None]
    return RunSummary(
        name=job.folder.resolve().name,
        base=job.encoder.name,
        model=results[best].model,
        task=results[best].task,
        survey=found,
        train=names[0],
        dev=names[1],
        settings=job.settings,
        judged=results[best].judged,
        by_seed={seed: result.judged.metrics for seed, result in results.items()},
        best=best,
        logs={seed: result.log for seed, result in results.items()},
        seconds=sum(seconds) if len(seconds) == len(results) else None,
        reading=reading,
    )
