"""Several processes train as one does: equal losses, one folder, one decision; and none waits for a dead one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import exact_run
import pytest
from exact_run import losses
from together import together

from kinfolk.checkpoints.weights import open_safetensors
from kinfolk.models.family import Model
from kinfolk.training import distributed
from kinfolk.training.budget import TimeLimit
from kinfolk.training.runs import Run
from kinfolk.training.settings import OptimizerSettings

SCRIPT = Path(exact_run.__file__)
SHORT: dict[str, Any] = {"epochs": 10 / 13, "evaluations": 2}


def torchrun(model: Path, output: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what was said; into a file, because a pipe would wait for whoever still holds it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    command += [str(model), str(output), *arguments]
    log = output.parent / "log"
    with log.open("w") as stream:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, env=environment, stdout=stream, stderr=stream, timeout=600)
    return ended.returncode, log.read_text()


def apart(first: Path, second: Path) -> float:
    """The largest difference of two runs' losses."""
    actual, expected = losses(first), losses(second)
    assert len(actual) == len(expected)
    return max(abs(one - other) for one, other in zip(actual, expected, strict=True))


def shapes(step: Path) -> dict[str, dict[str, tuple[int, ...]]]:
    """What a checkpoint holds."""
    files = [open_safetensors(path) for path in sorted(step.glob("*.safetensors"))]
    return {Path(file.location).name: {name: file.shape(name) for name in file.names()} for file in files}


@pytest.fixture(scope="module")
def alone(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty steps by one process."""
    output = tmp_path_factory.mktemp("alone") / "run"
    exact_run.run(tiny_bert, output)
    return output


def test_torchrun_gives_the_losses_and_the_checkpoints_of_one_process(
    tiny_bert: Path, alone: Path, tmp_path: Path
) -> None:
    code, output = torchrun(tiny_bert, tmp_path / "run")
    assert code == 0, output
    assert len(losses(alone)) == 50
    assert apart(alone, tmp_path / "run") < 1e-9
    assert shapes(tmp_path / "run" / "step-50") == shapes(alone / "step-50")


def test_a_killed_process_ends_torchrun_and_one_process_goes_on(tiny_bert: Path, alone: Path, tmp_path: Path) -> None:
    code, output = torchrun(tiny_bert, tmp_path / "run", "2")
    assert code != 0
    assert "gone or silent" in output or "SIGTERM" in output
    assert time.time() - (tmp_path / "run" / "log.jsonl").stat().st_mtime < 60
    assert 10 <= len(losses(tmp_path / "run")) <= 20
    exact_run.run(tiny_bert, tmp_path / "run")
    assert apart(alone, tmp_path / "run") < 1e-9


@pytest.mark.parametrize(
    ("size", "most", "changes"),
    [
        (2, 1e-9, {"gradual_unfreezing": 0.8, "weight_averaging": 0.5, "gradient_accumulation": 3, "epochs": 2.0}),
        (3, 1e-9, {"batch_size": 2, "epochs": 0.2}),
        (2, 1e-6, {"fsdp": True, "single": True, "weight_averaging": 0.5, "gradient_accumulation": 2}),
        (
            3,
            1e-9,
            {
                "fsdp": True,
                "batch_size": 2,
                "epochs": 0.2,
                "optimization": OptimizerSettings(learning_rate=3e-3, freeze=2),
            },
        ),
    ],
    ids=["thawing, averaging, accumulating", "some get nothing", "divided", "divided and frozen, some get nothing"],
)
def test_processes_divide_the_work_and_not_the_outcome(
    tiny_bert: Path, tmp_path: Path, size: int, most: float, changes: dict[str, Any]
) -> None:
    whole = SHORT | changes
    exact_run.run(tiny_bert, tmp_path / "alone", **{name: value for name, value in whole.items() if name != "fsdp"})
    ended = together(size, tmp_path, lambda rank: exact_run.run(tiny_bert, tmp_path / "run", **whole))
    assert ended == [""] * size
    assert apart(tmp_path / "alone", tmp_path / "run") < most
    last = max((tmp_path / "alone").glob("step-*"))
    assert shapes(last) == shapes(tmp_path / "run" / last.name)


@pytest.mark.parametrize("changes", [{}, {"fsdp": True}], ids=["whole", "divided"])
def test_a_run_goes_on_with_another_number_of_processes(
    tiny_bert: Path, alone: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    def stopped(rank: int) -> None:
        calls = []

        def on_evaluate(model: Model) -> None:
            calls.append(model)
            if rank == 1 and len(calls) == 2:
                signal.raise_signal(signal.SIGTERM)

        exact_run.run(tiny_bert, tmp_path / "run", on_evaluate=on_evaluate, **changes)

    ended = together(2, tmp_path, stopped)
    assert [message.split(";")[0] for message in ended] == ["StopSignalError: stopped by SIGTERM"] * 2
    assert len(losses(tmp_path / "run")) == 20
    go_on = together(3, tmp_path, lambda rank: stop_at(tiny_bert, tmp_path / "run", evaluation=2))
    assert [message.split(";")[0] for message in go_on] == ["StopSignalError: stopped by SIGINT"] * 3
    exact_run.run(tiny_bert, tmp_path / "run")
    assert apart(alone, tmp_path / "run") < 1e-9


def stop_at(model: Path, output: Path, evaluation: int) -> None:
    calls = []

    def on_evaluate(model: Model) -> None:
        calls.append(model)
        if len(calls) == evaluation:
            signal.raise_signal(signal.SIGINT)

    exact_run.run(model, output, on_evaluate=on_evaluate)


@pytest.mark.parametrize("dying", [0, 1])
def test_a_killed_process_is_noticed_at_once_without_torchrun(tiny_bert: Path, tmp_path: Path, dying: int) -> None:
    def work(rank: int) -> None:
        on_evaluate = exact_run.killer(3) if rank == dying else (lambda model: None)
        exact_run.run(tiny_bert, tmp_path / "run", on_evaluate=on_evaluate, **SHORT | {"evaluations": 5})

    ended = together(2, tmp_path, work)
    assert ended[dying] == "9"
    assert ended[1 - dying].startswith("TrainingError: another process of this run is gone or silent")
    assert "\n" not in ended[1 - dying]


def test_a_silent_process_is_taken_for_lost(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "SILENCE", timedelta(seconds=5))
    number = tmp_path / "number"

    def fall_silent(model: Model) -> None:
        number.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)

    def work(rank: int) -> None:
        try:
            exact_run.run(tiny_bert, tmp_path / "run", on_evaluate=fall_silent if rank else lambda model: None, **SHORT)
        finally:
            os.kill(int(number.read_text()), signal.SIGKILL)

    first, second = together(2, tmp_path, work)
    assert second == "9"
    assert "gone or silent" in first
    assert "Timed out" in first


def test_a_loss_that_is_not_finite_stops_all_of_them(tiny_bert: Path, tmp_path: Path) -> None:
    steep = {"optimization": OptimizerSettings(learning_rate=1e300), "max_grad_norm": None, "warmup": 0.0}
    ended = together(2, tmp_path, lambda rank: exact_run.run(tiny_bert, tmp_path / "run", **SHORT | steep))
    assert ended[0].startswith("TrainingError: step 2: the loss or its gradient is not a finite number")
    assert ended[0] == ended[1]
    assert (tmp_path / "run" / "step-1").exists()


def test_all_follow_the_plans_that_the_first_process_makes_by_its_clock(tiny_bert: Path, tmp_path: Path) -> None:
    def work(rank: int) -> None:
        trainer = exact_run.run(tiny_bert, tmp_path / "run", limit=TimeLimit(30.0, exact_run.CountingClock()))
        (tmp_path / f"plans-{rank}").write_text(json.dumps(trainer.horizon.plans))

    assert together(2, tmp_path, work) == ["", ""]
    plans = [json.loads((tmp_path / f"plans-{rank}").read_text()) for rank in range(2)]
    stored = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plans == [stored["plans"]] * 2
    assert len(plans[0]) > 2
    assert len(losses(tmp_path / "run")) == plans[0][-1][1]


def test_what_only_the_first_process_sees_is_told_to_all(tiny_bert: Path, tmp_path: Path) -> None:
    holder = Run.open(tmp_path / "run", {"of": "small steps"})
    first, second = together(2, tmp_path, lambda rank: exact_run.run(tiny_bert, tmp_path / "run", **SHORT))
    holder.close()
    assert f"process {os.getpid()}" in first
    assert second.startswith(f"TrainingError: process 0 gave up: {tmp_path / 'run'}")


def test_processes_with_different_data_refuse_to_train(tmp_path: Path) -> None:
    first, second = together(2, tmp_path, lambda rank: Run.open(tmp_path / "run", {"seed": 1, "data": str(rank)}))
    assert first == ""
    assert second == "InputError: process 1 was given something else than process 0: other examples"


def test_dividing_wants_several_processes(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="torchrun"):
        exact_run.run(tiny_bert, tmp_path / "run", fsdp=True)
