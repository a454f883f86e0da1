"""The experiments behind `finetune`: one task on one encoder, fine-tuned as a whole or frozen under a head."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from kinfolk.api.experiment import Callbacks, Experiment, SeedResult, content_hash
from kinfolk.api.feature_cache import FeatureModel, Features, features_of, init_probe, scaled
from kinfolk.api.finetune_report import FinetuneSummary
from kinfolk.api.frozen import FrozenHeadConfig
from kinfolk.api.report import Report
from kinfolk.checkpoints.text_model import TextModel
from kinfolk.data.examples import AnyExample
from kinfolk.data.summary import DataSummary
from kinfolk.models.family import Model, weights_hash, with_new_head
from kinfolk.nn.heads import ProbeConfig
from kinfolk.objectives.objective import Objective
from kinfolk.tasks.task import EvalResult, Task
from kinfolk.training.distributed import world
from kinfolk.training.runs import Run
from kinfolk.training.settings import TrainSettings

COLLAPSED = 0.02  # within this of the majority-class baseline, a run has learned nothing
# What an earlier task left in config.json is not handed on.
TASK_SETTINGS = ("null_threshold", "problem_type", "stride", "thresholds", "window")


class SupervisedExperiment(Experiment):
    """One task on one encoder."""

    frozen: FrozenHeadConfig | None = None

    def __init__(
        self,
        encoder: TextModel,
        task: Task,
        sides: tuple[list[Any], list[Any]],
        data: DataSummary,
        names: tuple[str, str],
        settings: TrainSettings,
        folder: Path,
        dropout: float | None = None,
    ):
        """`sides` are the examples to train on and those of the dev set, `names` what a card calls them."""
        self.encoder, self.task, self.settings, self.folder = encoder, task, settings, folder
        self.summary, self.names, self.dropout = data, names, dropout
        self.dataset, self.dev = (task.dataset(encoder.tokenizer, side, encoder.context) for side in sides)
        self.samples = self.dataset.samples
        self.data_hash = content_hash([[_content(example) for example in side] for side in sides])
        self.start_hash = weights_hash(encoder.model.body)
        self.locations: list[str] = [example.location for example in sides[0]]
        self.initialized = self.init_model(settings.seed)[1]

    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        return with_new_head(self.encoder.model, self.task.head, len(self.task.labels), seed, self.dropout)

    def objective(self, model: Model) -> Objective:
        return self.task.objective(model)

    def evaluate(self, model: Model) -> tuple[float, dict[str, float]]:
        result = self.evaluate_task(self.task, model)
        return result.selection_score, result.metrics

    def evaluate_task(self, task: Task, model: Model) -> EvalResult:
        """On the dev set, if there is one."""
        return task.evaluate(model, self.dev) if self.dev.samples else EvalResult({})

    def finish(self, model: Model, log: Sequence[dict[str, Any]]) -> tuple[EvalResult, Task]:
        task = self.task.calibrate(model, self.dev)
        return self.evaluate_task(task, model), task

    def location(self, example: int) -> str:
        return self.locations[example]

    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        task: dict[str, Any] = {"kind": self.task.kind} | dataclasses.asdict(self.task)  # type: ignore[call-overload]
        task.pop("pairs", None)  # follows from the data
        return {
            "task": task,
            "settings": settings.described(),
            "family": model.family.name,
            "config": dataclasses.asdict(model.config),
            "start": self.start_hash,
            "tokenizer": content_hash(self.encoder.tokenizer.to_json()),
            "data": self.data_hash,
        }

    def text_model(self, result: SeedResult) -> TextModel:
        earlier = {name: value for name, value in self.encoder.hf_config.items() if name not in TASK_SETTINGS}
        hf_config = earlier | result.task.to_hf()
        return dataclasses.replace(self.encoder, model=result.model, recipe=None, hf_config=hf_config)

    def report(self, results: dict[int, SeedResult], best: int) -> Report:
        seconds = [result.seconds for result in results.values() if result.seconds is not None]
        return FinetuneSummary(
            name=self.folder.resolve().name,
            base=self.encoder.name,
            model=results[best].model,
            task=results[best].task,
            data=self.summary,
            train=self.names[0],
            dev=self.names[1],
            settings=self.settings,
            result=results[best].result,
            by_seed={seed: result.result.metrics for seed, result in results.items()},
            best=best,
            logs={seed: result.log for seed, result in results.items()},
            seconds=sum(seconds) if len(seconds) == len(results) else None,
            frozen=self.frozen,
        ).report()

    def collapsed(self, by_seed: Mapping[int, Mapping[str, float]]) -> list[str]:
        """Notes on seeds that learned nothing, as happens on small data."""
        if not self.dev.samples:
            return []
        if self.task.kind != "classify":
            first = {seed: next(iter(metrics.items())) for seed, metrics in by_seed.items()}
            message = "seed {} learned nothing that the dev set shows: {} {:.4f}"
            return [message.format(seed, *item) for seed, item in first.items() if item[1] <= COLLAPSED]
        counts: Counter[int] = Counter(self.dev.targets)  # type: ignore[attr-defined]
        majority = max(counts.values()) / counts.total()
        stuck = [seed for seed, metrics in by_seed.items() if metrics["accuracy"] <= majority + COLLAPSED]
        return [f"seed {seed} is not better than the majority-class baseline" for seed in stuck]


class FrozenExperiment(SupervisedExperiment):
    """A head on the cached features of a frozen encoder."""

    def __init__(self, *arguments: Any, frozen: FrozenHeadConfig):
        self.frozen: FrozenHeadConfig = frozen
        super().__init__(*arguments)

    @cached_property
    def features(self) -> Features:
        """Of all sequences of both sides, computed or found again."""
        layers = sorted(set(self.frozen.config(self.encoder.model.config, self.task).layers))
        folder = self.frozen.cache or self.folder / "features"
        samples = [*self.dataset.samples, *self.dev.samples]
        make = partial(features_of, self.encoder.model, samples, layers, folder, self.frozen.kind)
        return world().on_main(make) or make()  # the other processes find the file

    @cached_property
    def probe(self) -> ProbeConfig:
        """What learns; of the logistic head users expect what scikit-learn gives on the vectors as they are."""
        config = self.frozen.config(self.encoder.model.config, self.task)
        return config if self.frozen.closed_form else scaled(config, self.features)

    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        encoder = self.encoder.model
        probe = init_probe(self.probe, seed).to(encoder.device)
        model = FeatureModel(encoder.family, encoder.config, {self.task.head: probe}, self.features)
        return model, [name for name, _ in model.named_parameters()]

    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        own = {"probe": dataclasses.asdict(self.probe), "features": self.frozen.kind}
        return super().description(settings, model) | own

    def train(self, seed: int, folder: Path, callbacks: Callbacks) -> SeedResult:
        """Train or solve the head; the result has it on top of the encoder."""
        result = self._solve(seed) if self.frozen.closed_form else super().train(seed, folder, callbacks)
        whole = self.encoder.model.with_heads(dict(result.model.heads.items()))
        return dataclasses.replace(result, model=whole)

    def _solve(self, seed: int) -> SeedResult:
        from kinfolk.training.logistic import solve  # an extra

        start = time.monotonic()
        model = self.init_model(seed)[0].eval()
        assert isinstance(model, FeatureModel)
        targets = [sample.target for sample in self.samples]
        solution = solve(model.vectors(self.task.head, self.samples), targets, self.task.weights)  # type: ignore[attr-defined]
        output: Any = model.heads[self.task.head].output
        with torch.no_grad():
            output.weight.copy_(torch.from_numpy(solution.weight))
            output.bias.copy_(torch.from_numpy(solution.bias))
        result = self.evaluate_task(self.task, model)
        entry = {"step": 1, "loss": solution.loss, "learning_rate": 0.0, "epoch": 0, "metrics": result.metrics}
        log = [entry | {"selection_score": result.selection_score}]
        run = Run.open(self.folder, self.description(self.settings, model))
        try:
            world().on_main(lambda: run.rewind(0, None))  # what an earlier call of the same command logged
            world().on_main(lambda: run.log(log[0]))
        finally:
            run.close()
        return SeedResult(model, result, solution.notes, log, time.monotonic() - start, self.task)


def _content(example: AnyExample) -> list[Any]:
    """An example without its location."""
    return [value for name, value in dataclasses.asdict(example).items() if name != "location"]
