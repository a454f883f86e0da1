"""What one step of the learner does: batches that are accumulated count as one, gradients are clipped, layers thaw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import examples, settings
from torch import Tensor

import kinfolk
from kinfolk.models.family import Model, with_new_head
from kinfolk.nn.fast.linear import Dropout
from kinfolk.objectives.objective import Sample
from kinfolk.tasks.task import TaskOptions
from kinfolk.tasks.text import TextTask
from kinfolk.training.distributed import world
from kinfolk.training.runs import Callbacks, Run
from kinfolk.training.settings import OptimizerSettings, TrainSettings
from kinfolk.training.step import TrainStep
from kinfolk.training.trainer import Trainer

PLAIN = TrainSettings(optimization=OptimizerSettings(learning_rate=1e-3, weight_decay=0.0))


def learner(
    folder: Path, max_grad_norm: float | None = None, single: bool = False
) -> tuple[TrainStep, Model, list[Sample]]:
    """In float64, unless single precision is asked for, and without dropout; with classes of unequal weight."""
    encoder = kinfolk.load(folder, device="cpu")
    train = examples(32)
    task = TextTask.of("classify", train, TaskOptions(class_weights={"salty": 3.0}))
    model = with_new_head(encoder.model, "classify", 2)[0]
    model = model if single else model.double()
    for module in model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0  # type: ignore[assignment]
    items = task.dataset(encoder.tokenizer, train, encoder.context).samples
    result = TrainStep(model, task.objective(model), replace(PLAIN, max_grad_norm=max_grad_norm), world())
    result.unfreeze(0)
    return result, model, items


def weights(model: Model) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize("size", [1, 5])
def test_accumulated_batches_make_the_step_of_one_large_batch(size: int, tiny_bert: Path) -> None:
    steps = []
    for parts in (32, size):
        one, model, items = learner(tiny_bert)
        loss = one.step([items[start : start + parts] for start in range(0, 32, parts)], factor=1.0)
        assert loss is not None
        steps.append((loss.total, weights(model)))
    assert steps[0][0] == pytest.approx(steps[1][0], abs=1e-12)
    # AdamW's first step has the size of the rate whatever the gradient: tiny gradients show rounding most.
    assert (steps[0][1] - steps[1][1]).abs().max() < 1e-6


@pytest.mark.parametrize(("max_grad_norm", "single"), [(None, False), (0.3, False), (0.3, True)])
def test_long_gradients_are_clipped_as_torch_clips_them(
    max_grad_norm: float | None, single: bool, tiny_bert: Path
) -> None:
    """Steps by hand beside the learner's; AdamW forgets the size of a first gradient, so there are several."""
    one, ours, items = learner(tiny_bert, max_grad_norm, single)
    other, theirs, _ = learner(tiny_bert, None, single)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=PLAIN.optimization.learning_rate, weight_decay=0.0)
    lengths = []
    for start in (0, 8, 16, 24):
        batch = items[start : start + 8]
        one.step([batch], factor=1.0)
        inputs = other.objective.prepare(batch, theirs.device)
        losses = other.objective.losses(theirs.train(), inputs)
        (losses["classify"] / inputs.counts["classify"]).backward()
        lengths.append(float(torch.nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm or float("inf"))))
        optimizer.step()
        optimizer.zero_grad()
    assert min(lengths) > 0.3  # or there would be nothing to clip
    assert (weights(ours) - weights(theirs)).abs().max() < (1e-4 if single else 1e-9)


def test_averaged_weights_are_the_mean_of_those_after_each_step(tiny_bert: Path) -> None:
    one, model, items = learner(tiny_bert)
    seen = []
    for step in range(3):
        one.step([items], factor=1.0)
        one.average(step)
        seen.append(weights(model))
    with one.evaluation():
        averaged = weights(model)
    assert (averaged - torch.stack(seen).mean(0)).abs().max() < 1e-12
    assert torch.equal(weights(model), seen[-1])


def test_layers_thaw_from_the_top(tiny_bert: Path, tmp_path: Path) -> None:
    """With two layers: the head moves in the first third, then the second layer, then all."""
    encoder = kinfolk.load(tiny_bert, device="cpu")
    task = TextTask.of("classify", examples(96), TaskOptions())
    model = with_new_head(encoder.model, "classify", 2)[0]
    items = task.dataset(encoder.tokenizer, examples(96), encoder.context).samples
    moved: list[set[int]] = []
    before: dict[str, torch.Tensor] = {}

    def watch(seed: int, progress: object) -> None:
        layer_ids = model.layer_ids()
        changed = {
            layer_ids[name] for name, weight in model.named_parameters() if not torch.equal(weight, before[name])
        }
        moved.append(changed)

    run = Run.open(tmp_path / "run", {})
    options = settings(epochs=1.0, evaluations=1, gradual_unfreezing=1.0)
    trainer = Trainer(model, task.objective(model), items, options, run, lambda model: (0.0, {}), Callbacks(step=watch))
    before |= {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer.train()
    run.close()
    assert moved[1] == {3}  # the first step has a rate of zero
    assert moved[5] == {2, 3}
    assert moved[-1] == {0, 1, 2, 3}
