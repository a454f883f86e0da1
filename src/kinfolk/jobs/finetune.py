"""Fine-tuning for whole texts: a table in; a trained, evaluated, saved model out.

What lies in the output folder:

    run.json, log.jsonl, step-N   the run; the same call goes on with it after a crash
    seed-N/                       one such run per seed, where several are asked for
    model/                        the best model, as a folder that kinfolk and transformers load
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from kinfolk.data.examples import Example
from kinfolk.data.labelled import read_examples
from kinfolk.data.splits import stratified_split
from kinfolk.data.survey import Survey, survey
from kinfolk.errors import FolderError, InputError
from kinfolk.jobs.loaded import Encoder, load
from kinfolk.jobs.scoring import score, text_items
from kinfolk.jobs.text_task import TextTask
from kinfolk.models.model import Model, weights_hash, with_fresh_head
from kinfolk.text.tokenizer import Text
from kinfolk.training.runs import Run
from kinfolk.training.trainer import Progress, Trainer, TrainSettings

COLLAPSED = 0.02  # within this of guessing the commonest class, a run has learned nothing


@dataclass(frozen=True)
class Finetuned:
    """What came of it: the folder, the metrics on the dev set (of the best seed), and of every seed."""

    folder: Path
    metrics: Mapping[str, float]
    by_seed: Mapping[int, Mapping[str, float]]
    survey: Survey
    fresh: Sequence[str]
    notes: Sequence[str]

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
    train: str | Path | Sequence[Example],
    output: str | Path,
    dev: str | Path | Sequence[Example] | None = None,
    task: str = "classify",
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    class_weights: str | Mapping[str, float] | None = None,
    max_bad_rows: int = 0,
    seeds: int = 1,
    device: str = "auto",
    settings: TrainSettings | None = None,
    watcher: Watcher | None = None,
) -> Finetuned:
    """Fine-tune a model on labelled texts or pairs; without `dev`, a tenth of `train` is held out.

    The same call on the same folder goes on where it stopped; other data or settings are refused.
    """
    settings, watcher, output = settings or TrainSettings(), watcher or Watcher(), Path(output)
    if seeds < 1:
        raise InputError("seeds must be at least 1")
    _refuse_finished(output)
    encoder = load(model, device)
    columns: dict[str, Any] = {"text": text, "pair": pair, "label": label, "header": header}
    learned, bad = _read(train, task, columns, max_bad_rows)
    if dev is None:
        learned, held = stratified_split(learned, seed=settings.seed)
    else:
        held, more = _read(dev, task, columns, max_bad_rows)
        bad += more
    text_task = TextTask.of(task, learned, class_weights)
    job = _Job(encoder, text_task, learned, held, settings, output)
    found = survey(learned, held, encoder.tokenizer, encoder.context)
    fresh = with_fresh_head(encoder.model, "classify", len(text_task.labels))[1]
    watcher.before(found, fresh)
    results = {}
    for number in range(seeds):
        seed = settings.seed + number
        results[seed] = job.train(seed, seeds > 1, watcher)
    best = max(results, key=lambda seed: results[seed].merit)
    results[best].save(encoder, output)
    notes = [f"{bad} bad rows were left out"] * bool(bad) + [
        note for result in results.values() for note in result.notes
    ]
    notes += job.collapsed({seed: result.metrics for seed, result in results.items()})
    by_seed = {seed: result.metrics for seed, result in results.items()}
    return Finetuned(output, results[best].metrics, by_seed, found, fresh, notes)


def _refuse_finished(output: Path) -> None:
    if (output / "model").exists():
        raise FolderError(f"{output} already holds a trained model; choose another folder or remove it")


def _read(
    source: str | Path | Sequence[Example], kind: str, columns: Mapping[str, Any], max_bad_rows: int
) -> tuple[list[Example], int]:
    if not isinstance(source, str | Path):
        return list(source), 0
    found = read_examples(source, kind, max_bad_rows=max_bad_rows, **columns)
    return found.examples, found.bad


def texts_of(examples: Sequence[Example]) -> list[Text]:
    """What the tokenizer reads of them."""
    return [example.text if example.pair is None else (example.text, example.pair) for example in examples]


@dataclass(frozen=True)
class _Result:
    model: Model
    task: TextTask
    merit: float
    metrics: dict[str, float]
    notes: list[str]

    def save(self, encoder: Encoder, output: Path) -> None:
        earlier = {name: value for name, value in encoder.public.items() if name != "thresholds"}
        public = earlier | self.task.to_public()
        dataclasses.replace(encoder, model=self.model, recipe=None, public=public).save(output / "model")


class _Job:
    """One task on one model, for any number of seeds."""

    def __init__(
        self,
        encoder: Encoder,
        task: TextTask,
        learned: list[Example],
        held: list[Example],
        settings: TrainSettings,
        folder: Path,
    ):
        self.encoder, self.task, self.settings, self.folder = encoder, task, settings, folder
        self.targets = task.targets(held)
        self.items = text_items(encoder.tokenizer, texts_of(learned), task.targets(learned), encoder.context)
        self.held = text_items(encoder.tokenizer, texts_of(held), self.targets, encoder.context)
        self.data = _hash([[dataclasses.astuple(example)[:3] for example in side] for side in (learned, held)])
        self.start = weights_hash(encoder.model)
        self.places = [example.where for example in learned]

    def train(self, seed: int, several: bool, watcher: Watcher) -> _Result:
        settings = dataclasses.replace(self.settings, seed=seed)
        model, _ = with_fresh_head(self.encoder.model, "classify", len(self.task.labels), seed)
        objective = self.task.objective(model)

        def evaluate(model: Model) -> tuple[float, dict[str, float]]:
            return self.task.merit(score(model, objective, self.held), self.targets)

        run = Run.open(self.folder / f"seed-{seed}" if several else self.folder, self._description(settings, model))
        try:
            watch = partial(watcher.step, seed)
            items = self.items.items
            trainer = Trainer(model, objective, items, settings, run, evaluate, watch, self.places.__getitem__)
            notes = trainer.train()
            trainer.load_best()
        finally:
            run.close()
        scores = score(model, objective, self.held)
        merit, metrics = self.task.merit(scores, self.targets)
        return _Result(model, self._decided(scores), merit, metrics, notes)

    def _decided(self, scores: np.ndarray) -> TextTask:
        """Thresholds of labels are tuned on the dev set and kept with the model."""
        if self.task.kind != "multilabel":
            return self.task
        from kinfolk.training.metrics import best_thresholds

        chosen = best_thresholds(scores, self.task.truth(self.targets))
        return dataclasses.replace(self.task, thresholds=tuple(float(limit) for limit in chosen))

    def _description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        """All that the weights depend on: a run goes on only if this is the same."""
        return {
            "task": dataclasses.asdict(self.task),
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
        commonest = max(np.bincount(self.targets)) / len(self.targets)
        stuck = [seed for seed, metrics in found.items() if metrics["accuracy"] <= commonest + COLLAPSED]
        return [f"seed {seed} did no better than always guessing the commonest class" for seed in stuck]


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()
