"""`minutes` means the whole run: steps, evaluations and checkpoints; once timed, the number of steps is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from small_runs import examples, settings, train, weights

from kinfolk.api.experiment import Callbacks
from kinfolk.api.finetune import finetune
from kinfolk.training.trainer import SECONDS_BETWEEN_SAVES, Costs, steps_that_fit, typical


def test_steps_evaluations_and_checkpoints_must_fit() -> None:
    assert steps_that_fit(100, Costs(step=1, evaluation=0, save=0), evaluations=4) == 100
    assert steps_that_fit(100, Costs(step=1, evaluation=5, save=1), evaluations=4) == 71  # 71 + 5 * 5 + 4 * 1
    assert steps_that_fit(100, Costs(step=1, evaluation=90, save=1), evaluations=4) == 1  # at least one
    assert steps_that_fit(-5, Costs(step=1, evaluation=1, save=1), evaluations=4) == 1


def test_a_run_of_few_steps_has_few_evaluations() -> None:
    assert steps_that_fit(12, Costs(step=1, evaluation=2, save=1), evaluations=10) == 2  # 2 + 3 * 2 + 2 * 1 = 10


def test_checkpoints_between_evaluations_count() -> None:
    long = 10.0 * SECONDS_BETWEEN_SAVES
    assert steps_that_fit(long, Costs(step=1, evaluation=0, save=30), evaluations=1) == long - 10 * 30


@pytest.mark.parametrize("seconds", [3.0, 17.5, 200.0, 4000.0])
def test_one_step_more_would_not_fit(seconds: float) -> None:
    costs = Costs(step=0.37, evaluation=1.3, save=0.2)
    steps = steps_that_fit(seconds, costs, evaluations=5)
    assert steps == 1 or costs.run(steps, 5) <= seconds
    assert costs.run(steps + 1, 5) > seconds


def test_steps_near_the_mean_are_timed() -> None:
    assert typical([10, 500, 90, 110, 20], 2) == [3, 2]  # the mean is 146


def test_timing_leaves_no_trace_in_the_weights(tiny_bert: Path, tmp_path: Path) -> None:
    train(tiny_bert, tmp_path / "timed", minutes=0.03)
    total = json.loads((tmp_path / "timed" / "plan.json").read_text())["total"]
    assert (tmp_path / "timed" / "log.jsonl").read_text().count("\n") == total
    train(tiny_bert, tmp_path / "counted", epochs=total / 12)  # 96 texts in batches of 8
    assert weights(tmp_path / "timed") == weights(tmp_path / "counted")


def test_a_run_that_dies_before_its_first_checkpoint_keeps_its_number_of_steps(tiny_bert: Path, tmp_path: Path) -> None:
    def die(seed: int, progress: object) -> None:
        os._exit(0)

    chosen = {"dev": examples(32, seed=1), "settings": settings(minutes=0.03), "device": "cpu"}
    child = os.fork()
    if child == 0:
        try:
            finetune(tiny_bert, examples(96), tmp_path / "run", callbacks=Callbacks(step=die), **chosen)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    plan = tmp_path / "run" / "plan.json"
    assert not list((tmp_path / "run").glob("step-*"))
    assert not list((tmp_path / "run").glob(".step-*"))
    plan.write_text(json.dumps({"total": json.loads(plan.read_text())["total"] + 3}))  # no clock would give that again
    train(tiny_bert, tmp_path / "run", minutes=0.03)
    steps = (tmp_path / "run" / "log.jsonl").read_text().count("\n")
    assert steps == json.loads(plan.read_text())["total"]
