"""An objective that changes over a run is told how far that has come, and its loss of the step is what is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from kinfolk.nn.packed import pack
from kinfolk.objectives.objective import Batch, Objective, Sample
from kinfolk.training.runs import Callbacks, Run
from kinfolk.training.settings import TrainSettings
from kinfolk.training.trainer import Trainer

CPU = torch.device("cpu")


class OneWeight(nn.Module):
    """The smallest thing that learns."""

    device = CPU

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def layer_ids(self) -> dict[str, int]:
        return {"weight": 0}

    def embedding_only_read(self) -> None:
        """It has no table."""


@dataclass(frozen=True)
class Recording(Objective):
    """Its loss notes the step that it is of."""

    at_step: tuple[int, int] | None = None
    seen: list[Any] = field(default_factory=list)
    head: str = ""

    def at(self, step: int, total: int) -> Self:
        return replace(self, at_step=(step, total))

    def prepare(self, items: Sequence[Sample], device: torch.device) -> Batch:
        return Batch(pack([item.ids for item in items]), torch.zeros(len(items)), {"one": 1.0})

    def losses(self, model: OneWeight, batch: Batch) -> dict[str, Tensor]:
        self.seen.append(self.at_step)
        return {"one": model.weight.square()}

    def scores(self, model: OneWeight, batch: Batch) -> Tensor:
        return model.weight


def trained(folder: Path, stop: int | None = None) -> list[Any]:
    """The steps that the loss was told of; the run ends early at `stop`."""
    objective, items = Recording(), [Sample([1], [], 0, 0) for _ in range(4)]

    def watch(seed: int, progress: Any) -> None:
        if progress.step == stop:
            raise InterruptedError

    run = Run.open(folder, {})
    settings = TrainSettings(steps=6, batch_size=2, gradient_accumulation=2, evaluations=3)
    trainer = Trainer(OneWeight(), objective, items, settings, run, lambda model: (0.0, {}), Callbacks(step=watch))  # type: ignore[arg-type]
    try:
        trainer.train()
    except InterruptedError:
        pass
    finally:
        run.close()
    return objective.seen


def test_every_step_is_told_to_the_loss(tmp_path: Path) -> None:
    assert trained(tmp_path / "run") == [(step, 6) for step in range(6) for _ in range(2)]


def test_a_resumed_run_goes_on_with_the_step_it_is_at(tmp_path: Path) -> None:
    assert trained(tmp_path / "run", stop=3) == [(step, 6) for step in (0, 0, 1, 1, 2, 2)]
    assert trained(tmp_path / "run") == [(step, 6) for step in (2, 2, 3, 3, 4, 4, 5, 5)]
