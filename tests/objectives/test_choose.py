"""The loss of multiple choice, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kinfolk.nn.packed import Tokens
from kinfolk.objectives.objective import Sample, Scorer
from kinfolk.objectives.supervised import Choose, Options

CPU = torch.device("cpu")


class Known(Scorer):
    """A model whose head says what it is told."""

    def __init__(self, said: list[float]):
        self.said = torch.tensor(said)[:, None].requires_grad_()

    def predict_head(self, name: str, tokens: Tokens) -> Tensor:
        assert name == "choose"
        return self.said


def item(lengths: tuple[int, ...], answer: int, row: int = 0) -> Sample:
    """An item whose options are one sequence each."""
    ids = list(range(10, 10 + sum(lengths)))
    target = Options(lengths, tuple(range(len(lengths))), (1.0,) * len(lengths), answer)
    return Sample(ids, [0] * len(ids), target, row)


def test_the_options_of_an_example_share_one_softmax_however_many_there_are() -> None:
    task = Choose(1)
    prepared = task.prepare([item((2, 3), 1, row=7), item((1, 1, 2), 0, row=3)], CPU)
    model = Known([0.0, math.log(3), math.log(2), 0.0, 0.0])
    loss = task.loss(model, prepared)
    assert loss.item() == pytest.approx(-math.log(3 / 4) - math.log(2 / 4))
    loss.backward()
    assert model.said.grad is not None
    torch.testing.assert_close(model.said.grad[:, 0], torch.tensor([0.25, -0.25, -0.5, 0.25, 0.25]))
    assert (prepared.counts, prepared.examples) == ({"choose": 2}, (7, 3))


def test_every_option_is_a_sequence_of_its_own() -> None:
    prepared = Choose(1).prepare([item((2, 3), 1), item((1, 1, 2), 0)], CPU)
    assert prepared.tokens.layout.lengths == (2, 3, 1, 1, 2)
    assert prepared.tokens.ids.tolist() == [10, 11, 12, 13, 14, 10, 11, 12, 13]


def test_an_option_in_windows_scores_their_weighted_mean() -> None:
    target = Options((2, 2, 1), (0, 0, 1), (0.75, 0.25, 1.0), 0)
    task, prepared = Choose(1), Choose(1).prepare([Sample([5, 6, 7, 8, 9], [0] * 5, target, 0)], CPU)
    assert task.scores(Known([4.0, 8.0, 1.0]), prepared).tolist() == [5.0, 1.0]


def test_one_batch_and_many_have_the_same_loss() -> None:
    items, said = [item((2, 3), 1), item((1, 1, 2), 2), item((4, 1), 0)], [0.5, -1.0, 2.0, 0.1, 0.3, -0.7, 1.5]
    task = Choose(1)
    together = task.loss(Known(said), task.prepare(items, CPU))
    parts = [said[:2], said[2:5], said[5:]]
    alone = [task.loss(Known(part), task.prepare([one], CPU)) for one, part in zip(items, parts, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone).sum())
