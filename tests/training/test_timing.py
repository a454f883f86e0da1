"""`minutes` is the clock's: a run tells its plans, writes them down before it uses them, and follows them again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exact_run import CountingClock
from small_runs import examples, settings, train, weights

from kinfolk.api import experiment
from kinfolk.api.experiment import Callbacks
from kinfolk.api.finetune import finetune
from kinfolk.errors import FolderError, InputError


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "Clock", CountingClock)


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


def stored(output: Path) -> dict[str, Any]:
    actual: dict[str, Any] = json.loads((output / "plan.json").read_text())
    return actual


def replayed(model: Path, output: Path, plan: dict[str, Any], **changes: Any) -> bytes:
    """What the same run comes to in a new folder, by plans that were written down before."""
    run(model, output, changes, lambda progress: os.kill(os.getpid(), signal.SIGKILL))
    (output / "plan.json").write_text(json.dumps(plan))
    train(model, output, **changes)
    assert stored(output) == plan
    return weights(output)


AVERAGING = {"minutes": 0.7, "evaluations": 3, "weight_averaging": 0.4, "gradual_unfreezing": 0.3}


@pytest.mark.parametrize(
    "changes", [{"minutes": 0.7, "evaluations": 3}, AVERAGING], ids=["plain", "averaging, thawing"]
)
def test_a_run_that_replays_written_plans_comes_to_the_same_weights(
    changes: dict[str, Any], tiny_bert: Path, tmp_path: Path
) -> None:
    train(tiny_bert, tmp_path / "timed", **changes)
    plan = stored(tmp_path / "timed")
    assert plan["ended"]
    assert len(plan["plans"]) > 2
    assert plan["plans"][-1][1] == (tmp_path / "timed" / "log.jsonl").read_text().count("\n")
    assert weights(tmp_path / "timed") == replayed(tiny_bert, tmp_path / "replayed", plan, **changes)


def test_a_killed_run_that_was_planned_anew_equals_an_unkilled_one_that_replays_its_plans(
    tiny_bert: Path, tmp_path: Path
) -> None:
    def die(progress: Any) -> None:
        if len(stored(tmp_path / "run")["plans"]) > 2 and (tmp_path / "run" / "last").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    changes = {"minutes": 0.7, "evaluations": 4}
    run(tiny_bert, tmp_path / "run", changes, die)
    assert not (tmp_path / "run" / "model").exists()
    killed = stored(tmp_path / "run")["plans"]
    train(tiny_bert, tmp_path / "run", **changes)
    plan = stored(tmp_path / "run")
    assert 2 < len(killed) < len(plan["plans"])
    assert plan["plans"][: len(killed)] == killed
    assert weights(tmp_path / "run") == replayed(tiny_bert, tmp_path / "unkilled", plan, **changes)


def test_a_run_that_is_killed_after_every_new_plan_still_ends_as_its_plans_say(tiny_bert: Path, tmp_path: Path) -> None:
    seen = [1]

    def die(progress: Any) -> None:
        plans = stored(tmp_path / "run")["plans"]
        if len(plans) > seen[-1] and progress.step > plans[-1][0]:
            os.kill(os.getpid(), signal.SIGKILL)

    changes = {"minutes": 0.7, "evaluations": 3}
    for _ in range(12):
        run(tiny_bert, tmp_path / "run", changes, die)
        if (tmp_path / "run" / "model").exists():
            break
        seen.append(len(stored(tmp_path / "run")["plans"]))
    assert len(seen) > 2, "it was never killed"
    train(tiny_bert, tmp_path / "run", **changes) if not (tmp_path / "run" / "model").exists() else None
    assert weights(tmp_path / "run") == replayed(tiny_bert, tmp_path / "unkilled", stored(tmp_path / "run"), **changes)


def test_a_run_that_dies_before_its_first_checkpoint_keeps_its_plan(tiny_bert: Path, tmp_path: Path) -> None:
    changes = {"minutes": 0.4, "evaluations": 1}
    run(tiny_bert, tmp_path / "run", changes, lambda progress: os._exit(0))
    assert not list((tmp_path / "run").glob("step-*"))
    assert not list((tmp_path / "run").glob(".step-*"))
    first = stored(tmp_path / "run")["plans"]
    train(tiny_bert, tmp_path / "run", **changes)
    assert stored(tmp_path / "run")["plans"][0] == first[0]


def test_checkpoints_without_their_plan_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    def die(progress: Any) -> None:
        if (tmp_path / "run" / "last").exists():
            os._exit(0)

    changes = {"minutes": 0.7, "evaluations": 4}
    run(tiny_bert, tmp_path / "run", changes, die)
    (tmp_path / "run" / "plan.json").unlink()
    with pytest.raises(FolderError, match=r"plan\.json"):
        train(tiny_bert, tmp_path / "run", **changes)


def test_a_run_tells_its_plan_before_its_first_step(tiny_bert: Path, tmp_path: Path) -> None:
    said: list[str] = []
    callbacks = Callbacks(step=lambda seed, progress: said.append("step"), plan=said.append)
    chosen = settings(minutes=0.2, evaluations=1)
    finetune(tiny_bert, examples(96), tmp_path / "run", settings=chosen, device="cpu", callbacks=callbacks)
    assert "steps" in said[0]
    assert said.count("step") == len(said) - 1


@pytest.mark.parametrize("minutes", [0, 1 / 60, 600_000, float("nan")])
def test_minutes_that_are_none_are_refused_before_anything_is_written(
    minutes: float, tiny_bert: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="minutes="):
        train(tiny_bert, tmp_path / "run", minutes=minutes)
    assert not (tmp_path / "run").exists()
