"""One experiment behind fine-tuning, pre-training and translators.

    data -> summary -> train -> evaluate -> report, card, pictures -> saved model

What lies in its folder:

    run.json, log.jsonl, step-N   the run; the same call resumes it after a crash. Checkpoints go when all is saved
    seed-N/                       one such run per seed, where several are asked for
    model/                        the best model, as a folder that `kinfolk.load` opens, with its card
    report.md and its pictures    metrics, notes, settings (report.py)

A kind of training brings only what is its own: samples, objective, evaluation, and what to report.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kinfolk.api.report import Report, model_card, write_report
from kinfolk.checkpoints.text_model import TextModel
from kinfolk.errors import FolderError
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.tasks.task import EvalResult
from kinfolk.training.distributed import world
from kinfolk.training.runs import Run
from kinfolk.training.settings import TrainSettings
from kinfolk.training.trainer import Plan, Progress, Trainer


@dataclass(frozen=True)
class Callbacks:
    """Called before training with its summary and the names of newly initialized parameters, and after each step."""

    before: Callable[[Any, Sequence[str]], None] = lambda summary, initialized: None
    step: Callable[[int, Progress], None] = lambda seed, progress: None


@dataclass(frozen=True)
class SeedResult:
    """The best model of one seed, evaluated on the dev set. `task` is the calibrated task of a fine-tuned model."""

    model: Model
    result: EvalResult
    notes: list[str]
    log: list[dict[str, Any]]
    seconds: float | None  # None where an earlier process did a part of it
    task: Any = None


class Experiment(ABC):
    """One objective on one kind of model, for any number of seeds."""

    settings: TrainSettings
    folder: Path
    samples: Sequence[Sample]
    plan: Plan | None = None  # which samples make a batch; without one they are shuffled

    @abstractmethod
    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        """A model to train, and the names of its newly initialized parameters."""

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
    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        """All that the weights depend on: a run is resumed only if this is the same."""

    @abstractmethod
    def location(self, example: int) -> str:
        """Where an example stands, for a message."""

    @abstractmethod
    def text_model(self, result: SeedResult) -> TextModel:
        """The trained model with its tokenizer, as it is saved."""

    @abstractmethod
    def report(self, results: dict[int, SeedResult], best: int) -> Report:
        """What report and card say."""

    def timing_eval(self, model: Model) -> object:
        """What is timed to plan a run by minutes, where an untrained model would take longer than a trained one."""
        return self.evaluate(model)

    def train_seeds(self, seeds: int, callbacks: Callbacks) -> dict[int, SeedResult]:
        """A result for each seed, from that of the settings on."""
        numbers = range(self.settings.seed, self.settings.seed + seeds)
        with self._shared_folder(seeds) if seeds > 1 else nullcontext():
            return {seed: self.train(seed, self.seed_folder(seed, seeds), callbacks) for seed in numbers}

    @contextmanager
    def _shared_folder(self, seeds: int) -> Iterator[None]:
        """The folders of several seeds lie in the experiment's, which is locked as a whole and no other run's."""
        model, _ = self.init_model(self.settings.seed)
        description = self.description(self.settings, model)
        run = Run.open(self.folder, {"seeds": seeds} | {name: description.get(name) for name in ("start", "data")})
        try:
            yield
        finally:
            run.close()

    def seed_folder(self, seed: int, seeds: int) -> Path:
        """The folder of a seed's run."""
        return self.folder / f"seed-{seed}" if seeds > 1 else self.folder

    def train(self, seed: int, folder: Path, callbacks: Callbacks) -> SeedResult:
        """Run one seed to the end, or resume it."""
        settings = dataclasses.replace(self.settings, seed=seed)
        model, _ = self.init_model(seed)
        run = Run.open(folder, self.description(settings, model))
        try:
            trainer = Trainer(
                model,
                self.objective(model),
                self.samples,
                settings,
                run,
                self.evaluate,
                partial(callbacks.step, seed),
                self.location,
                plan=self.plan,
                timing_eval=self.timing_eval,
            )
            trained = trainer.complete()
        finally:
            run.close()
        result, task = self.finish(model, trained.log)
        return SeedResult(model, result, trained.notes, trained.log, trained.seconds, task)

    def keep(self, results: dict[int, SeedResult], best: int, notes: Sequence[str], report: bool = True) -> list[str]:
        """Write the report and the best model, then drop the checkpoints; what could not be drawn."""

        def write() -> list[str]:
            content = self.report(results, best)
            missing = write_report(self.folder, content, notes) if report else []
            self.text_model(results[best]).save(self.folder / "model", model_card(content))
            for seed in results:  # of no use now, and several times the model's size
                Run(self.seed_folder(seed, len(results))).drop_checkpoints()
            return missing

        return world().on_main(write) or []


def check_unfinished(output: Path) -> None:
    """A run that came to its end is not begun again, and a model's own folder is no place for a run."""
    if (output / "model").exists():
        raise FolderError(f"{output} already holds a trained model; choose another folder or remove it")
    if (output / "config.json").exists():
        raise FolderError(f"{output} is the folder of a model; choose another for the run")


def content_hash(content: Any) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()
