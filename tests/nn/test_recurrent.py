"""Recurrence over packed batches equals torch's own cells, one sequence at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from kinfolk.nn.packed import Layout
from kinfolk.nn.recurrent import KINDS, CellState, Recurrent, Steps

LENGTHS = (2, 5, 1, 5, 3)
WIDTH, HIDDEN, LAYERS = 4, 3, 2
both = pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
kinds = pytest.mark.parametrize("kind", KINDS)


def make(kind: str, bidirectional: bool, dropout: float = 0.0) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(WIDTH, HIDDEN, LAYERS, kind, bidirectional, dropout).double()


def rows(lengths: tuple[int, ...] = LENGTHS) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(sum(lengths), WIDTH, dtype=torch.float64, generator=generator)


def reference(part: Recurrent) -> nn.RNNBase:
    """torch's module with the same weights."""
    plain = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[part.kind]
    made = plain(WIDTH, HIDDEN, LAYERS, bidirectional=part.cells.bidirectional).double()
    made.load_state_dict(part.cells.state_dict())
    return made


def one_by_one(
    part: Recurrent, vectors: Tensor, layout: Layout, state: CellState | None = None
) -> tuple[Tensor, CellState]:
    outputs, ends = [], []
    cells = reference(part)
    for number, own in enumerate(layout.split(vectors)):
        given = None if state is None else tuple(piece[:, number].contiguous() for piece in state)
        found, end = cells(own, given[0] if given is not None and part.kind != "lstm" else given)
        outputs.append(found)
        ends.append(end if isinstance(end, tuple) else (end,))
    return torch.cat(outputs), tuple(torch.stack(pieces, dim=1) for pieces in zip(*ends, strict=True))


def test_the_steps_of_five_rows_worked_by_hand() -> None:
    steps = Steps.of(Layout((2, 3)))  # a0 a1 b0 b1 b2 -> b0 a0 | b1 a1 | b2
    assert steps.order.tolist() == [2, 0, 3, 1, 4]
    assert steps.back.tolist() == [1, 3, 0, 2, 4]
    assert steps.sizes.tolist() == [2, 2, 1]
    assert steps.sorted.tolist() == [1, 0]


@kinds
@both
def test_a_packed_batch_equals_torch_on_each_sequence(kind: str, bidirectional: bool) -> None:
    part, layout, vectors = make(kind, bidirectional), Layout(LENGTHS), rows()
    found, state = part(vectors, layout)
    expected, end = one_by_one(part, vectors, layout)
    assert found.shape == (layout.tokens, part.output_width)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(state, end, rtol=0, atol=1e-12)


@kinds
def test_a_state_is_taken_up_and_handed_on(kind: str) -> None:
    part, layout, vectors = make(kind, bidirectional=False), Layout((4, 6)), rows((4, 6))
    whole, end = part(vectors, layout)
    early, late = vectors[[0, 1, 4, 5, 6]], vectors[[2, 3, 7, 8, 9]]
    first, state = part(early, Layout((2, 3)))
    second, found = part(late, Layout((2, 3)), state)
    torch.testing.assert_close(torch.cat([first, second]), whole[[0, 1, 4, 5, 6, 2, 3, 7, 8, 9]], rtol=0, atol=1e-12)
    torch.testing.assert_close(found, end, rtol=0, atol=1e-12)


@both
def test_the_order_of_the_batch_changes_nothing(bidirectional: bool) -> None:
    part, vectors, layout = make("lstm", bidirectional), rows(), Layout(LENGTHS)
    found, state = part(vectors, layout)
    order = [3, 0, 4, 2, 1]
    parts = layout.split(vectors)
    shuffled = Layout(tuple(LENGTHS[number] for number in order))
    other, end = part(torch.cat([parts[number] for number in order]), shuffled)
    for place, number in enumerate(order):
        torch.testing.assert_close(shuffled.split(other)[place], layout.split(found)[number], rtol=0, atol=1e-12)
        for one, two in zip(end, state, strict=True):
            torch.testing.assert_close(one[:, place], two[:, number], rtol=0, atol=1e-12)


@kinds
def test_gradients_are_those_of_torch(kind: str) -> None:
    part, layout = make(kind, bidirectional=True), Layout(LENGTHS)
    vectors, weights = rows().requires_grad_(), torch.arange(sum(LENGTHS), dtype=torch.float64)
    wanted = [vectors, *part.parameters()]
    (found, _), cells = part(vectors, layout), reference(part)
    ours = torch.autograd.grad((found.sum(1) * weights).sum(), wanted)
    outputs = torch.cat([cells(own)[0] for own in layout.split(vectors)])
    theirs = torch.autograd.grad((outputs.sum(1) * weights).sum(), [vectors, *cells.parameters()])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_dropout_lies_between_the_layers_and_only_in_training() -> None:
    part, layout, vectors = make("gru", bidirectional=True, dropout=0.5), Layout(LENGTHS), rows()
    still = part.eval()(vectors, layout)[0]
    torch.testing.assert_close(part(vectors, layout)[0], still, rtol=0, atol=0)
    torch.manual_seed(0)
    assert not torch.equal(part.train()(vectors, layout)[0], still)
    alone = Recurrent(WIDTH, HIDDEN, 1, dropout=0.5).train().double()  # one layer has no between
    torch.testing.assert_close(alone(vectors, layout)[0], alone(vectors, layout)[0], rtol=0, atol=0)


def test_building_on_the_meta_device_takes_no_memory() -> None:
    with torch.device("meta"):
        part = Recurrent(10**6, 10**4, LAYERS)
    assert all(weight.is_meta for weight in part.parameters())
