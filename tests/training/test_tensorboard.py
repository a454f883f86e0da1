"""TensorBoard's files, read by TensorBoard, show what log.jsonl says."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from small_runs import examples, settings
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from kinfolk.api.experiment import Callbacks, Trained
from kinfolk.api.finetune import finetune
from kinfolk.errors import KinfolkError, StopSignalError
from kinfolk.training.runs import Progress, tensorboard_log

Scalars = dict[str, list[tuple[int, float]]]


def run(model: Path, output: Path, seeds: int = 1, stop: int | None = None) -> Trained:
    def step(seed: int, progress: Progress) -> None:
        if progress.step == stop:
            signal.raise_signal(signal.SIGTERM)

    callbacks = Callbacks(step=step)
    options = {"settings": settings(), "device": "cpu", "seeds": seeds, "callbacks": callbacks, "tensorboard": True}
    return finetune(model, examples(64), output, examples(16, seed=1), **options)


def shown(folder: Path) -> Scalars:
    result = EventAccumulator(str(folder))
    result.Reload()
    return {name: [(event.step, event.value) for event in result.Scalars(name)] for name in result.Tags()["scalars"]}


def logged(path: Path) -> Scalars:
    scalars: Scalars = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        values = {name: entry[name] for name in ("loss", "learning_rate")}
        values |= {f"dev/{name}": value for name, value in entry.get("metrics", {}).items()}
        for name, value in values.items():
            scalars.setdefault(name, []).append((entry["step"], pytest.approx(value, rel=1e-6)))  # stored as float32
    return scalars


def test_it_shows_what_was_logged(tiny_bert: Path, tmp_path: Path) -> None:
    run(tiny_bert, tmp_path / "run")
    result = shown(tmp_path / "run" / "tensorboard")
    assert result == logged(tmp_path / "run" / "log.jsonl")
    assert {"loss", "learning_rate", "dev/accuracy", "dev/macro_f1"} <= set(result)
    assert len(result["loss"]) == 16


def test_each_seed_has_a_folder(tiny_bert: Path, tmp_path: Path) -> None:
    run(tiny_bert, tmp_path / "run", seeds=2)
    for seed in ("seed-0", "seed-1"):
        assert shown(tmp_path / "run" / "tensorboard" / seed) == logged(tmp_path / "run" / seed / "log.jsonl")


def test_a_stopped_run_that_went_on_shows_every_step_once(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(StopSignalError):
        run(tiny_bert, tmp_path / "run", stop=7)
    assert len(shown(tmp_path / "run" / "tensorboard")["loss"]) == 7
    run(tiny_bert, tmp_path / "run")
    assert shown(tmp_path / "run" / "tensorboard") == logged(tmp_path / "run" / "log.jsonl")


def test_steps_that_are_computed_again_are_shown_once(tmp_path: Path) -> None:
    for first, last in ((1, 9), (5, 12)):  # a crash after step 9, a checkpoint at step 4
        with tensorboard_log(tmp_path) as logged:
            for step in range(first, last + 1):
                logged.step(0, Progress(step, 12, loss=float(step), epoch=0))
    assert shown(tmp_path)["loss"] == [(step, float(step)) for step in range(1, 13)]


def test_without_tensorboard_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(KinfolkError, match=r"\[tensorboard\]"), tensorboard_log(tmp_path):
        pass
