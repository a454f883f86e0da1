"""The trainer's promises: it learns, goes on exactly, and stops where it must."""

from __future__ import annotations

import signal
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
import torch
from small_runs import examples, settings, train, weights

import kinfolk
from kinfolk.api.experiment import Callbacks
from kinfolk.api.finetune import finetune
from kinfolk.checkpoints.weights import open_safetensors
from kinfolk.errors import FolderError, InputError, StopSignalError, TrainingError
from kinfolk.training.optimizer import build_optimizer
from kinfolk.training.settings import OptimizerSettings, TrainSettings


def test_it_learns(tiny_bert: Path, tmp_path: Path) -> None:
    trained = train(tiny_bert, tmp_path / "run", count=400, epochs=6.0)
    assert trained.metrics["accuracy"] > 0.9


def test_the_same_seed_gives_the_same_weights(tiny_bert: Path, tmp_path: Path) -> None:
    train(tiny_bert, tmp_path / "first")
    train(tiny_bert, tmp_path / "second")
    assert weights(tmp_path / "first") == weights(tmp_path / "second")


def test_another_number_of_threads_gives_nearly_the_same_weights(tiny_bert: Path, tmp_path: Path) -> None:
    """Sums are added up in another order, and each step builds on the last: the manual promises 1e-3 after 24."""
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            train(tiny_bert, tmp_path / str(count), optimization=OptimizerSettings(learning_rate=1e-4))
            stored = open_safetensors(tmp_path / str(count) / "model" / "model.safetensors")
            results.append(torch.cat([stored.read(name).flatten() for name in stored.names()]))
    finally:
        torch.set_num_threads(threads)
    assert max(float((other - results[0]).abs().max()) for other in results[1:]) < 1e-3


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"weight_averaging": 0.5},
        {"gradual_unfreezing": 0.8},
        {"optimization": OptimizerSettings(3e-3, optimizer="muon")},
    ],
    ids=["plain", "averaged", "thawing", "muon"],
)
def test_a_stopped_run_goes_on_to_the_same_weights(tiny_bert: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    train(tiny_bert, tmp_path / "whole", **changes)

    def stop(seed: int, progress: object) -> None:
        if progress.step == 9:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(StopSignalError, match="SIGTERM"):
        finetune(
            tiny_bert,
            examples(96),
            tmp_path / "stopped",
            examples(32, seed=1),
            settings=settings(**changes),
            device="cpu",
            callbacks=Callbacks(step=stop),
        )
    train(tiny_bert, tmp_path / "stopped", **changes)
    assert weights(tmp_path / "whole") == weights(tmp_path / "stopped")
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("whole", "stopped")]
    assert logs[0] == logs[1]


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_rows(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="made:"):
        train(tiny_bert, tmp_path / "run", optimization=OptimizerSettings(learning_rate=1e30), max_grad_norm=None)
    steps = sorted((tmp_path / "run").glob("step-*"))
    assert steps
    stored = open_safetensors(steps[-1] / "weights.safetensors")
    assert all(torch.isfinite(stored.read(name)).all() for name in stored.names())


def test_other_data_in_the_same_folder_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    train(tiny_bert, tmp_path / "run")
    with pytest.raises(FolderError, match="already holds"):
        train(tiny_bert, tmp_path / "run", count=48)
    (tmp_path / "run" / "model").rename(tmp_path / "model")
    with pytest.raises(FolderError, match="other examples"):
        train(tiny_bert, tmp_path / "run", count=48)


def test_patience_ends_a_run_that_no_longer_improves(tiny_bert: Path, tmp_path: Path) -> None:
    trained = train(
        tiny_bert, tmp_path / "run", optimization=OptimizerSettings(learning_rate=1e-12), evaluations=10, patience=2
    )
    entries = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert sum("metrics" in entry for entry in entries) == 3
    assert "seed 0 is not better than the majority-class baseline" in trained.notes


def test_layers_have_rates_of_their_own_and_frozen_ones_do_not_move(tiny_bert: Path, tmp_path: Path) -> None:
    model = kinfolk.load(tiny_bert, device="cpu").model
    rates = {
        model.layer_ids()[name]: group["lr"]
        for group in build_optimizer(model, OptimizerSettings(learning_rate=1.0, layer_decay=0.5)).param_groups
        for name, weight in model.named_parameters()
        if any(weight is other for other in group["params"])
    }
    assert rates == {0: 0.125, 1: 0.25, 2: 0.5, 3: 1.0}
    before = kinfolk.load(tiny_bert, device="cpu").model.state_dict()
    train(tiny_bert, tmp_path / "run", optimization=OptimizerSettings(learning_rate=3e-3, freeze=2))
    after = kinfolk.load(tmp_path / "run", device="cpu").model.state_dict()
    moved = {
        model.layer_ids()[name]
        for name, weight in after.items()
        if name in before and not torch.equal(weight, before[name])
    }
    assert moved <= {2, 3}
    assert 2 in moved


def test_several_seeds_give_a_mean_and_a_deviation(tiny_bert: Path, tmp_path: Path) -> None:
    trained = finetune(
        tiny_bert, examples(64), tmp_path / "run", examples(32, seed=1), settings=settings(), seeds=3, device="cpu"
    )
    assert set(trained.by_seed) == {0, 1, 2}
    mean, deviation = trained.summary()["accuracy"]
    reached = [metrics["accuracy"] for metrics in trained.by_seed.values()]
    assert mean == pytest.approx(sum(reached) / 3)
    assert deviation == pytest.approx(stdev(reached))
    assert trained.metrics["accuracy"] == max(reached)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"betas": (0.9, 1.5)}, "betas=1.5"),
        ({"betas": (0.9,)}, r"betas=\(0.9,\)"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"seed": 2**64}, "seed=18446744073709551616"),
        ({"warmup": 1.5}, "warmup=1.5"),
        ({"schedule": "liner"}, "linear"),
        ({"epoch": 3}, "epochs"),
    ],
)
def test_settings_without_a_meaning_are_refused(named: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainSettings().but(**named)
