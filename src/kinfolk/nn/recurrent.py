"""Recurrence over packed batches, without padding: a stack of single layers, each in one direction.

    rnn                h_t = tanh(W x_t + U h_(t-1) + b)
    lstm               c_t = f c_(t-1) + i g,  h_t = o tanh(c_t),      i, f, g, o from x_t and h_(t-1)
    gru                h_t = (1 - z) n + z h_(t-1),                     z and n from x_t and h_(t-1):
                         n = tanh(W x_t + a + r * (U h_(t-1) + b))      the reset gate r after the product
    gru_reset_before     n = tanh(W x_t + b + U (r * h_(t-1)))          r before the product: Cho et al. 2014

"gru" is what torch's and cuDNN's kernels compute: one product serves all gates. Weights learned in one form mean
something else in the other. The kernels want their rows step by step, the longest sequences first; ours lie sequence by
sequence, so one permutation leads there and one back. In reverse every sequence begins with its last token.

    ours     a0 a1 b0 b1 b2        theirs   b0 a0 | b1 a1 | b2        reversed   b2 a1 | b1 a0 | b0
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from kinfolk.nn.fast.linear import Linear, dropout
from kinfolk.nn.packed import Layout
from kinfolk.nn.state import CellState


@dataclass(frozen=True)
class Steps:
    """How the rows of a layout lie for the kernels."""

    layout: Layout
    sizes: Tensor  # how many sequences are still going on at each step; on the host
    order: Tensor  # (tokens,): leads to their rows
    back: Tensor  # and to ours
    sorted: Tensor  # the sequences by falling length
    unsorted: Tensor

    @classmethod
    def of(cls, layout: Layout) -> Steps:
        lengths = np.array(layout.lengths, dtype=np.int64)
        assert len(lengths), "there is no batch of no sequences"
        by_length = np.argsort(-lengths, kind="stable")
        ranks = np.argsort(by_length)
        owners = np.repeat(np.arange(len(lengths)), lengths)
        positions = np.arange(layout.tokens) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        order = np.lexsort((ranks[owners], positions))
        sizes = np.bincount(positions)  # position t occurs once in every sequence that is longer than t
        rows = (order, np.argsort(order), by_length, ranks)
        return cls(layout, torch.from_numpy(sizes), *(torch.from_numpy(indices).to(layout.device) for indices in rows))

    @cached_property
    def reverse(self) -> Tensor:
        """Leads from their rows to those of the reverse direction, and back."""
        return self.back[self.layout.reversed_rows[self.order]]


class _TorchLayer(nn.RNNBase):
    """One layer in one direction, by torch's kernels."""

    cell: Any  # one step of it

    def reset_parameters(self) -> None:
        """As in fast/linear.py: on the meta device random numbers mean nothing, and asking for them is slow."""
        if not self.weight_ih_l0.is_meta:
            super().reset_parameters()

    def run(self, vectors: Tensor, sizes: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """All steps: rows as the kernels want them (tokens, width), and the state (rows, hidden) before and after."""
        before: Any = tuple(piece.unsqueeze(0) for piece in state)
        output, after = self(PackedSequence(vectors, sizes), before if len(before) == 2 else before[0])
        return output.data, tuple(piece[0] for piece in (after if isinstance(after, tuple) else (after,)))

    def step(self, vectors: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """One step: (rows, width) -> (rows, hidden), and the state after it."""
        hidden = self.cell(vectors, state[0], *self._flat_weights)
        return hidden, (hidden,)


class _Rnn(_TorchLayer, nn.RNN):
    cell = torch.rnn_tanh_cell


class _Gru(_TorchLayer, nn.GRU):
    cell = torch.gru_cell


class _Lstm(_TorchLayer, nn.LSTM):
    def step(self, vectors: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        hidden, cell = torch.lstm_cell(vectors, state, *self._flat_weights)  # type: ignore[arg-type]
        return hidden, (hidden, cell)


class GruResetBefore(nn.Module):
    """One layer in one direction, a loop of steps.

    z = sigmoid(W_z x + U_z h + b_z)      r = sigmoid(W_r x + U_r h + b_r)      n = tanh(W_h x + U_h (r * h) + b_h)
    """

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.inputs = Linear(width, 3 * hidden)  # W_r, W_z, W_h and the three biases
        self.gates = Linear(hidden, 2 * hidden, bias=False)  # U_r, U_z
        self.candidate = Linear(hidden, hidden, bias=False)  # U_h

    def run(self, vectors: Tensor, sizes: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        (hidden,), outputs = state, []
        for projected in self.inputs(vectors).split(sizes.tolist()):
            output = self._step(projected, hidden[: len(projected)])
            outputs.append(output)
            hidden = torch.cat([output, hidden[len(projected) :]])  # shorter sequences have ended
        return torch.cat(outputs), (hidden,)

    def step(self, vectors: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        output = self._step(self.inputs(vectors), state[0])
        return output, (output,)

    def _step(self, projected: Tensor, before: Tensor) -> Tensor:
        """What `inputs` made of x_t (rows, 3 hidden), and h_(t-1) (rows, hidden) -> h_t."""
        width = before.shape[-1]
        reset, update = torch.sigmoid(projected[:, : 2 * width] + self.gates(before)).chunk(2, -1)
        candidate = torch.tanh(projected[:, 2 * width :] + self.candidate(reset * before))
        return (1 - update) * candidate + update * before


LAYERS = {"rnn": _Rnn, "lstm": _Lstm, "gru": _Gru, "gru_reset_before": GruResetBefore}
KINDS = tuple(LAYERS)


class RecurrentStack(nn.Module):
    """Recurrent layers of one of `KINDS`: (tokens, width) -> (tokens, directions x hidden), and the state at the end.

    A layer reads both directions of the layer below, side by side. Dropout lies between the layers. `cells` are the
    layers, a layer's two directions one after the other.
    """

    def __init__(
        self, kind: str, width: int, hidden: int, layers: int = 1, bidirectional: bool = False, dropout: float = 0.0
    ):
        super().__init__()
        self.kind, self.hidden, self.layers, self.directions = kind, hidden, layers, 1 + bidirectional
        self.output_width = hidden * self.directions
        widths = [width, *[self.output_width] * (layers - 1)]
        self.cells = nn.ModuleList([LAYERS[kind](inputs, hidden) for inputs in widths for _ in range(self.directions)])
        self.dropout = dropout

    def start(self, sequences: int, like: Tensor) -> CellState:
        parts = 2 if self.kind == "lstm" else 1
        return tuple(like.new_zeros(len(self.cells), sequences, self.hidden) for _ in range(parts))

    def forward(self, vectors: Tensor, layout: Layout, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """`state` is where each sequence begins (zeros without it); one without tokens ends where it began."""
        layers, end = self.each_layer(vectors, layout, state, last=True)
        return layers[0], end

    def each_layer(
        self, vectors: Tensor, layout: Layout, state: CellState | None, depth: int | None = None, last: bool = False
    ) -> tuple[list[Tensor], CellState]:
        """What each of the first `depth` layers gives, (tokens, directions x hidden) each, and the state at the end."""
        state = self.start(layout.sequences, vectors) if state is None else state
        depth = self.layers if depth is None else depth
        if not layout.tokens:
            return [vectors.new_zeros(0, self.output_width)] * depth, state
        steps, layers, ends = Steps.of(layout), [], []
        before = [piece.index_select(1, steps.sorted) for piece in state]
        vectors = vectors.index_select(0, steps.order)
        for layer in range(depth):
            if layer:
                vectors = self._drop(vectors, steps)
            sides = []
            for direction in range(self.directions):
                rows = vectors.index_select(0, steps.reverse) if direction else vectors
                index = layer * self.directions + direction
                output, end = self._run(index, rows, steps.sizes, tuple(piece[index] for piece in before))
                sides.append(output.index_select(0, steps.reverse) if direction else output)
                ends.append(end)
            vectors = torch.cat(sides, -1) if self.directions == 2 else sides[0]
            if not last or layer + 1 == depth:
                layers.append(vectors.index_select(0, steps.back))
        end = tuple(torch.stack(pieces).index_select(1, steps.unsorted) for pieces in zip(*ends, strict=True))
        return layers, end

    def step(self, vectors: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """One token more of each row: (rows, width) -> (rows, hidden). Not for both directions: none knows its end."""
        assert self.directions == 1, "a text cannot be written from both ends"
        ends = []
        for index, cell in enumerate(self.cells):
            if index:
                vectors = self._drop(vectors, None)
            vectors, end = cell.step(vectors, tuple(piece[index] for piece in state))  # type: ignore[operator]
            ends.append(end)
        return vectors, tuple(torch.stack(pieces) for pieces in zip(*ends, strict=True))

    def stored_names(self, prefix: str) -> dict[str, str]:
        return stored_names(prefix, self.kind, self.layers, self.directions == 2)

    def layer_of(self, name: str) -> int:
        """The index of the layer that a weight `….cells.….…` belongs to."""
        return int(name.rpartition("cells.")[2].split(".")[0]) // self.directions

    def _run(self, index: int, rows: Tensor, sizes: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        count = int(sizes[0])
        if count == len(state[0]):
            return self.cells[index].run(rows, sizes, state)  # type: ignore[operator, no-any-return]
        output, end = self.cells[index].run(rows, sizes, tuple(piece[:count] for piece in state))  # type: ignore[operator]
        return output, tuple(torch.cat([new, piece[count:]]) for new, piece in zip(end, state, strict=True))

    def _drop(self, vectors: Tensor, steps: Steps | None) -> Tensor:
        """Dropout between layers, drawn as torch's fused stack draws it, or for our own layer in the order of rows."""
        if not self.training or self.dropout == 0:
            return vectors
        if self.kind != "gru_reset_before":
            return torch.dropout(vectors, self.dropout, train=True)
        if steps is None:
            return dropout(vectors, self.dropout)
        return dropout(vectors.index_select(0, steps.back), self.dropout).index_select(0, steps.order)


def stored_names(prefix: str, kind: str, layers: int, bidirectional: bool) -> dict[str, str]:
    """Names of a stack's weights in files, where they are others: torch's, of one module for all layers."""
    if kind == "gru_reset_before":
        return {}
    directions = ("", "_reverse") if bidirectional else ("",)
    cells = [f"l{layer}{direction}" for layer in range(layers) for direction in directions]
    return {
        f"{prefix}cells.{index}.{part}_l0": f"{prefix}cells.{part}_{cell}"
        for index, cell in enumerate(cells)
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
