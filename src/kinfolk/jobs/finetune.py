"""Fine-tuning for any task: a file in; a trained, evaluated, saved model out.

What lies in the output folder:

    run.json, log.jsonl, step-N   the run; the same call goes on with it after a crash
    seed-N/                       one such run per seed, where several are asked for
    model/                        the best model, as a folder that kinfolk and transformers load, with its card
    report.md and what it shows   metrics, pictures, mistakes (report.py)
    tensorboard/                  where asked for: the log as TensorBoard reads it
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kinfolk.data.examples import AnyExample
from kinfolk.data.splits import stratified_split
from kinfolk.data.survey import Survey, survey
from kinfolk.errors import FolderError, InputError, choose, first_few
from kinfolk.jobs.account import Account, over_seeds
from kinfolk.jobs.card import model_card
from kinfolk.jobs.loaded import Encoder, load_encoder
from kinfolk.jobs.reading import READERS, Columns, read_for
from kinfolk.jobs.report import write_report
from kinfolk.jobs.task import Judged, Task, TaskOptions, Windows
from kinfolk.jobs.tasks import pose
from kinfolk.models.model import Model, weights_hash, with_fresh_head
from kinfolk.training.distributed import world
from kinfolk.training.runs import Run
from kinfolk.training.trainer import Progress, Trainer, TrainSettings

COLLAPSED = 0.02  # within this of guessing the commonest class, a run has learned nothing
# What an earlier task left in config.json is not handed on.
TASK_SETTINGS = ("null_threshold", "problem_type", "stride", "thresholds", "window")
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
        return over_seeds(self.by_seed)


@dataclass(frozen=True)
class Watcher:
    """Called with what there is to know before training, and after each step."""

    before: Callable[[Survey, Sequence[str]], None] = lambda survey, fresh: None
    step: Callable[[int, Progress], None] = lambda seed, progress: None


def finetune(
    model: str | Path | Encoder,
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
    tensorboard: bool = False,
    report: bool = True,
    job: Callable[..., Job] | None = None,
    **training: Any,
) -> Finetuned:
    """Fine-tune a model on labelled texts, tagged sentences, questions or choices.

    `model` may be loaded already; it is not changed. `task` is classify, multilabel, regress, tag, answer or choose.
    Without `dev`, a tenth of `train` is held out; an empty list holds nothing out, and the last weights are kept. The
    same call on the same folder goes on where it stopped; other data or settings are refused. How to train is said by
    name, as in `epochs=5, rate=1e-4, batch_size=16` (all names: TrainSettings and OptimiserSettings), or by
    `settings`. `tensorboard` also
    writes the log as TensorBoard reads it; without `report` there is none. `job` is another way to train than `Job`,
    such as that of features.py.
    """
    here = world()
    settings, output = _settings(settings, training), Path(output)
    watcher = watcher if watcher is not None and here.leads else Watcher()
    if seeds < 1:
        raise InputError("seeds must be at least 1")
    choose("task", task, READERS)
    refuse_finished(output)
    encoder = model if isinstance(model, Encoder) else load_encoder(model, device)
    columns = Columns(text, pair, label, header)
    learned, bad = _read(train, task, columns, max_bad_rows)
    if dev is None:
        learned, held = stratified_split(learned, seed=settings.seed)
    else:
        held, more = _read(dev, task, columns, max_bad_rows)
        bad += more
    if not held:
        settings = _blind(settings, seeds)
    posed = pose(task, learned, TaskOptions(class_weights, crf, Windows(window, stride)))
    found = survey(learned, held, encoder.tokenizer, encoder.context)
    work = (job or Job)(encoder, posed, learned, held, settings, output)
    with _on_board(watcher, output, seeds > 1) if tensorboard and here.leads else nullcontext(watcher) as watcher:
        watcher.before(found, work.fresh)
        results = {seed: work.train(seed, seeds > 1, watcher) for seed in range(settings.seed, settings.seed + seeds)}
    best = max(results, key=lambda seed: results[seed].merit)
    by_seed = {seed: result.judged.metrics for seed, result in results.items()}
    notes = [f"{bad} bad rows were left out"] * bool(bad)
    notes += [note for result in results.values() for note in result.notes] + work.collapsed(by_seed)

    def keep() -> list[str]:
        account = _account(work, results, best, found, _names(train, dev))
        results[best].save(encoder, output, model_card(account))
        return write_report(output, account, notes) if report else []

    notes += here.lead(keep) or []
    return Finetuned(output, by_seed[best], by_seed, found, work.fresh, notes, results[best].judged)


def _settings(given: TrainSettings | None, named: Mapping[str, Any]) -> TrainSettings:
    if given is None:
        return TrainSettings.make(**named)
    if named:
        raise InputError(f"{first_few(named)}: say it in settings, or leave those out and name them all")
    return given


def refuse_finished(output: Path) -> None:
    """A run that came to its end is not begun again."""
    if (output / "model").exists():
        raise FolderError(f"{output} already holds a trained model; choose another folder or remove it")


def _blind(settings: TrainSettings, seeds: int) -> TrainSettings:
    """Without a dev set there is nothing to choose by: the run goes to its end, and its last weights are the best."""
    if seeds > 1:
        raise InputError("the best of several seeds is chosen on a dev set; give one, or use seeds=1")
    return dataclasses.replace(settings, evaluations=1, patience=None)


@contextmanager
def _on_board(watcher: Watcher, output: Path, several: bool) -> Iterator[Watcher]:
    """The watcher, and TensorBoard's files beside it."""
    from kinfolk.training.tensorboard import Board  # an extra

    def step(seed: int, progress: Progress) -> None:
        watcher.step(seed, progress)
        board.step(seed, progress)

    with Board(output / "tensorboard", several) as board:
        yield dataclasses.replace(watcher, step=step)


def _names(train: Source, dev: Source | None) -> tuple[str, str]:
    """What the card calls the data: files without their folders."""
    learned, held = (Path(side).name if isinstance(side, str | Path) else "a list" for side in (train, dev))
    return learned, f"held out of {learned}" if dev is None else held


def _read(source: Source, kind: str, columns: Columns, max_bad_rows: int) -> tuple[list[Any], int]:
    if not isinstance(source, str | Path):
        return list(source), 0
    found = read_for(kind, source, columns, max_bad_rows)
    return found.examples, found.bad


@dataclass(frozen=True)
class Result:
    model: Model
    task: Task
    judged: Judged
    notes: list[str]
    log: list[dict[str, Any]]
    seconds: float | None  # None where an earlier process did a part of it

    @property
    def merit(self) -> float:
        return self.judged.merit

    def save(self, encoder: Encoder, output: Path, card: str) -> None:
        earlier = {name: value for name, value in encoder.public.items() if name not in TASK_SETTINGS}
        public = earlier | self.task.to_public()
        dataclasses.replace(encoder, model=self.model, recipe=None, public=public).save(output / "model", card)


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
    ):
        self.encoder, self.task, self.settings, self.folder = encoder, task, settings, folder
        self.material = task.material(encoder.tokenizer, learned, encoder.context)
        self.held = task.material(encoder.tokenizer, held, encoder.context)
        self.data = content_hash([[_told(example) for example in side] for side in (learned, held)])
        self.start = weights_hash(encoder.model)
        self.places = [example.where for example in learned]
        self.fresh = self.fresh_model(settings.seed)[1]

    def fresh_model(self, seed: int) -> tuple[Model, list[str]]:
        return with_fresh_head(self.encoder.model, self.task.head, len(self.task.labels), seed)

    def train(self, seed: int, several: bool, watcher: Watcher) -> Result:
        settings = dataclasses.replace(self.settings, seed=seed)
        model, _ = self.fresh_model(seed)

        def evaluate(model: Model) -> tuple[float, dict[str, float]]:
            judged = self.judge(self.task, model)
            return judged.merit, judged.metrics

        run = Run.open(self.folder / f"seed-{seed}" if several else self.folder, self.description(settings, model))
        try:
            watch = partial(watcher.step, seed)
            objective, items = self.task.objective(model), self.material.items
            trainer = Trainer(model, objective, items, settings, run, evaluate, watch, self.places.__getitem__)
            found = trainer.complete()
        finally:
            run.close()
        task = self.task.decided(model, self.held)
        return Result(model, task, self.judge(task, model), found.notes, found.log, found.seconds)

    def judge(self, task: Task, model: Model) -> Judged:
        return task.judge(model, self.held) if self.held.items else Judged({})

    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        """All that the weights depend on: a run goes on only if this is the same."""
        return {
            "task": {"kind": self.task.kind} | dataclasses.asdict(self.task),  # type: ignore[call-overload]
            "settings": settings.described(),
            "family": model.family.name,
            "config": dataclasses.asdict(model.config),
            "start": self.start,
            "tokenizer": content_hash(self.encoder.tokenizer.to_json()),
            "data": self.data,
        }

    def collapsed(self, found: Mapping[int, Mapping[str, float]]) -> list[str]:
        """Seeds that learned nothing, as small data sometimes has it."""
        if self.task.kind != "classify" or not self.held.items:
            return []
        counts: Counter[int] = Counter(self.held.targets)  # type: ignore[attr-defined]
        commonest = max(counts.values()) / counts.total()
        stuck = [seed for seed, metrics in found.items() if metrics["accuracy"] <= commonest + COLLAPSED]
        return [f"seed {seed} did no better than always guessing the commonest class" for seed in stuck]


def _account(job: Job, results: Mapping[int, Result], best: int, found: Survey, names: tuple[str, str]) -> Account:
    seconds = [result.seconds for result in results.values() if result.seconds is not None]
    return Account(
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
    )


def content_hash(content: Any) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()


def _told(example: AnyExample) -> list[Any]:
    """An example without the place it was read from."""
    told = dataclasses.asdict(example)
    return [value for name, value in told.items() if name != "where"]
