"""The GRU as the lectures write it, a loop of steps; and the choice between it and torch's kernels.

    z_t = sigmoid(W_z x_t + U_z h_(t-1) + b_z)
    r_t = sigmoid(W_r x_t + U_r h_(t-1) + b_r)
    n_t = tanh(W_h x_t + U_h (r_t h_(t-1)) + b_h)            torch: n_t = tanh(W_h x_t + b_h + r_t (U_h h_(t-1) + c_h))
    h_t = (1 - z_t) n_t + z_t h_(t-1)

Two forms of one idea, and two names: "deck_gru" resets the past before it enters the matrix (Cho et al. 2014), "gru"
resets what comes out of it, so that one product serves all gates; that is what torch's and cuDNN's kernels compute.
Weights learned in one form mean something else in the other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kinfolk.nn import recurrent
from kinfolk.nn.fast.dropout import Dropout
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.packed import Layout
from kinfolk.nn.recurrent import CellState, Recurrent, Steps

KINDS = (*recurrent.KINDS, "deck_gru")


class DeckCell(nn.Module):
    """One layer in one direction."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.inputs = Linear(width, 3 * hidden)  # W_r, W_z, W_h and the three biases
        self.gates = Linear(hidden, 2 * hidden, bias=False)  # U_r, U_z
        self.candidate = Linear(hidden, hidden, bias=False)  # U_h

    def forward(self, vectors: Tensor, before: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
        """All steps of a batch: (tokens, width) and (sequences, hidden) -> (tokens, hidden) and (sequences, hidden)."""
        if not len(vectors):
            return before[:0], before
        hidden, outputs = before[steps.sorted], []
        for given in self.inputs(vectors[steps.order]).split(steps.sizes.tolist()):
            moved = self.moved(given, hidden[: len(given)])
            outputs.append(moved)
            hidden = torch.cat([moved, hidden[len(given) :]])  # shorter sequences have ended
        return torch.cat(outputs)[steps.back], hidden[steps.unsorted]

    def moved(self, given: Tensor, before: Tensor) -> Tensor:
        """One step: what `inputs` made of x_t (rows, 3 hidden), and h_(t-1) (rows, hidden) -> h_t."""
        width = before.shape[-1]
        reset, update = torch.sigmoid(given[:, : 2 * width] + self.gates(before)).chunk(2, -1)
        candidate = torch.tanh(given[:, 2 * width :] + self.candidate(reset * before))
        return (1 - update) * candidate + update * before


class DeckGru(nn.Module):
    """As `Recurrent`: (tokens, width) -> (tokens, directions x hidden), and the state after the end."""

    kind = "deck_gru"

    def __init__(self, width: int, hidden: int, layers: int = 1, bidirectional: bool = True, dropout: float = 0.0):
        super().__init__()
        self.hidden, self.directions = hidden, 1 + bidirectional
        self.output_width = hidden * self.directions
        widths = [width, *[self.output_width] * (layers - 1)]
        self.cells = nn.ModuleList([DeckCell(given, hidden) for given in widths for _ in range(self.directions)])
        self.dropout = Dropout(dropout)

    def start(self, sequences: int, like: Tensor) -> CellState:
        """Zeros, on the device and in the type of `like`."""
        return (like.new_zeros(len(self.cells), sequences, self.hidden),)

    def forward(self, vectors: Tensor, layout: Layout, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """`state` is where each sequence begins (zeros without it); one without tokens ends where it began."""
        layers, state = self._layers(vectors, layout, state)
        return layers[-1], state

    def each_layer(self, vectors: Tensor, layout: Layout, state: CellState | None = None) -> list[Tensor]:
        """What every layer gives, (tokens, directions x hidden) each."""
        return self._layers(vectors, layout, state)[0]

    def _layers(self, vectors: Tensor, layout: Layout, state: CellState | None) -> tuple[list[Tensor], CellState]:
        steps, turned = Steps.of(layout), _turned(layout)
        (before,) = self.start(layout.sequences, vectors) if state is None else state
        ends, layers = [], []
        for first in range(0, len(self.cells), self.directions):
            found, end = self.cells[first](vectors, before[first], steps)
            ends.append(end)
            if self.directions == 2:
                back, end = self.cells[first + 1](vectors[turned], before[first + 1], steps)
                found = torch.cat([found, back[turned]], -1)
                ends.append(end)
            layers.append(found)
            vectors = self._between(found, first)
        return layers, (torch.stack(ends),)

    def step(self, vectors: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """One token more of each row: (rows, width) -> (rows, hidden). Not for both directions: none knows its end."""
        assert self.directions == 1, "a text cannot be written from both ends"
        ends = []
        for number, cell in enumerate(self.cells):
            found = cell.moved(cell.inputs(vectors), state[0][number])  # type: ignore[operator]
            ends.append(found)
            vectors = self._between(found, number)
        return vectors, (torch.stack(ends),)

    def _between(self, found: Tensor, number: int) -> Tensor:
        """Dropout lies between the layers, not above the last."""
        last = number + self.directions == len(self.cells)
        return found if last else self.dropout(found)


def build_recurrent(
    kind: str, width: int, hidden: int, layers: int = 1, bidirectional: bool = False, dropout: float = 0.0
) -> Recurrent | DeckGru:
    """A recurrent stack of one of `KINDS`."""
    if kind == "deck_gru":
        return DeckGru(width, hidden, layers, bidirectional, dropout)
    return Recurrent(width, hidden, layers, kind, bidirectional, dropout)


def _turned(layout: Layout) -> Tensor:
    """(tokens,): the row that stands in each place when every sequence is read from its end; its own inverse."""
    lengths = torch.tensor(layout.lengths, device=layout.device)
    starts = torch.tensor(layout.starts, device=layout.device)
    return (2 * starts + lengths - 1)[layout.owners] - torch.arange(layout.tokens, device=layout.device)
