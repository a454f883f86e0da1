"""A run of training: one task, one model, one seed after the other.

Only the encoder, the task and the settings decide what comes of it; the folder is where it happens.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kinfolk.api.loaded import Encoder
from kinfolk.data.examples import AnyExample
from kinfolk.data.summary import DataSummary
from kinfolk.errors import FolderError
from kinfolk.models.family import Model, weights_hash, with_new_head
from kinfolk.tasks.task import EvalResult, Task
from kinfolk.training.runs import Run
from kinfolk.training.settings import TrainSettings
from kinfolk.training.trainer import Progress, Trainer

COLLAPSED = 0.02  # within this of the majority-class baseline, a run has learned nothing
# What an earlier task left in config.json is not handed on.
TASK_SETTINGS = ("null_threshold", "problem_type", "stride", "thresholds", "window")


@dataclass(frozen=True)
class Callbacks:
    """Called with what there is to know before training, and after each step."""

    before: Callable[[DataSummary, Sequence[str]], None] = lambda survey, fresh: None
    step: Callable[[int, Progress], None] = lambda seed, progress: None


@dataclass(frozen=True)
class Result:
    model: Model
    task: Task
    judged: EvalResult
    notes: list[str]
    log: list[dict[str, Any]]
    seconds: float | None  # None where an earlier process did a part of it

    @property
    def selection_score(self) -> float:
        return self.judged.selection_score

    def save(self, encoder: Encoder, output: Path, card: str) -> None:
        earlier = {name: value for name, value in encoder.hf_config.items() if name not in TASK_SETTINGS}
        public = earlier | self.task.to_hf()
        dataclasses.replace(encoder, model=self.model, recipe=None, hf_config=public).save(output / "model", card)


class Job:
    """One task on one model, for any number of seeds."""

    def __init__(
        self,
        encoder: Encoder,
        task: Task,
        learned: list[Any],
        held: list[Any],
        settings: TrainSettings,
        folder: Path,
        dropout: float | None = None,
    ):
        self.encoder, self.task, self.settings, self.folder = encoder, task, settings, folder
        self.dropout = dropout
        self.dataset = task.dataset(encoder.tokenizer, learned, encoder.context)
        self.held = task.dataset(encoder.tokenizer, held, encoder.context)
        self.data = content_hash([[_told(example) for example in side] for side in (learned, held)])
        self.start = weights_hash(encoder.model.body)
        self.places = [example.location for example in learned]
        self.fresh = self.fresh_model(settings.seed)[1]

    def fresh_model(self, seed: int) -> tuple[Model, list[str]]:
        return with_new_head(self.encoder.model, self.task.head, len(self.task.labels), seed, self.dropout)

    def train_all(self, seeds: int, callbacks: Callbacks) -> dict[int, Result]:
        """A result for each seed, from that of the settings on."""
        numbers = range(self.settings.seed, self.settings.seed + seeds)
        with self._whole_folder(seeds):
            return {seed: self.train(seed, seeds > 1, callbacks) for seed in numbers}

    @contextmanager
    def _whole_folder(self, seeds: int) -> Iterator[None]:
        """Several seeds have folders of their own in the job's; it is theirs together, and no other run's."""
        if seeds == 1:
            yield
            return
        told = {"seeds": seeds, "kind": self.task.kind, "start": self.start, "data": self.data}
        run = Run.open(self.folder, told)
        try:
            yield
        finally:
            run.close()

    def train(self, seed: int, several: bool, callbacks: Callbacks) -> Result:
        settings = dataclasses.replace(self.settings, seed=seed)
        model, _ = self.fresh_model(seed)

        def evaluate(model: Model) -> tuple[float, dict[str, float]]:
            judged = self.judge(self.task, model)
            return judged.selection_score, judged.metrics

        run = Run.open(self.place(seed, several), self.description(settings, model))
        try:
            watch = partial(callbacks.step, seed)
            objective, items = self.task.objective(model), self.dataset.samples
            trainer = Trainer(model, objective, items, settings, run, evaluate, watch, self.places.__getitem__)
            found = trainer.complete()
        finally:
            run.close()
        task = self.task.calibrate(model, self.held)
        return Result(model, task, self.judge(task, model), found.notes, found.log, found.seconds)

    def place(self, seed: int, several: bool) -> Path:
        """The folder of a seed's run."""
        return self.folder / f"seed-{seed}" if several else self.folder

    def drop_checkpoints(self, seeds: Collection[int]) -> None:
        """When the model is saved they are of no use, and take several times its space."""
        for seed in seeds:
            Run(self.place(seed, len(seeds) > 1)).drop_checkpoints()

    def judge(self, task: Task, model: Model) -> EvalResult:
        return task.evaluate(model, self.held) if self.held.samples else EvalResult({})

    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        """All that the weights depend on: a run goes on only if this is the same."""
        posed: dict[str, Any] = {"kind": self.task.kind} | dataclasses.asdict(self.task)  # type: ignore[call-overload]
        posed.pop("pairs", None)  # the data tell, and older runs do not say it
        return {
            "task": posed,
            "settings": settings.described(),
            "family": model.family.name,
            "config": dataclasses.asdict(model.config),
            "start": self.start,
            "tokenizer": content_hash(self.encoder.tokenizer.to_json()),
            "data": self.data,
        }

    def collapsed(self, found: Mapping[int, Mapping[str, float]]) -> list[str]:
        """Seeds that learned nothing, as small data sometimes has it."""
        if not self.held.samples:
            return []
        if self.task.kind != "classify":
            first = {seed: next(iter(metrics.items())) for seed, metrics in found.items()}
            told = "seed {} learned nothing that the dev set shows: {} {:.4f}"
            return [told.format(seed, name, value) for seed, (name, value) in first.items() if value <= COLLAPSED]
        counts: Counter[int] = Counter(self.held.targets)  # type: ignore[attr-defined]
        commonest = max(counts.values()) / counts.total()
        stuck = [seed for seed, metrics in found.items() if metrics["accuracy"] <= commonest + COLLAPSED]
        return [f"seed {seed} is not better than the majority-class baseline" for seed in stuck]


def refuse_finished(output: Path) -> None:
    """A run that came to its end is not begun again, and a model's own folder is no place for a run."""
    if (output / "model").exists():
        raise FolderError(f"{output} already holds a trained model; choose another folder or remove it")
    if (output / "config.json").exists():
        raise FolderError(f"{output} is the folder of a model; choose another for the run")


def content_hash(content: Any) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()


def _told(example: AnyExample) -> list[Any]:
    """An example without the place it was read from."""
    told = dataclasses.asdict(example)
    return [value for name, value in told.items() if name != "where"]
