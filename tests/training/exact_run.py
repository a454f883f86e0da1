"""A run whose losses depend on nothing but its items: float64, no dropout.

`torchrun exact_run.py MODEL OUTPUT [N]` runs it too; with N, process 1 is killed at the N-th evaluation.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from small_runs import examples, settings

import kinfolk
from kinfolk.models.family import Model, with_new_head
from kinfolk.tasks.task import TaskOptions
from kinfolk.tasks.text import TextTask
from kinfolk.training.budget import Clock, TimeLimit
from kinfolk.training.runs import Run
from kinfolk.training.step import SparseEmbedding
from kinfolk.training.trainer import Trainer

OnEvaluate = Callable[[Model], None]


class CountingClock(Clock):
    """A tenth of a second passes whenever someone looks: runs by the clock take no time, and the same every time."""

    def __init__(self) -> None:
        self.looks, self.earlier = 0, 0.0

    @property
    def seconds(self) -> float:
        self.looks += 1
        return self.looks / 10 + self.earlier


def run(
    folder: Path,
    output: Path,
    single: bool = False,
    on_evaluate: OnEvaluate = lambda model: None,
    limit: TimeLimit | None = None,
    **changes: Any,
) -> Trainer:
    """Train in this process, one of however many; `on_evaluate` is called by each of them where it evaluates."""
    encoder = kinfolk.load(folder, device="cpu")
    train, dev = examples(100), examples(32, seed=1)
    task = TextTask.of("classify", train, TaskOptions(class_weights={"salty": 3.0}))
    encoder.model.config = replace(encoder.model.config, dropout=0.0, attention_dropout=0.0)
    model = with_new_head(encoder.model, "classify", 2)[0]
    model = model if single else model.double()
    dataset = task.dataset(encoder.tokenizer, dev, encoder.context)

    def evaluate(model: Model) -> tuple[float, dict[str, float]]:
        on_evaluate(model)
        metrics = task.evaluate(model, dataset).metrics
        return metrics["accuracy"], metrics

    run = Run.open(output, {"of": "small steps"})
    items = task.dataset(encoder.tokenizer, train, encoder.context).samples
    chosen = settings(**({"batch_size": 8, "epochs": 50 / 13, "evaluations": 5} | changes))
    trainer = Trainer(model, task.objective(model), items, chosen, run, evaluate, limit=limit)
    narrowed = any(isinstance(module, SparseEmbedding) for module in model.modules())
    assert narrowed == (chosen.optimization.freeze == 0)  # so that it is tried here too
    try:
        trainer.train()
        trainer.load_best()
    finally:
        run.close()
    return trainer


def losses(output: Path) -> list[float]:
    """What the log says."""
    return [json.loads(line)["loss"] for line in (output / "log.jsonl").read_text().splitlines()]


def killer(evaluation: int) -> OnEvaluate:
    """The process dies when it comes to that evaluation."""
    calls = []

    def on_evaluate(model: Model) -> None:
        calls.append(model)
        if len(calls) == evaluation:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_evaluate


def check_threads() -> None:
    """A thread of gloo's that outlives the interpreter may abort the process."""
    tasks = Path("/proc/self/task")
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir()] if tasks.exists() else []
    if any("gloo" in name for name in names):
        print("left at the end:", names, flush=True)
        os._exit(3)


if __name__ == "__main__":
    atexit.register(check_threads)  # called last
    model, output, *evaluation = sys.argv[1:]
    dies = evaluation and os.environ["RANK"] == "1"
    run(Path(model), Path(output), on_evaluate=killer(int(evaluation[0]) if dies else 0))
