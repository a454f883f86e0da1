"""Plans by the clock: what fits, how progress bends where a run is planned anew, and a run that ends in time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinfolk.errors import FolderError
from kinfolk.training.budget import (
    EVALUATING,
    SECONDS_BETWEEN_SAVES,
    Budget,
    Clock,
    Costs,
    TimeLimit,
    check_plan,
    steps_that_fit,
    typical,
)
from kinfolk.training.settings import SCHEDULES, Horizon, rate_factor


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
    for schedule in SCHEDULES:  # no step is above the peak, and none turns back
        for done in range(horizon.total):
            known = horizon.known(done)
            factor = rate_factor(schedule, known.position(done), known.total, round(0.1 * known.total))
            assert 0 <= factor <= 1 + 1e-9


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
@pytest.mark.parametrize("evaluation", [0.2, 1.0, 4.5])
def test_a_machine_that_changes_its_speed_ends_in_time(speed: str, evaluation: float) -> None:
    machine = Machine(SPEEDS[speed])
    guess = Costs(step=0.3, evaluation=evaluation / 3, save=0.1, finish=1.0, rest=2.0)
    budget = Budget(TimeLimit(180.0, machine, rest=2.0), 10, None, guess)
    horizon, step, evaluated = budget.first(), 0, 0
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
    slowest = max(SPEEDS[speed](now) for now in range(180))
    assert evaluated <= 2 + EVALUATING * 180 / (evaluation / slowest)
    assert horizon.progress(step) == pytest.approx(1)


def test_before_the_first_step_it_is_said_how_many_fit_and_whether_they_are_few() -> None:
    for seconds, few in ((2.0, True), (200.0, False)):
        budget = Budget(TimeLimit(seconds, Machine(lambda now: 1.0)), 1, None, Costs(step=0.5, evaluation=0, save=0))
        horizon = budget.first()
        told = budget.describe(horizon, "batches of 8 examples")
        assert f"{horizon.total} steps" in told
        assert "batches of 8 examples" in told
        assert ("warning" in told) == few


def test_a_plan_goes_on_after_a_first_step_that_seemed_to_be_all_there_is_time_for() -> None:
    machine = Machine(lambda now: 1.0)
    budget = Budget(TimeLimit(60.0, machine), 1, None, Costs(step=80.0, evaluation=0, save=0))
    horizon = budget.first()
    budget.took("step", machine.work(0.5))
    for step in range(1, 4):
        horizon = budget.look(horizon, step)
        budget.took("step", machine.work(0.5))
    assert horizon.total > 50


@given(counts=st.lists(st.integers(1, 10), min_size=1, max_size=8), first=st.integers(1, 10))
def test_evaluations_never_crowd_whatever_they_turn_out_to_cost(counts: list[int], first: int) -> None:
    machine = Machine(lambda now: 0.0)
    horizon, evaluated = Horizon(((0, 400, first),)), [0]
    for step in range(1, 401):
        if horizon.is_evaluated(step):
            evaluated.append(step)
            pays = counts[len(evaluated) % len(counts)]
            budget = Budget(TimeLimit(100.0, machine), 10, None, Costs(step=0.25, evaluation=1.0, save=0))
            budget.took("evaluation", EVALUATING * 100 / (pays + 0.01))
            if step < 400:
                new = budget.look(horizon, step)
                horizon = horizon.planned_anew(step, 400, new.evaluations)
    gaps = [later - before for before, later in pairwise(evaluated)]
    assert min(gaps) >= 0.5 * 400 / max(first, *counts) - 1


def test_costs_stay_costs_when_a_run_is_late() -> None:
    machine = Machine(lambda now: 1.0)
    budget = Budget(TimeLimit(10.0, machine), 4, None, Costs(step=1.0, evaluation=1.0, save=0.1))
    horizon = budget.first()
    machine.now = 40.0
    budget.took("step", 0.1)
    assert budget.look(horizon, 1).total == 2
    assert min(budget.costs.step, budget.costs.evaluation) > 0


def test_steps_between_evaluations_that_are_fixed_give_no_reason_for_a_new_plan() -> None:
    machine = Machine(lambda now: 1.0)
    budget = Budget(TimeLimit(100.0, machine), 10, 20, Costs(step=0.3, evaluation=8.0, save=0.1))
    horizon = budget.first()
    for _ in range(20):
        budget.took("step", machine.work(0.3))
    budget.took("evaluation", machine.work(8.0))
    assert len(budget.look(horizon, 20).plans) == 1 or budget.look(horizon, 20).total != horizon.total


@pytest.mark.parametrize(
    "changes",
    [
        {"plans": 3},
        {"plans": []},
        {"plans": [[0, 0, 1]]},
        {"plans": [[1, 5, 1]]},
        {"plans": [[0, 5.5, 1]]},
        {"plans": [[0, 5, 0]]},
        {"plans": [["a", 5, 1]]},
        {"plans": [[0, 5, 1], [0, 6, 1]]},
        {"plans": [[0, 5, 1], [7, 9, 1]]},
        {"share": 0},
        {"share": None},
        {"costs": {"step": 1}},
        {"costs": {"step": 0, "evaluation": 1, "save": 1}},
        {"costs": {"step": "x", "evaluation": 1, "save": 1}},
        {"costs": {"step": float("nan"), "evaluation": 1, "save": 1}},
        {"seconds": -1},
        {"seconds": None},
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_followed_is_named(changes: dict[str, Any], tmp_path: Path) -> None:
    sound = {"plans": [[0, 5, 1], [3, 9, 2]], "share": 0.5, "seconds": 3.5}
    sound |= {"costs": {"step": 0.1, "evaluation": 0, "save": 1}}
    assert check_plan(sound, tmp_path) == sound
    assert check_plan({}, tmp_path) == {}
    with pytest.raises(FolderError, match=r"plan\.json"):
        check_plan(sound | changes, tmp_path)
