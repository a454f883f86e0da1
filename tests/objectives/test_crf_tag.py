"""The loss of paths, by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kinfolk.nn.crf import PACE, Crf
from kinfolk.nn.packed import Tokens
from kinfolk.objectives.objective import Sample
from kinfolk.objectives.supervised import IGNORED, CrfTag, Tag

CPU = torch.device("cpu")


class Known:
    """A model whose head says what it is told."""

    def __init__(self, said: list[list[float]], crf: Crf | None = None):
        self.said = torch.tensor(said, requires_grad=True)
        self.heads: dict[str, Any] = {"tag_crf": SimpleNamespace(crf=crf or Crf(2))}

    def predict_head(self, name: str, tokens: Tokens) -> Tensor:
        return self.said


def items(*targets: list[int]) -> list[Sample]:
    return [Sample([5] * len(target), [0] * len(target), target, row) for row, target in enumerate(targets)]


def test_the_chain_skips_tokens_without_a_tag() -> None:
    crf = Crf(2)
    with torch.no_grad():
        crf.transition_bias.copy_(torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]) / PACE)
    task = CrfTag(1)
    prepared = task.prepare(items([IGNORED, 0, IGNORED, 1, IGNORED]), CPU)
    loss = task.loss(Known([[9.0, 0.0], [0.0, 0.0], [9.0, 0.0], [0.0, 0.0], [0.0, 9.0]], crf), prepared)
    # Four paths; the one that was taken, 0 then 1, weighs 3, the others 1.
    assert float(loss.detach()) == pytest.approx(-math.log(3 / 6))
    assert prepared.counts == {"tag_crf": 2}


def test_without_transitions_a_path_loses_what_its_words_lose() -> None:
    said = [[0.3, -0.7], [1.1, 0.2], [0.0, 0.5], [2.0, 1.0]]
    targets = items([0, IGNORED, 1], [IGNORED])
    losses = [task.loss(Known(said), task.prepare(targets, CPU)) for task in (CrfTag(1), Tag(1))]
    assert losses[0].tolist() == pytest.approx(losses[1].tolist())


def test_a_batch_without_a_tag_loses_nothing() -> None:
    task, model = CrfTag(1), Known([[1.0, 2.0]])
    loss = task.loss(model, task.prepare(items([IGNORED]), CPU))
    loss.backward()
    assert loss.tolist() == 0
    assert model.said.grad.tolist() == [[0.0, 0.0]]
