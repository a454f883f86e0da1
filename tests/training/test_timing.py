"""`minutes` is the clock's: steps, evaluations, checkpoints and the end. Plans are kept and followed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import examples, settings, train, weights

from kinfolk.api.experiment import Callbacks
from kinfolk.api.finetune import finetune
from kinfolk.errors import FolderError, InputError
from kinfolk.training.budget import (
    EVALUATING,
    SECONDS_BETWEEN_SAVES,
    Budget,
    Clock,
    Costs,
    Horizon,
    TimeLimit,
    steps_that_fit,
    typical,
)


def test_steps_evaluations_and_checkpoints_must_fit() -> None:
    assert steps_that_fit(100, Costs(step=1, evaluation=0, save=0), evaluations=4) == 100
    assert steps_that_fit(100, Costs(step=1, evaluation=5, save=1), evaluations=4) == 71  # 71 + 5 * 5 + 4 * 1
    assert steps_that_fit(100, Costs(step=1, evaluation=5, save=1, finish=2, rest=3), evaluations=4) == 63
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


def test_steps_near_the_mean_are_timed_first() -> None:
    assert typical([10, 500, 90, 110, 20])[:2] == [3, 2]  # the mean is 146


@given(
    plans=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 200), st.integers(1, 12)), min_size=1, max_size=6),
    evaluations=st.integers(1, 12),
    total=st.integers(1, 300),
)
def test_progress_rises_to_one_however_often_a_run_is_planned_anew(
    plans: list[tuple[int, int, int]], evaluations: int, total: int
) -> None:
    horizon, step = Horizon(((0, total, evaluations),)), 0
    for later, left, wanted in plans:
        step += later
        if step >= horizon.total:
            break
        before = [horizon.progress(done) for done in range(step + 1)]
        horizon = horizon.planned_anew(step, step + left, wanted)
        assert [horizon.progress(done) for done in range(step + 1)] == before  # what was done stays
    progress = [horizon.progress(done) for done in range(horizon.total + 1)]
    assert progress[0] == 0
    assert progress[-1] == pytest.approx(1)
    assert progress == sorted(progress)
    assert horizon.is_evaluated(horizon.total)


class Machine(Clock):
    """A clock that goes on by what its work takes, at a speed that changes."""

    def __init__(self, slower: Callable[[float], float]):
        self.now, self.earlier, self.slower = 0.0, 0.0, slower

    @property
    def seconds(self) -> float:
        return self.now

    def work(self, seconds: float) -> float:
        taken = seconds * self.slower(self.now)
        self.now += taken
        return taken


SPEEDS: dict[str, Callable[[float], float]] = {
    "steady": lambda now: 1.0,
    "slower half-way": lambda now: 1.0 if now < 90 else 2.0,
    "faster half-way": lambda now: 2.0 if now < 90 else 1.0,
    "slow at first": lambda now: 5.0 if now < 10 else 1.0,
    "up and down": lambda now: 1.0 + (now // 20) % 2,
}


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("evaluation", [0.2, 1.0, 4.0])
def test_a_machine_that_changes_its_speed_ends_in_time(speed: str, evaluation: float) -> None:
    machine = Machine(SPEEDS[speed])
    guess = Costs(step=0.3, evaluation=evaluation / 3, save=0.1, finish=1.0, rest=2.0)
    budget = Budget(TimeLimit(180.0, machine, rest=2.0), 10, None, guess)
    horizon, step, evaluated = budget.first(1.0), 0, 0
    while step < horizon.total:
        budget.took("step", machine.work(0.3))
        step += 1
        due = horizon.is_evaluated(step)
        if due:
            budget.took("evaluation", machine.work(evaluation))
            evaluated += 1
        if due or budget.due:
            horizon = budget.look(horizon, step)
    machine.work(evaluation + 2.0)
    assert 0.9 * 180 <= machine.now <= 1.1 * 180
    assert evaluated <= 1 + EVALUATING * 180 * 2 / evaluation
    assert horizon.progress(step) == pytest.approx(1)


def test_rehearsing_leaves_no_trace_in_the_weights(tiny_bert: Path, tmp_path: Path) -> None:
    train(tiny_bert, tmp_path / "timed", minutes=0.1, evaluations=1)
    steps = (tmp_path / "timed" / "log.jsonl").read_text().count("\n")
    plan = json.loads((tmp_path / "timed" / "plan.json").read_text())
    assert plan["ended"]
    assert plan["plans"][-1][1] == steps
    replay(tiny_bert, tmp_path / "replayed", plan, minutes=0.1, evaluations=1)
    assert weights(tmp_path / "timed") == weights(tmp_path / "replayed")


def replay(model: Path, output: Path, plan: dict[str, Any], **changes: Any) -> None:
    """The same run in a new folder, by plans that were written down before."""
    run(model, output, changes, lambda progress: progress.step == 1 and os.kill(os.getpid(), signal.SIGKILL))
    (output / "plan.json").write_text(json.dumps(plan))
    train(model, output, **changes)


def run(model: Path, output: Path, changes: dict[str, Any], after: Callable[[Any], object]) -> None:
    """In a process of its own, which may not survive."""
    chosen = {"dev": examples(32, seed=1), "settings": settings(**changes), "device": "cpu"}
    child = os.fork()
    if child == 0:
        try:
            finetune(model, examples(96), output, callbacks=Callbacks(step=lambda seed, it: after(it)), **chosen)
        finally:
            os._exit(1)
    os.waitpid(child, 0)


def test_a_killed_run_that_was_planned_anew_equals_an_unkilled_one_that_replays_its_plans(
    tiny_bert: Path, tmp_path: Path
) -> None:
    def slower(progress: Any) -> None:
        plans = json.loads((tmp_path / "run" / "plan.json").read_text())["plans"]
        if len(plans) > 2 and (tmp_path / "run" / "last").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.005 if progress.step < 40 else 0.03)

    minutes = {"minutes": 0.1, "evaluations": 5}
    run(tiny_bert, tmp_path / "run", minutes, slower)
    assert not (tmp_path / "run" / "model").exists()
    killed = json.loads((tmp_path / "run" / "plan.json").read_text())["plans"]
    train(tiny_bert, tmp_path / "run", **minutes)
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert len(killed) > 2
    assert plan["plans"][: len(killed)] == killed
    replay(tiny_bert, tmp_path / "unkilled", plan, **minutes)
    assert weights(tmp_path / "run") == weights(tmp_path / "unkilled")


def test_a_run_that_dies_before_its_first_checkpoint_keeps_its_plan(tiny_bert: Path, tmp_path: Path) -> None:
    changes = {"minutes": 0.05, "evaluations": 1}
    run(tiny_bert, tmp_path / "run", changes, lambda progress: os._exit(0))
    plan = tmp_path / "run" / "plan.json"
    assert not list((tmp_path / "run").glob("step-*"))
    assert not list((tmp_path / "run").glob(".step-*"))
    first = json.loads(plan.read_text())["plans"]
    train(tiny_bert, tmp_path / "run", **changes)
    assert json.loads(plan.read_text())["plans"][0] == first[0]


def test_before_the_first_step_it_is_said_how_many_fit_and_whether_they_are_few() -> None:
    for seconds, few in ((2.0, True), (200.0, False)):
        said: list[str] = []
        limit = TimeLimit(seconds, Machine(lambda now: 1.0), tell=said.append)
        steps = Budget(limit, 1, None, Costs(step=0.5, evaluation=0, save=0)).first(1.0).total
        assert f"{steps} steps" in said[0]
        assert ("warning" in said[0]) == few


def test_a_run_tells_its_plan_before_its_first_step(tiny_bert: Path, tmp_path: Path) -> None:
    said: list[str] = []
    callbacks = Callbacks(step=lambda seed, progress: said.append("step"), plan=said.append)
    chosen = settings(minutes=0.05, evaluations=1)
    finetune(tiny_bert, examples(96), tmp_path / "run", settings=chosen, device="cpu", callbacks=callbacks)
    assert "steps" in said[0]
    assert said.count("step") == len(said) - 1


@pytest.mark.parametrize("minutes", [0, 1 / 60, 600_000, float("nan")])
def test_a_budget_that_is_none_is_refused_before_anything_is_written(
    minutes: float, tiny_bert: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="minutes="):
        train(tiny_bert, tmp_path / "run", minutes=minutes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "stored",
    ["[]", '{"plans": 3}', '{"plans": [[0, 0, 1]]}', '{"plans": [[1, 5, 1]]}', '{"plans": [[0, 5, 1], [0, 6, 1]]}',
     '{"plans": [[0, 5, 1]], "share": 0}', '{"plans": [["a", 5, 1]]}', '{"plans": [[0, 5, 1]], "costs": {"step": 1}}'],
)  # fmt: skip
def test_a_plan_that_cannot_be_followed_is_named(stored: str, tiny_bert: Path, tmp_path: Path) -> None:
    changes = {"minutes": 0.05, "evaluations": 1}
    run(tiny_bert, tmp_path / "run", changes, lambda progress: os._exit(0))
    (tmp_path / "run" / "plan.json").write_text(stored)
    with pytest.raises(FolderError, match=r"plan\.json"):
        train(tiny_bert, tmp_path / "run", **changes)
