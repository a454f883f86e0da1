"""An objective with two heads, as BERT is pre-trained: masked words at chosen positions and one label per pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kinfolk.nn.packed import pack
from kinfolk.objectives.objective import Batch, Objective, Sample
from kinfolk.training.distributed import world
from kinfolk.training.runs import Callbacks, Progress, Run
from kinfolk.training.settings import OptimizerSettings, TrainSettings
from kinfolk.training.step import TrainStep
from kinfolk.training.trainer import Trainer

CPU = torch.device("cpu")
VOCABULARY, WIDTH = 11, 4
PLAIN = TrainSettings(max_grad_norm=None, optimization=OptimizerSettings(1e-2, weight_decay=0.0))


class TwoHeads(nn.Module):
    """A body of one table, a head over the vocabulary, and one over the pooled vector."""

    device = CPU

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.heads = nn.ModuleDict({"masked_lm": nn.Linear(WIDTH, VOCABULARY), "next_sentence": nn.Linear(WIDTH, 2)})

    def layer_ids(self) -> dict[str, int]:
        return {name: int(name.startswith("heads.")) for name, _ in self.named_parameters()}

    def embedding_only_read(self) -> None:
        """The table learns as a whole."""


@dataclass(frozen=True)
class PairTarget:
    """Positions and their tokens, and whether the second sentence follows the first."""

    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    follows: int


@dataclass(frozen=True)
class PretrainingBatch(Batch):
    """`targets` are the masked tokens, at these `rows` of the packed batch; `follows` has one label per sequence."""

    rows: Tensor
    follows: Tensor


@dataclass(frozen=True)
class Pretraining(Objective):
    """L = L(masked_lm) + 0.5 L(next_sentence), unless `weights` differ."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"next_sentence": 0.5})

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> PretrainingBatch:
        tokens = pack([sample.ids for sample in samples], device=device)
        starts = zip(tokens.layout.starts, samples, strict=True)
        rows = [start + position for start, sample in starts for position in sample.target.positions]
        masked = [token for sample in samples for token in sample.target.tokens]
        counts = {"masked_lm": float(len(masked)), "next_sentence": float(len(samples))}
        return PretrainingBatch(
            tokens,
            torch.tensor(masked, dtype=torch.long),
            counts,
            torch.tensor(rows, dtype=torch.long),
            torch.tensor([sample.target.follows for sample in samples]),
        )

    def losses(self, model: TwoHeads, batch: Batch) -> dict[str, Tensor]:
        assert isinstance(batch, PretrainingBatch)
        hidden = model.dropout(model.table(batch.tokens.ids))
        words = model.heads["masked_lm"](hidden[batch.rows])
        pairs = model.heads["next_sentence"](batch.tokens.layout.mean(hidden))
        return {
            "masked_lm": F.cross_entropy(words, batch.targets, reduction="sum"),
            "next_sentence": F.cross_entropy(pairs, batch.follows, reduction="sum"),
        }


def samples(count: int = 24) -> list[Sample]:
    """Unequal numbers of masked tokens, none in every fifth sample."""
    made = []
    for row in range(count):
        ids = [(row * 7 + index) % VOCABULARY for index in range(3 + row % 4)]
        masked = tuple(range(0 if row % 5 == 0 else 1 + row % 3))
        made.append(Sample(ids, [], PairTarget(masked, tuple(ids[index] for index in masked), row % 2), row))
    return made


def means(model: TwoHeads, rows: Sequence[Sample]) -> dict[str, Tensor]:
    """By hand: each loss over its own targets."""
    batch = Pretraining().prepare(rows, CPU)
    return {name: total / batch.counts[name] for name, total in Pretraining().losses(model, batch).items()}


@pytest.mark.parametrize("size", [24, 5, 1])
def test_each_loss_is_the_mean_over_its_own_targets_however_batches_are_cut(size: int) -> None:
    rows, model, reference = samples(), TwoHeads(), TwoHeads()
    for one in (model, reference):
        one.dropout.p = 0.0
    step = TrainStep(model, Pretraining(), PLAIN, world())  # type: ignore[arg-type]
    losses = step.step([rows[start : start + size] for start in range(0, len(rows), size)], factor=1.0)
    expected = means(reference, rows)
    assert losses is not None
    assert losses.parts == pytest.approx({name: float(mean.detach()) for name, mean in expected.items()}, rel=1e-6)
    assert losses.total == pytest.approx(losses.parts["masked_lm"] + 0.5 * losses.parts["next_sentence"])
    (expected["masked_lm"] + 0.5 * expected["next_sentence"]).backward()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-2, weight_decay=0.0)
    optimizer.step()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def test_a_loss_without_targets_is_zero_and_trains_nothing() -> None:
    model = TwoHeads()
    before = model.heads["masked_lm"].weight.detach().clone()
    step = TrainStep(model, Pretraining(), PLAIN, world())  # type: ignore[arg-type]
    losses = step.step([[row for row in samples() if not row.target.positions]], factor=1.0)
    assert losses is not None
    assert losses.parts["masked_lm"] == 0.0
    assert losses.parts["next_sentence"] > 0
    assert torch.equal(model.heads["masked_lm"].weight, before)


def trained(folder: Path, stop: int | None = None) -> tuple[TwoHeads, list[Progress], list[dict[str, Any]]]:
    """A run of 8 steps, two batches each; it breaks off after `stop`."""
    model, seen = TwoHeads(), []

    def on_step(seed: int, progress: Progress) -> None:
        seen.append(progress)
        if progress.step == stop:
            raise InterruptedError

    run = Run.open(folder, {})
    settings = TrainSettings(
        steps=8, batch_size=6, gradient_accumulation=2, evaluations=4, optimization=OptimizerSettings(1e-2)
    )
    trainer = Trainer(
        model,
        Pretraining(),
        samples(),
        settings,
        run,
        lambda model: (0.0, {}),
        Callbacks(step=on_step),
    )
    try:
        trainer.train()
    except InterruptedError:
        pass
    finally:
        run.close()
    return model, seen, run.entries()


def test_losses_are_logged_by_name_and_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, seen, log = trained(tmp_path / "whole")
    trained(tmp_path / "resumed", stop=5)
    resumed, _, again = trained(tmp_path / "resumed")
    for ours, theirs in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert again == log
    assert [set(entry["losses"]) for entry in log] == [{"masked_lm", "next_sentence"}] * 8
    assert [progress.losses for progress in seen] == [entry["losses"] for entry in log]
    assert all(
        entry["loss"] == pytest.approx(entry["losses"]["masked_lm"] + 0.5 * entry["losses"]["next_sentence"])
        for entry in log
    )
    assert log[-1]["losses"]["masked_lm"] < log[0]["losses"]["masked_lm"]
