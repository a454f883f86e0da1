"""Recurrence over packed batches equals torch's modules and the formulas, one sequence at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from kinfolk.nn.packed import Layout
from kinfolk.nn.recurrent import KINDS, GruResetBefore, RecurrentStack, Steps
from kinfolk.nn.state import CellState
from support.tiny import torch_weights

LENGTHS = (2, 5, 1, 5, 3)
WIDTH, HIDDEN, LAYERS = 4, 3, 2
both = pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
kinds = pytest.mark.parametrize("kind", KINDS)
TORCH = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def make(kind: str, bidirectional: bool = False, dropout: float = 0.0, layers: int = LAYERS) -> RecurrentStack:
    torch.manual_seed(0)
    return RecurrentStack(kind, WIDTH, HIDDEN, layers, bidirectional, dropout).double()


def rows(lengths: tuple[int, ...] = LENGTHS, width: int = WIDTH) -> Tensor:
    return torch.randn(sum(lengths), width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def exact(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def states(stack: RecurrentStack, sequences: int) -> CellState:
    generator = torch.Generator().manual_seed(2)
    return tuple(
        torch.randn(piece.shape, dtype=piece.dtype, generator=generator) for piece in stack.start(sequences, rows())
    )


class Formula:
    """One stack of the reset-before kind, with the matrices of the paper."""

    def __init__(self, stack: RecurrentStack):
        self.stack = stack

    def __call__(self, vectors: Tensor, state: tuple[Tensor]) -> tuple[Tensor, Tensor]:
        ends, cells = [], list(self.stack.cells)
        for first in range(0, len(cells), self.stack.directions):
            sides = [self.one(cells[first], vectors, state[0][first])]
            ends.append(sides[0][-1])
            if self.stack.directions == 2:
                sides.append(self.one(cells[first + 1], vectors.flip(0), state[0][first + 1]))
                ends.append(sides[1][-1])
                sides[1] = sides[1].flip(0)
            vectors = torch.cat(sides, -1)
        return vectors, torch.stack(ends)

    def one(self, cell: nn.Module, vectors: Tensor, hidden: Tensor) -> Tensor:
        assert isinstance(cell, GruResetBefore)
        (w_r, w_z, w_h), (b_r, b_z, b_h) = cell.inputs.weight.chunk(3), cell.inputs.bias.chunk(3)
        (u_r, u_z), u_h = cell.gates.weight.chunk(2), cell.candidate.weight
        outputs = []
        for x in vectors:
            z = torch.sigmoid(w_z @ x + u_z @ hidden + b_z)
            r = torch.sigmoid(w_r @ x + u_r @ hidden + b_r)
            hidden = (1 - z) * torch.tanh(w_h @ x + u_h @ (r * hidden) + b_h) + z * hidden
            outputs.append(hidden)
        return torch.stack(outputs)


def torch_module(stack: RecurrentStack) -> nn.RNNBase:
    """torch's module for all layers, with the same weights under the names that files have."""
    bidirectional = stack.directions == 2
    module = TORCH[stack.kind](WIDTH, HIDDEN, stack.layers, bidirectional=bidirectional).double()
    module.load_state_dict(torch_weights(stack))
    return module


def one_by_one(stack: RecurrentStack, vectors: Tensor, layout: Layout, state: CellState) -> tuple[Tensor, CellState]:
    outputs, ends = [], []
    reference = Formula(stack) if stack.kind == "gru_reset_before" else torch_module(stack)
    for index, own in enumerate(layout.split(vectors)):
        before = tuple(piece[:, index].contiguous() for piece in state)
        whole = stack.kind in ("lstm", "gru_reset_before")
        output, end = reference(own, before if whole else before[0])  # type: ignore[operator]
        outputs.append(output)
        ends.append(end if isinstance(end, tuple) else (end,))
    return torch.cat(outputs), tuple(torch.stack(pieces, dim=1) for pieces in zip(*ends, strict=True))


def test_the_steps_of_five_rows_worked_by_hand() -> None:
    steps = Steps.of(Layout((2, 3)))  # a0 a1 b0 b1 b2 -> b0 a0 | b1 a1 | b2
    assert steps.order.tolist() == [2, 0, 3, 1, 4]
    assert steps.back.tolist() == [1, 3, 0, 2, 4]
    assert steps.sizes.tolist() == [2, 2, 1]
    assert steps.sorted.tolist() == [1, 0]
    assert steps.order[steps.reverse].tolist() == [4, 1, 3, 0, 2]  # b2 a1 | b1 a0 | b0


def test_one_step_of_the_gru_with_the_reset_gate_before_the_product_worked_by_hand() -> None:
    cell = GruResetBefore(1, 1)
    with torch.no_grad():
        cell.inputs.weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))
        cell.inputs.bias.copy_(torch.tensor([0.0, math.log(3.0), 0.0]))  # r = 1/2, z = 3/4
        cell.gates.weight.zero_()
        cell.candidate.weight.fill_(2.0)
        state, _ = cell.step(torch.tensor([[0.5]]), (torch.tensor([[0.4]]),))
    assert float(state) == pytest.approx(0.25 * math.tanh(0.5 + 2.0 * (0.5 * 0.4)) + 0.75 * 0.4, abs=1e-7)


def test_with_an_open_reset_gate_both_forms_of_the_gru_are_one_and_else_they_are_not() -> None:
    part, theirs = make("gru_reset_before", layers=1), nn.GRU(WIDTH, HIDDEN)
    cell, layout, vectors = part.cells[0], Layout((5,)), rows((5,))

    @torch.no_grad()
    def difference() -> float:
        theirs.double().load_state_dict({
            "weight_ih_l0": cell.inputs.weight, "bias_ih_l0": cell.inputs.bias,
            "weight_hh_l0": torch.cat([cell.gates.weight, cell.candidate.weight]),
            "bias_hh_l0": torch.zeros(3 * HIDDEN),
        })  # fmt: skip
        return float((part(vectors, layout)[0] - theirs(vectors)[0]).abs().max())

    assert difference() > 1e-3
    with torch.no_grad():
        cell.inputs.bias[:HIDDEN] = 100.0  # r = 1
    assert difference() < 1e-12


@kinds
@both
def test_values_and_gradients_equal_the_reference_on_each_sequence(kind: str, bidirectional: bool) -> None:
    part, layout, vectors = make(kind, bidirectional), Layout(LENGTHS), rows().requires_grad_()
    state = states(part, len(LENGTHS))
    actual, end = part(vectors, layout, state)
    expected, last = one_by_one(part, vectors, layout, state)
    assert actual.shape == (layout.tokens, part.output_width)
    exact(actual, expected)
    exact(end, last)
    weights = torch.arange(sum(LENGTHS), dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((out.sum(1) * weights).sum(), vectors)[0] for out in (actual, expected))
    exact(ours, theirs)


@kinds
def test_a_state_is_taken_up_and_handed_on(kind: str) -> None:
    part, vectors = make(kind), rows((4, 6))
    whole, end = part(vectors, Layout((4, 6)))
    early, late = vectors[[0, 1, 4, 5, 6]], vectors[[2, 3, 7, 8, 9]]
    first, state = part(early, Layout((2, 3)))
    second, result = part(late, Layout((2, 3)), state)
    exact(torch.cat([first, second]), whole[[0, 1, 4, 5, 6, 2, 3, 7, 8, 9]])
    exact(result, end)


@kinds
def test_steps_equal_the_whole(kind: str) -> None:
    part, layout, vectors = make(kind), Layout((4, 4, 4)), rows((4, 4, 4))
    whole, end = part(vectors, layout)
    state, outputs = part.start(3, vectors), []
    for column in layout.pad(vectors).unbind(1):
        output, state = part.step(column, state)
        outputs.append(output)
    exact(layout.unpad(torch.stack(outputs, 1)), whole)
    exact(state, end)


@kinds
@both
def test_a_sequence_without_tokens_ends_where_it_began(kind: str, bidirectional: bool) -> None:
    part, vectors = make(kind, bidirectional), rows((2, 3))
    start = states(part, 4)
    actual, end = part(vectors, Layout((0, 2, 0, 3)), start)
    expected, others = part(vectors, Layout((2, 3)), tuple(piece[:, [1, 3]] for piece in start))
    exact(actual, expected)
    for piece, first, other in zip(end, start, others, strict=True):
        exact(piece[:, [0, 2]], first[:, [0, 2]])
        exact(piece[:, [1, 3]], other)
    nothing, end = part(vectors[:0], Layout((0, 0)))
    assert nothing.shape == (0, part.output_width)
    assert all(not piece.any() for piece in end)


@kinds
@both
def test_every_layer_is_shown_and_a_stack_may_be_cut(kind: str, bidirectional: bool) -> None:
    part, layout, vectors = make(kind, bidirectional), Layout(LENGTHS), rows()
    outputs, end = part.each_layer(vectors, layout, None)
    exact(outputs[-1], part(vectors, layout)[0])
    exact(part.each_layer(vectors, layout, None, depth=1)[0], outputs[:1])
    assert len(end[0]) == LAYERS * part.directions


@kinds
def test_dropout_lies_between_the_layers_and_only_in_training(kind: str) -> None:
    part, layout, vectors = make(kind, bidirectional=True, dropout=0.5), Layout(LENGTHS), rows()
    still = part.eval()(vectors, layout)[0]
    exact(part(vectors, layout)[0], still)
    assert not torch.equal(part.train()(vectors, layout)[0], still)
    alone = make(kind, dropout=0.5, layers=1).train()  # one layer has no between
    exact(alone(vectors, layout)[0], alone(vectors, layout)[0])


@pytest.mark.parametrize("kind", TORCH)
def test_a_seed_draws_the_masks_that_torch_s_module_draws(kind: str) -> None:
    part, vectors = make(kind, dropout=0.5).train(), rows((5, 5))
    module = torch_module(part).train()
    module.dropout = 0.5
    torch.manual_seed(3)
    result = Layout((5, 5)).pad(part(vectors, Layout((5, 5)))[0])
    torch.manual_seed(3)
    exact(result.transpose(0, 1), module(vectors.view(2, 5, WIDTH).transpose(0, 1))[0])


def test_building_on_the_meta_device_takes_no_memory() -> None:
    with torch.device("meta"):
        part = RecurrentStack("lstm", 10**6, 10**4, LAYERS)
    assert all(weight.is_meta for weight in part.parameters())
