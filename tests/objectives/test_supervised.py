"""The losses of fine-tuning, by hand."""

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
from kinfolk.objectives.supervised import (
    IGNORED,
    Classify,
    CrfTag,
    MultiLabel,
    MultipleChoice,
    Options,
    Regress,
    Span,
    Supervised,
    Tag,
)

CPU = torch.device("cpu")


class Known:
    """A model whose heads give these scores."""

    def __init__(self, scores: list[list[float]], crf: Crf | None = None):
        self.known = torch.tensor(scores, requires_grad=True)
        self.heads: dict[str, Any] = {"tag_crf": SimpleNamespace(crf=crf or Crf(2))}

    def scores(self, name: str, tokens: Tokens) -> Tensor:
        return self.known


def samples(*targets: object) -> list[Sample]:
    """Three tokens each."""
    return [Sample([5, 6, 7], [0, 0, 0], target, row) for row, target in enumerate(targets)]


def choice(lengths: tuple[int, ...], answer: int, row: int = 0) -> Sample:
    """A sample whose options are one sequence each."""
    ids = list(range(10, 10 + sum(lengths)))
    target = Options(lengths, tuple(range(len(lengths))), (1.0,) * len(lengths), answer)
    return Sample(ids, [0] * len(ids), target, row)


LOG2, LOG3 = math.log(2), math.log(3)


@pytest.mark.parametrize(
    ("objective", "targets", "scores", "loss", "count"),
    [
        (Classify(1), (0, 1), [[LOG3, 0.0], [0.0, 0.0]], -math.log(3 / 4) - math.log(1 / 2), 2),
        (Classify(1, class_weights=(1.0, 3.0)), (0, 1), [[0.0, 0.0], [0.0, 0.0]], 4 * LOG2, 4),
        (MultiLabel(1, labels=3), ([0, 2], []), [[0.0] * 3, [0.0, 0.0, LOG3]], 5 * LOG2 - math.log(1 / 4), 6),
        (Regress(1), (3.0, 4.5), [[1.0], [5.0]], 4.25, 2),
        (Tag(1), ([IGNORED, 1, IGNORED],), [[9.0, 0.0], [0.0, LOG3], [9.0, 0.0]], -math.log(3 / 4), 1),
        (Tag(1, class_weights=(2.0, 5.0)), ([0, 1, IGNORED],), [[0.0, 0.0]] * 3, 7 * LOG2, 7),
        (
            Span(1),
            ((1, 2), (0, 0)),
            [[0.0, 0.0], [LOG2, 0.0], [0.0, math.log(6)], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
            -(math.log(2 / 4) + math.log(6 / 8)) / 2 - math.log(1 / 3),  # each text has its own softmax
            2,
        ),
    ],
    ids=["classes", "weighted classes", "labels", "numbers", "tags", "weighted tags", "spans"],
)
def test_a_loss_is_a_sum_with_its_count_under_the_name_of_the_head(
    objective: Supervised, targets: tuple[Any, ...], scores: list[list[float]], loss: float, count: float
) -> None:
    batch = objective.prepare(samples(*targets), CPU)
    losses = objective.losses(Known(scores), batch)
    assert list(losses) == [objective.head]
    assert losses[objective.head].item() == pytest.approx(loss)
    assert batch.counts == {objective.head: count}


def test_answers_in_texts_of_unequal_length_do_not_feel_the_longest() -> None:
    unequal = [Sample([5] * length, [0] * length, (length - 1, 0), row) for row, length in enumerate((1, 4, 2))]
    model = Known(torch.zeros(7, 2).tolist())
    loss = Span(1).loss(model, Span(1).prepare(unequal, CPU))
    assert loss.item() == pytest.approx(math.log(1) + math.log(4) + math.log(2))
    loss.backward()
    assert model.known.grad is not None
    assert model.known.grad[:5, 0].tolist() == pytest.approx([0, 1 / 8, 1 / 8, 1 / 8, -3 / 8])


def test_the_chain_skips_tokens_without_a_tag() -> None:
    crf = Crf(2)
    with torch.no_grad():
        crf.transition_bias.copy_(torch.tensor([[0.0, LOG3], [0.0, 0.0]]) / PACE)
    row = [IGNORED, 0, IGNORED, 1, IGNORED]
    batch = CrfTag(1).prepare([Sample([5] * 5, [0] * 5, row, 0)], CPU)
    loss = CrfTag(1).loss(Known([[9.0, 0.0], [0.0, 0.0], [9.0, 0.0], [0.0, 0.0], [0.0, 9.0]], crf), batch)
    # Four paths; the one that was taken, 0 then 1, weighs 3, the others 1.
    assert loss.item() == pytest.approx(-math.log(3 / 6))
    assert batch.counts == {"tag_crf": 2}


def test_without_transitions_a_path_loses_what_its_words_lose() -> None:
    scores = [[0.3, -0.7], [1.1, 0.2], [0.0, 0.5], [2.0, 1.0]]
    rows = [Sample([5] * len(target), [0] * len(target), target, 0) for target in ([0, IGNORED, 1], [IGNORED])]
    path, words = (task.loss(Known(scores), task.prepare(rows, CPU)).item() for task in (CrfTag(1), Tag(1)))
    assert path == pytest.approx(words)


def test_a_batch_without_a_tag_loses_nothing() -> None:
    model = Known([[1.0, 2.0]])
    loss = CrfTag(1).loss(model, CrfTag(1).prepare([Sample([5], [0], [IGNORED], 0)], CPU))
    loss.backward()
    assert loss.item() == 0
    assert model.known.grad is not None
    assert model.known.grad.tolist() == [[0.0, 0.0]]


def column(*scores: float) -> Known:
    return Known([[score] for score in scores])


def test_the_options_of_an_example_share_one_softmax_however_many_there_are() -> None:
    batch = MultipleChoice(1).prepare([choice((2, 3), 1, row=7), choice((1, 1, 2), 0, row=3)], CPU)
    model = column(0.0, LOG3, LOG2, 0.0, 0.0)
    loss = MultipleChoice(1).loss(model, batch)
    assert loss.item() == pytest.approx(-math.log(3 / 4) - math.log(2 / 4))
    loss.backward()
    assert model.known.grad is not None
    torch.testing.assert_close(model.known.grad[:, 0], torch.tensor([0.25, -0.25, -0.5, 0.25, 0.25]))
    assert batch.counts == {"choose": 2}
    assert batch.tokens.layout.lengths == (2, 3, 1, 1, 2)
    assert batch.tokens.ids.tolist() == [10, 11, 12, 13, 14, 10, 11, 12, 13]


def test_an_option_in_windows_scores_their_weighted_mean() -> None:
    target = Options((2, 2, 1), (0, 0, 1), (0.75, 0.25, 1.0), 0)
    batch = MultipleChoice(1).prepare([Sample([5, 6, 7, 8, 9], [0] * 5, target, 0)], CPU)
    assert MultipleChoice(1).scores(column(4.0, 8.0, 1.0), batch).tolist() == [5.0, 1.0]


def test_one_batch_of_choices_and_many_have_the_same_loss() -> None:
    rows, scores = [choice((2, 3), 1), choice((1, 1, 2), 2), choice((4, 1), 0)], [0.5, -1.0, 2.0, 0.1, 0.3, -0.7, 1.5]
    task, parts = MultipleChoice(1), [scores[:2], scores[2:5], scores[5:]]
    together = task.loss(column(*scores), task.prepare(rows, CPU))
    alone = [task.loss(column(*part), task.prepare([row], CPU)) for row, part in zip(rows, parts, strict=True)]
    torch.testing.assert_close(together, torch.stack(alone).sum())
