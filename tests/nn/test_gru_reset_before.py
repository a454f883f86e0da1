"""The lectures' GRU equals its formula, step by step; and torch's form where the reset gate is open."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from kinfolk.nn.gru import KINDS, DeckCell, DeckGru, build_recurrent
from kinfolk.nn.packed import Layout
from kinfolk.nn.recurrent import CellState

LENGTHS = (2, 5, 1, 5, 3)
WIDTH, HIDDEN, LAYERS = 4, 3, 2
kinds = pytest.mark.parametrize("kind", KINDS)


def rows(lengths: tuple[int, ...] = LENGTHS, width: int = WIDTH) -> Tensor:
    return torch.randn(sum(lengths), width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def exact(found: object, expected: object) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def by_the_formula(cell: DeckCell, vectors: Tensor, hidden: Tensor) -> Tensor:
    """h_1 … h_n of one sequence, with the matrices of the lectures."""
    (w_r, w_z, w_h), (b_r, b_z, b_h) = cell.inputs.weight.chunk(3), cell.inputs.bias.chunk(3)
    (u_r, u_z), u_h = cell.gates.weight.chunk(2), cell.candidate.weight
    found = []
    for x in vectors:
        z = torch.sigmoid(w_z @ x + u_z @ hidden + b_z)
        r = torch.sigmoid(w_r @ x + u_r @ hidden + b_r)
        hidden = (1 - z) * torch.tanh(w_h @ x + u_h @ (r * hidden) + b_h) + z * hidden
        found.append(hidden)
    return torch.stack(found)


def test_one_step_worked_by_hand() -> None:
    cell = DeckCell(1, 1)
    with torch.no_grad():
        cell.inputs.weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))
        cell.inputs.bias.copy_(torch.tensor([0.0, math.log(3.0), 0.0]))  # r = 1/2, z = 3/4
        cell.gates.weight.zero_()
        cell.candidate.weight.fill_(2.0)
        found = cell.moved(cell.inputs(torch.tensor([[0.5]])), torch.tensor([[0.4]]))
    assert float(found) == pytest.approx(0.25 * math.tanh(0.5 + 2.0 * (0.5 * 0.4)) + 0.75 * 0.4, abs=1e-7)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_packed_batch_equals_the_formula_on_each_sequence(bidirectional: bool) -> None:
    torch.manual_seed(0)
    part, layout, vectors = DeckGru(WIDTH, HIDDEN, LAYERS, bidirectional).double(), Layout(LENGTHS), rows()
    (before,) = state = (rows((LAYERS * part.directions * len(LENGTHS),), HIDDEN).view(-1, len(LENGTHS), HIDDEN),)
    found, (end,) = part(vectors, layout, state)
    for number, own in enumerate(layout.split(vectors)):
        layer = own
        for first in range(0, len(part.cells), part.directions):
            sides = [by_the_formula(part.cells[first], layer, before[first, number])]
            exact(end[first, number], sides[0][-1])
            if bidirectional:
                back = by_the_formula(part.cells[first + 1], layer.flip(0), before[first + 1, number])
                exact(end[first + 1, number], back[-1])
                sides.append(back.flip(0))
            layer = torch.cat(sides, -1)
        exact(layout.split(found)[number], layer)


def test_with_an_open_reset_gate_both_forms_are_one_and_else_they_are_not() -> None:
    torch.manual_seed(0)
    part, theirs = DeckGru(WIDTH, HIDDEN, 1, False).double(), nn.GRU(WIDTH, HIDDEN)
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
def test_steps_equal_the_whole(kind: str) -> None:
    torch.manual_seed(0)
    part, layout, vectors = build_recurrent(kind, WIDTH, HIDDEN, LAYERS).double(), Layout((4, 4, 4)), rows((4, 4, 4))
    whole, end = part(vectors, layout)
    state, steps = part.start(3, vectors), []
    for given in layout.pad(vectors).unbind(1):
        found, state = part.step(given, state)
        steps.append(found)
    exact(layout.unpad(torch.stack(steps, 1)), whole)
    exact(state, end)


@kinds
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_sequence_without_tokens_ends_where_it_began(kind: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    part = build_recurrent(kind, WIDTH, HIDDEN, LAYERS, bidirectional).double()
    vectors, pieces = rows((2, 3)), part.start(4, rows())
    start: CellState = tuple(torch.randn_like(piece) for piece in pieces)
    found, end = part(vectors, Layout((0, 2, 0, 3)), start)
    expected, others = part(vectors, Layout((2, 3)), tuple(piece[:, [1, 3]] for piece in start))
    exact(found, expected)
    for piece, first, other in zip(end, start, others, strict=True):
        exact(piece[:, [0, 2]], first[:, [0, 2]])
        exact(piece[:, [1, 3]], other)
    nothing, end = part(vectors[:0], Layout((0, 0)))
    assert nothing.shape == (0, part.output_width)
    assert all(not piece.any() for piece in end)


def test_dropout_lies_between_the_layers_and_only_in_training() -> None:
    torch.manual_seed(0)
    part, layout, vectors = DeckGru(WIDTH, HIDDEN, LAYERS, dropout=0.5).double(), Layout(LENGTHS), rows()
    assert not torch.equal(part.train()(vectors, layout)[0], part.eval()(vectors, layout)[0])
    alone = DeckGru(WIDTH, HIDDEN, 1, dropout=0.5).double().train()
    exact(alone(vectors, layout)[0], alone(vectors, layout)[0])
