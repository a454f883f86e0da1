"""One experiment behind fine-tuning, pre-training and translators.

    data -> summary -> train -> evaluate -> report, card, pictures -> saved model

What lies in its folder:

    run.json, log.jsonl, step-N   the run; the same call resumes it after a crash. Checkpoints go when all is saved
    before.json                   what a checkpoint was measured at before it was continued (pretrain.py)
    seed-N/                       one such run per seed, where several are asked for
    model/                        the best model, as a folder that `kinfolk.load` opens, with its card
    report.md and its pictures    metrics, notes, settings (report.py)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from kinfolk.api.report import Report, Rows, format_settings, model_card, over_seeds, run_table, write_report
from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.examples import ReadResult
from kinfolk.data.summary import Summary
from kinfolk.errors import FolderError, InputError
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.tasks.task import EvalResult
from kinfolk.training.budget import Clock, TimeLimit
from kinfolk.training.distributed import world
from kinfolk.training.runs import NO_CALLBACKS, Callbacks, Run
from kinfolk.training.settings import TrainSettings
from kinfolk.training.step import validate_hardware
from kinfolk.training.trainer import Trainer

REPORT_SECONDS = 2.5  # for the pictures, the report and the saved model
Split = Callable[[list[Any]], tuple[list[Any], list[Any]]]


@dataclass(frozen=True)
class Session:
    """One call of a training: its callbacks, and since when its clock runs, where it is one by minutes."""

    callbacks: Callbacks
    clock: Clock | None


@dataclass(frozen=True)
class SeedResult:
    """The best model of one seed, evaluated on the dev set. `task` is the calibrated task of a fine-tuned model."""

    model: Model
    result: EvalResult
    notes: list[str]
    log: list[dict[str, Any]]
    seconds: float | None  # None where an earlier process did a part of it
    task: Any = None


@dataclass(frozen=True)
class Trained:
    """What came of a training: the metrics on the dev set of every seed, and the `result` of the best one."""

    folder: Path
    data: Summary  # that was printed before
    initialized: Sequence[str]  # names of newly initialized parameters
    by_seed: Mapping[int, Mapping[str, float]]
    result: EvalResult
    baselines: Mapping[str, float]  # what some metrics are without a model
    before: Mapping[str, float]  # what they were of a checkpoint whose pre-training was continued
    notes: Sequence[str]

    @property
    def metrics(self) -> Mapping[str, float]:
        """Those of the best seed."""
        return self.result.metrics

    def summary(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation over the seeds, by metric."""
        return over_seeds(self.by_seed)


@dataclass(frozen=True)
class Sides:
    """Examples to train on and dev examples, notes on what was left out, what was read, and what a card calls it."""

    train: list[Any]
    dev: list[Any]
    notes: list[str]
    description: str
    names: tuple[str, str]

    @classmethod
    def read(
        cls,
        train: Any,
        dev: Any,
        read: Callable[[Any], ReadResult[Any]],
        split: Split,
        held_out: str = "held out of {}",
    ) -> Sides:
        """Without a dev set of its own, a part of what `train` gives is held out."""
        result, name = read(train), _source_name(train)
        if dev is None:
            sides, bad, names = split(result.examples), result.bad, (name, held_out.format(name))
        else:
            other = read(dev)
            sides, bad, names = (result.examples, other.examples), result.bad + other.bad, (name, _source_name(dev))
        return cls(*sides, [f"{bad} bad rows were left out"] * bool(bad), result.description, names)


def _source_name(source: Any) -> str:
    """What the card calls it: files without their folders."""
    paths = source if isinstance(source, tuple) else (source,)
    files = all(isinstance(path, str | Path) for path in paths)
    return " and ".join(Path(path).name for path in paths) if files else "a list"


class Experiment(ABC):
    """One objective on one kind of model, for any number of seeds."""

    settings: TrainSettings
    folder: Path
    samples: Sequence[Sample]  # which may be their own plan
    location: Callable[[int], str]  # where an example stands, for a message
    identity: dict[str, Any]  # what the weights depend on beside settings and config
    summary: Summary  # of the data
    rows: Rows  # of the table of the training: what was trained on
    initialized: Sequence[str] = ()  # names of parameters that are new beside those of a checkpoint
    baselines: Mapping[str, float] = MappingProxyType({})  # what some metrics are without a model
    before: Mapping[str, float] = MappingProxyType({})  # what they were before training, where that is asked

    @abstractmethod
    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        """A model to train, and the names of its newly initialized parameters."""

    def prepare(self, model: Model, folder: Path) -> None:  # noqa: B027 (most have nothing to do)
        """What is to be done with a model before it is trained, or goes on to be, in its run's folder."""

    @abstractmethod
    def objective(self, model: Model) -> Objective:
        """What is minimized."""

    @abstractmethod
    def evaluate(self, model: Model) -> tuple[float, dict[str, float]]:
        """The selection score (higher is better) and all metrics, while training."""

    @abstractmethod
    def finish(self, model: Model, log: Sequence[dict[str, Any]]) -> tuple[EvalResult, Any]:
        """The final evaluation of a seed's best model, and its calibrated task if it has one."""

    @abstractmethod
    def text_model(self, model: Model, task: Any = None) -> TextModel:
        """A trained model with its tokenizer, as it is saved."""

    @abstractmethod
    def content(self, results: dict[int, SeedResult], best: int) -> dict[str, Any]:
        """What report and card say beside name, data, logs and the table of the training, as fields of a `Report`."""

    def reported_settings(self) -> dict[str, str]:
        """Rows of that table on how it was trained."""
        return format_settings(self.settings)

    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        """All that the weights depend on: a run is resumed only if this is the same."""
        return {**self.identity, "settings": settings.described(), "config": dataclasses.asdict(model.config)}

    @abstractmethod
    def evaluated_tokens(self) -> tuple[float, float]:
        """How many tokens an evaluation while training takes through the model, and the last one, about: a run by
        minutes is planned by it, until an evaluation was timed."""

    def collapsed(self, by_seed: Mapping[int, Mapping[str, float]]) -> list[str]:
        """Notes on seeds that learned nothing."""
        return []

    def run(self, session: Session, notes: Sequence[str] = (), seeds: int = 1, report: bool = True) -> Trained:
        """Train every seed, then write the report and the best model."""
        session.callbacks.before(self.summary, self.initialized)
        results = self.train_seeds(seeds, session)
        best = max(results, key=lambda seed: results[seed].result.selection_score)
        by_seed = {seed: result.result.metrics for seed, result in results.items()}
        notes = [*notes, *(note for result in results.values() for note in result.notes), *self.collapsed(by_seed)]
        notes += world().on_main(lambda: self._keep(results, best, notes, report)) or []
        result = results[best].result
        return Trained(self.folder, self.summary, self.initialized, by_seed, result, self.baselines, self.before, notes)

    def train_seeds(self, seeds: int, session: Session) -> dict[int, SeedResult]:
        first = self.settings.seed
        shared: AbstractContextManager[Any] = nullcontext()
        if seeds > 1:  # their folders lie in the experiment's, which is locked as a whole and no other run's
            both = {name: self.identity[name] for name in ("start", "data")}
            shared = closing(Run.open(self.folder, {"seeds": seeds} | both))
        with shared:
            return {
                seed: self.train(seed, self._seed_folder(seed, seeds), session, first + seeds - seed)
                for seed in range(first, first + seeds)
            }

    def _seed_folder(self, seed: int, seeds: int) -> Path:
        return self.folder / f"seed-{seed}" if seeds > 1 else self.folder

    def train(self, seed: int, folder: Path, session: Session, seeds: int = 1) -> SeedResult:
        """Run one seed to the end, or resume it; `seeds`, this one included, share the time that is left."""
        settings = dataclasses.replace(self.settings, seed=seed)
        model, _ = self.init_model(seed)
        with closing(Run.open(folder, self.description(settings, model))) as run:
            self.prepare(model, folder)
            what = (model, self.objective(model), self.samples, settings, run, self.evaluate)
            limit = self._limit(session, seeds)
            notes, seconds = Trainer(*what, session.callbacks, self.location, limit).complete()
            log = run.entries()
        result, task = self.finish(model, log)
        return SeedResult(model, result, notes, log, seconds, task)

    def _limit(self, session: Session, seeds: int) -> TimeLimit | None:
        if session.clock is None or self.settings.minutes is None:
            return None
        began, (evaluated, last) = session.clock.seconds, self.evaluated_tokens()
        seconds, rest = (self.settings.minutes * 60 - began) / seeds, REPORT_SECONDS / seeds
        return TimeLimit(seconds, session.clock, began, last / max(evaluated, 1.0), rest, evaluated)

    def _keep(self, results: dict[int, SeedResult], best: int, notes: Sequence[str], report: bool) -> list[str]:
        """Write the report and the best model, then drop the checkpoints; what could not be drawn."""
        content = self.report(results, best)
        missing = write_report(self.folder, content, notes) if report else []
        self.text_model(results[best].model, results[best].task).save(self.folder / "model", model_card(content))
        for seed in results:  # of no use now, and several times the model's size
            Run(self._seed_folder(seed, len(results))).drop_checkpoints()
        return missing

    def report(self, results: dict[int, SeedResult], best: int) -> Report:
        """What report and card say."""
        logs, device = {seed: result.log for seed, result in results.items()}, results[best].model.device
        seconds = [result.seconds for result in results.values()]
        total = None if None in seconds else sum(filter(None, seconds))
        return Report(
            name=self.folder.resolve().name,
            training=run_table(self.rows, logs, best, total, self.reported_settings(), device),
            data=str(self.summary),
            logs=logs,
            **self.content(results, best),
        )


def begin(output: Path, settings: TrainSettings, device: torch.device, callbacks: Callbacks | None) -> Session:
    """Refuse, before anything is read, what the machine cannot do and a folder that is taken; the main process's
    callbacks, and the clock from here on. A run that came to its end is not begun again, and a model's own folder is no
    place for a run."""
    here = world()
    validate_hardware(settings.precision, settings.fsdp, device, here)
    if (output / "model").exists():
        raise FolderError(f"{output} already holds a trained model; choose another folder or remove it")
    if (output / "config.json").exists():
        raise FolderError(f"{output} is the folder of a model; choose another for the run")
    clock = None if settings.minutes is None else Clock()
    return Session(callbacks if callbacks is not None and here.is_main else NO_CALLBACKS, clock)


def without_dev(settings: TrainSettings) -> TrainSettings:
    """Without a dev set there is nothing to choose by: the run goes to its end, and its last weights are the best."""
    return dataclasses.replace(settings, evaluations=1, evaluate_every=None, patience=None)


def make_config(preset: Any, own: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """A preset with `own`, which follows from data and kind, and with what the user wants otherwise."""
    for name in changes:
        if name in own:
            raise InputError(f'changes: "{name}" follows from the vocabulary, the kind or the length of a sample')
    return type(preset).make(**{**dataclasses.asdict(preset), **own, **changes})


def content_hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()
