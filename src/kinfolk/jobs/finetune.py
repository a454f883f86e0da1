"""Fine-tuning for any task: a file in; a trained, evaluated, saved model out.

What lies in the output folder:

    run.json, log.jsonl, step-N   the run; the same call goes on with it after a crash
    seed-N/                       one such run per seed, where several are asked for
    model/                        the best model, as a folder that kinfolk and transformers load
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from kinfolk.data.examples import AnyExample
from kinfolk.data.splits import stratified_split
from kinfolk.data.survey import Survey, survey
from kinfolk.errors import FolderError, InputError, choose
from kinfolk.jobs.loaded import Encoder, load
from kinfolk.jobs.reading import READERS, Columns, read_for
from kinfolk.jobs.task import Judged, Task, TaskOptions, Windows
from kinfolk.jobs.tasks import pose
from kinfolk.models.model import Model, weights_hash, with_fresh_head
from kinfolk.training.runs import Run
from kinfolk.training.trainer import Progress, Trainer, TrainSettings

COLLAPSED = 0.02  # within this of guessing the commonest class, a run has learned nothing
Source = str | Path | Sequence[AnyExample]


@dataclass(frozen=True)
class Finetuned:
    """What came of it: the folder, the metrics on the dev set (of the best seed), and of every seed.

    `judged` says where the best model errs on the dev set.
    """

    folder: Path
    metrics: Mapping[str, float]
    by_seed: Mapping[int, Mapping[str, float]]
    survey: Survey
    fresh: Sequence[str]
    notes: Sequence[str]
    judged: Judged

    def summary(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation over the seeds, by metric."""
        columns = {name: [found[name] for found in self.by_seed.values()] for name in self.metrics}
        return {name: (mean(values), stdev(values) if len(values) > 1 else 0.0) for name, values in columns.items()}


@dataclass(frozen=True)
class Watcher:
    """Called with what there is to know before training, and after each step."""

    before: Callable[[Survey, Sequence[str]], None] = lambda survey, fresh: None
    step: Callable[[int, Progress], None] = lambda seed, progress: None


def finetune(
    model: str | Path,
    train: Source,
    output: str | Path,
    dev: Source | None = None,
    task: str = "classify",
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    class_weights: str | Mapping[str, float] | None = None,
    crf: bool = False,
    window: int | None = None,
    stride: int | None = None,
    max_bad_rows: int = 0,
    seeds: int = 1,
    device: str = "auto",
    settings: TrainSettings | None = None,
    watcher: Watcher | None = None,
) -> Finetuned:
    """Fine-tune a model on labelled texts, tagged sentences, questions or choices.

    `task` is classify, multilabel, regress, tag, answer or choose. Without `dev`, a tenth of `train` is held out. The
    same call on the same folder goes on where it stopped; other data or settings are refused.
    """
    settings, watcher, output = settings or TrainSettings(), watcher or Watcher(), Path(output)
    if seeds < 1:
        raise InputError("seeds must be at least 1")
    choose("task", task, READERS)
    _refuse_finished(output)
    encoder = load(model, device)
    columns = Columns(text, pair, label, header)
    learned, bad = _read(train, task, columns, max_bad_rows)
    if dev is None:
        learned, held = stratified_split(learned, seed=settings.seed)
    else:
        held, more = _read(dev, task, columns, max_bad_rows)
        bad += more
    posed = pose(task, learned, TaskOptions(class_weights, crf, Windows(window, stride)))
    found = survey(learned, held, encoder.tokenizer, encoder.context)
    job = _Job(encoder, posed, learned, held, settings, output)
    watcher.before(found, job.fresh)
    results = {seed: job.train(seed, seeds > 1, watcher) for seed in range(settings.seed, settings.seed + seeds)}
    best = max(results, key=lambda seed: results[seed].merit)
    results[best].save(encoder, output)
    by_seed = {seed: result.judged.metrics for seed, result in results.items()}
    notes = [f"{bad} bad rows were left out"] * bool(bad)
    notes += [note for result in results.values() for note in result.notes] + job.collapsed(by_seed)
    return Finetuned(output, by_seed[best], by_seed, found, job.fresh, notes, results[best].judged)


def _refuse_finished(output: Path) -> None:
    if (output / "model").exists():
        raise FolderError(f"{output} already holds a trained model; choose another folder or remove it")


def _read(source: Source, kind: str, columns: Columns, max_bad_rows: int) -> tuple[list[Any], int]:
    if not isinstance(source, str | Path):
        return list(source), 0
    found = read_for(kind, source, columns, max_bad_rows)
    return found.examples, found.bad


@dataclass(frozen=True)
class _Result:
    model: Model
    task: Task
    judged: Judged
    notes: list[str]

    @property
    def merit(self) -> float:
        return next(iter(self.judged.metrics.values()))

    def save(self, encoder: Encoder, output: Path) -> None:
        earlier = {name: value for name, value in encoder.public.items() if name not in ("thresholds", "problem_type")}
        public = earlier | self.task.to_public()
        dataclasses.replace(encoder, model=self.model, recipe=None, public=public).save(output / "model")


class _Job:
    """One task on one model, for any number of seeds."""

    def __init__(
        self,
        encoder: Encoder,
        task: Task,
        learned: list[Any],
        held: list[Any],
        settings: TrainSettings,
        folder: Path,
    ):
        self.encoder, self.task, self.settings, self.folder = encoder, task, settings, folder
        self.material = task.material(encoder.tokenizer, learned, encoder.context)
        self.held = task.material(encoder.tokenizer, held, encoder.context)
        self.data = _hash([[_told(example) for example in side] for side in (learned, held)])
        self.start = weights_hash(encoder.model)
        self.places = [example.where for example in learned]
        self.fresh = self._fresh(settings.seed)[1]

    def _fresh(self, seed: int) -> tuple[Model, list[str]]:
        return with_fresh_head(self.encoder.model, self.task.head, len(self.task.labels), seed)

    def train(self, seed: int, several: bool, watcher: Watcher) -> _Result:
        settings = dataclasses.replace(self.settings, seed=seed)
        model, _ = self._fresh(seed)

        def evaluate(model: Model) -> tuple[float, dict[str, float]]:
            metrics = self.task.judge(model, self.held).metrics
            return next(iter(metrics.values())), metrics

        run = Run.open(self.folder / f"seed-{seed}" if several else self.folder, self._description(settings, model))
        try:
            watch = partial(watcher.step, seed)
            objective, items = self.task.objective(model), self.material.items
            trainer = Trainer(model, objective, items, settings, run, evaluate, watch, self.places.__getitem__)
            notes = trainer.train()
            trainer.load_best()
        finally:
            run.close()
        task = self.task.decided(model, self.held)
        return _Result(model, task, task.judge(model, self.held), notes)

    def _description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        """All that the weights depend on: a run goes on only if this is the same."""
        return {
            "task": {"kind": self.task.kind} | dataclasses.asdict(self.task),  # type: ignore[call-overload]
            "settings": dataclasses.asdict(settings),
            "family": model.family.name,
            "config": dataclasses.asdict(model.config),
            "start": self.start,
            "tokenizer": _hash(self.encoder.tokenizer.to_json()),
            "data": self.data,
        }

    def collapsed(self, found: Mapping[int, Mapping[str, float]]) -> list[str]:
        """Seeds that learned nothing, as small data sometimes has it."""
        if self.task.kind != "classify":
            return []
        counts: Counter[int] = Counter(self.held.targets)  # type: ignore[attr-defined]
        commonest = max(counts.values()) / counts.total()
        stuck = [seed for seed, metrics in found.items() if metrics["accuracy"] <= commonest + COLLAPSED]
        return [f"seed {seed} did no better than always guessing the commonest class" for seed in stuck]


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()


def _told(example: AnyExample) -> list[Any]:
    """An example without the place it was read from."""
    told = dataclasses.asdict(example)
    return [value for name, value in told.items() if name != "where"]
