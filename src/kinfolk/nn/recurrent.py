"""Recurrence over packed batches: torch's RNN, LSTM and GRU kernels, without padding.

    rnn    h_t = tanh(W x_t + U h_(t-1) + b)
    gru    h_t = (1 - z) n + z h_(t-1),     z and n from x_t and h_(t-1); n = tanh(W x_t + r (U h_(t-1) + b) + a)
    lstm   c_t = f c_(t-1) + i g,  h_t = o tanh(c_t),     i, f, g, o from x_t and h_(t-1)

The kernels want their rows step by step, the longest sequences first: all first tokens, then all second ones. Our rows
lie sequence by sequence, so one permutation leads there and one back.

    ours     a0 a1 b0 b1 b2        theirs   b0 a0 | b1 a1 | b2
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from kinfolk.nn.packed import Layout

CellState = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM: each (layers x directions, sequences, hidden)


class _NotOnMeta(nn.RNNBase):
    """As in fast/linear.py: on the meta device random numbers mean nothing, and asking for them is slow."""

    def reset_parameters(self) -> None:
        if not next(self.parameters()).is_meta:
            super().reset_parameters()


class _Plain(_NotOnMeta, nn.RNN):
    pass


class _Gated(_NotOnMeta, nn.GRU):
    pass


class _LongShort(_NotOnMeta, nn.LSTM):
    pass


KINDS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": _Plain, "lstm": _LongShort, "gru": _Gated}


class Recurrent(nn.Module):
    """A stack of recurrent layers: (tokens, width) -> (tokens, directions x hidden), and the state after the end.

    With both directions, a token's vector is what was read up to it from the left and from the right, side by side; a
    layer of the stack reads both of the layer below. Dropout lies between the layers.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        layers: int = 1,
        kind: str = "lstm",
        bidirectional: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.kind = kind
        self.output_width = hidden * (1 + bidirectional)
        between = dropout if layers > 1 else 0.0
        self.cells = KINDS[kind](width, hidden, layers, dropout=between, bidirectional=bidirectional)

    def start(self, sequences: int, like: Tensor) -> CellState:
        """Zeros, on the device and in the type of `like`."""
        cells = self.cells
        shape = (cells.num_layers * (1 + cells.bidirectional), sequences, cells.hidden_size)
        return tuple(like.new_zeros(shape) for _ in range(2 if self.kind == "lstm" else 1))

    def forward(self, vectors: Tensor, layout: Layout, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """`state` is where each sequence begins (zeros without it); one without tokens ends where it began."""
        if 0 in layout.lengths:
            return self._beside_empty(
                vectors, layout, self.start(layout.sequences, vectors) if state is None else state
            )
        steps = Steps.of(layout)
        given = PackedSequence(vectors[steps.order], steps.sizes, steps.sorted, steps.unsorted)
        found, end = self._run(given, state)
        return found.data[steps.back], end

    def each_layer(self, vectors: Tensor, layout: Layout, state: CellState | None = None) -> list[Tensor]:
        """What every layer gives, (tokens, directions x hidden) each; torch's kernels show only the last."""
        found, directions = [], 1 + self.cells.bidirectional
        for number in range(self.cells.num_layers):
            rows = slice(number * directions, (number + 1) * directions)
            before = None if state is None else tuple(piece[rows] for piece in state)
            vectors = self._layer(number)(vectors, layout, before)[0]
            found.append(vectors)
            vectors = F.dropout(vectors, self.cells.dropout, self.training)
        return found

    def _layer(self, number: int) -> Recurrent:
        """One layer as a stack of its own, of the same weights."""
        cells = self.cells
        width = cells.input_size if number == 0 else self.output_width
        with torch.device("meta"):
            layer = Recurrent(width, cells.hidden_size, 1, self.kind, cells.bidirectional)
        for name in list(dict(layer.cells.named_parameters())):
            setattr(layer.cells, name, getattr(cells, name.replace("_l0", f"_l{number}")))
        return layer

    def step(self, vectors: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """One token more of each row: (rows, width) -> (rows, hidden). Not for both directions: none knows its end."""
        assert not self.cells.bidirectional, "a text cannot be written from both ends"
        found, end = self._run(vectors.unsqueeze(0), state)
        return found[0], end

    def _run(self, given: Any, state: CellState | None) -> tuple[Any, CellState]:
        found, end = self.cells(given, state[0] if state is not None and self.kind != "lstm" else state)
        return found, end if isinstance(end, tuple) else (end,)

    def _beside_empty(self, vectors: Tensor, layout: Layout, state: CellState) -> tuple[Tensor, CellState]:
        """The kernels know no empty sequences: the others run without them. Empty ones have no rows to take out."""
        lengths = tuple(length for length in layout.lengths if length)
        if not lengths:
            return vectors.new_zeros(0, self.output_width), state
        numbers = [number for number, length in enumerate(layout.lengths) if length]
        rows = torch.tensor(numbers, device=layout.device)
        found, end = self(vectors, Layout(lengths, layout.device), tuple(piece[:, rows] for piece in state))
        return found, tuple(piece.index_copy(1, rows, new) for piece, new in zip(state, end, strict=True))


@dataclass(frozen=True)
class Steps:
    """How the rows of a layout lie for the kernels.

    `order` leads to their rows and `back` to ours, (tokens,); `sizes` counts the sequences that are still going on at
    each step, on the host; `sorted` names the sequences by falling length, `unsorted` is its inverse.
    """

    order: Tensor
    back: Tensor
    sizes: Tensor
    sorted: Tensor
    unsorted: Tensor

    @classmethod
    def of(cls, layout: Layout) -> Steps:
        lengths = np.array(layout.lengths, dtype=np.int64)
        assert len(lengths), "there is no batch of no sequences"
        by_length = np.argsort(-lengths, kind="stable")
        ranks = np.argsort(by_length)
        owners = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(layout.tokens) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        order = np.lexsort((ranks[owners], places))
        sizes = np.bincount(places)  # place t occurs once in every sequence that is longer than t
        back = np.argsort(order)
        on_device = [torch.from_numpy(rows).to(layout.device) for rows in (order, back, by_length, ranks)]
        return cls(on_device[0], on_device[1], torch.from_numpy(sizes), on_device[2], on_device[3])
