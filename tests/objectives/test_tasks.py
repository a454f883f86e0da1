"""The losses of fine-tuning, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kinfolk.nn.packed import Tokens
from kinfolk.objectives.objective import Sample, Scorer
from kinfolk.objectives.supervised import IGNORED, Classify, MultiLabel, Regress, Span, Tag

CPU = torch.device("cpu")


class Known(Scorer):
    """A model whose head says what it is told."""

    def __init__(self, said: list[list[float]]):
        self.said = torch.tensor(said)

    def predict_head(self, name: str, tokens: Tokens) -> Tensor:
        return self.said


def items(*targets: object) -> list[Sample]:
    return [Sample([5, 6, 7], [0, 0, 0], target, row) for row, target in enumerate(targets)]


def test_classes_lose_the_logarithm_of_their_probability() -> None:
    task = Classify(1)
    prepared = task.prepare(items(0, 1), CPU)
    loss = task.loss(Known([[math.log(3), 0.0], [0.0, 0.0]]), prepared)
    assert float(loss) == pytest.approx(-math.log(3 / 4) - math.log(1 / 2))
    assert prepared.counts == {task.head: 2}


def test_weighted_classes_are_averaged_over_their_weights() -> None:
    task = Classify(1, class_weights=(1.0, 3.0))
    prepared = task.prepare(items(0, 1), CPU)
    loss = task.loss(Known([[0.0, 0.0], [0.0, 0.0]]), prepared)
    assert float(loss) == pytest.approx(4 * math.log(2))
    assert prepared.counts == {task.head: 4}


def test_labels_are_judged_one_by_one() -> None:
    task = MultiLabel(1, labels=3)
    prepared = task.prepare(items([0, 2], []), CPU)
    assert prepared.targets.tolist() == [[1, 0, 1], [0, 0, 0]]
    loss = task.loss(Known([[0.0, 0.0, 0.0], [0.0, 0.0, math.log(3)]]), prepared)
    assert float(loss) == pytest.approx(5 * math.log(2) - math.log(1 / 4))
    assert prepared.counts == {task.head: 6}


def test_numbers_lose_the_square_of_the_error() -> None:
    task = Regress(1)
    assert float(task.loss(Known([[1.0], [5.0]]), task.prepare(items(3.0, 4.5), CPU))) == pytest.approx(4.25)


def test_only_first_pieces_of_words_carry_a_tag() -> None:
    task = Tag(1)
    prepared = task.prepare(items([IGNORED, 1, IGNORED]), CPU)
    loss = task.loss(Known([[9.0, 0.0], [0.0, math.log(3)], [9.0, 0.0]]), prepared)
    assert float(loss) == pytest.approx(-math.log(3 / 4))
    assert prepared.counts == {task.head: 1}


def test_an_answer_has_a_softmax_over_its_own_text_only() -> None:
    task = Span(1)
    prepared = task.prepare(items((1, 2), (0, 0)), CPU)
    said = [[0.0, 0.0], [math.log(2), 0.0], [0.0, math.log(6)], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    first = -(math.log(2 / 4) + math.log(6 / 8)) / 2
    second = -math.log(1 / 3)
    assert float(task.loss(Known(said), prepared)) == pytest.approx(first + second)


def test_answers_in_texts_of_unequal_length_do_not_feel_the_longest() -> None:
    task = Span(1)
    unequal = [Sample([5] * length, [0] * length, (length - 1, 0), row) for row, length in enumerate((1, 4, 2))]
    model = Known(torch.zeros(7, 2).tolist())
    model.said.requires_grad_()
    loss = task.loss(model, task.prepare(unequal, CPU))
    assert loss.item() == pytest.approx(math.log(1) + math.log(4) + math.log(2))
    loss.backward()
    assert model.said.grad is not None
    assert model.said.grad[:5, 0].tolist() == pytest.approx([0, 1 / 8, 1 / 8, 1 / 8, -3 / 8])
