"""A recurrent decoder: a table of tokens, a recurrent stack, and the scores of the next token.

    ids ── table ── dropout ── stack ── dropout ──> vectors ── output table, bias ──> scores

A language model is one of these alone; the decoder of a sequence-to-sequence model is one whose state begins elsewhere.
Both have the same weights under the same names, so that one can start the other. Dropout lies where nothing recurs
(Zaremba et al. 2014).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from kinfolk.nn.fast.dropout import Dropout
from kinfolk.nn.fast.linear import Embedding, Linear
from kinfolk.nn.gru import build_recurrent
from kinfolk.nn.packed import Tokens
from kinfolk.nn.recurrent import CellState
from kinfolk.nn.trace import Trace


class RecurrentDecoder(nn.Module):
    """Tokens -> vectors (tokens, hidden), and the state after them. `tied`: the table of tokens also scores them."""

    def __init__(self, vocabulary: int, width: int, hidden: int, layers: int, kind: str, dropout: float, tied: bool):
        super().__init__()
        self.table = Embedding(vocabulary, width)
        self.stack = build_recurrent(kind, width, hidden, layers, dropout=dropout)
        self.output = None if tied else Linear(hidden, vocabulary, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary))
        self.dropout = Dropout(dropout)

    @property
    def output_table(self) -> Tensor:
        """(vocabulary, hidden): what vectors are scored with."""
        return (self.table if self.output is None else self.output).weight

    def forward(
        self, tokens: Tokens, state: CellState | None = None, trace: Trace | None = None
    ) -> tuple[Tensor, CellState]:
        """`state` is where each sequence begins, zeros without it. A trace gets the embeddings and the top layer."""
        given = self.dropout(self.table(tokens.ids))
        found, state = self.stack(given, tokens.layout, state)
        if trace is not None:
            trace.begin(tokens.layout)
            trace.add_hidden(given)
            trace.add_hidden(found)
        return self.dropout(found), state

    def step(self, ids: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """One token more of each row: (rows,) -> (rows, hidden), and the state after it."""
        found, state = self.stack.step(self.dropout(self.table(ids)), state)
        return self.dropout(found), state

    def scores(self, hidden: Tensor) -> Tensor:
        """Of the next token, before the softmax: (rows, vocabulary)."""
        table = self.table if self.output is None else self.output
        return table.project(hidden, self.output_bias)


@dataclass(frozen=True)
class RecurrentState:
    """What a recurrent decoder remembers while it writes: the state of each row (see state.py)."""

    beams: int
    memory: CellState  # each (layers, rows, hidden)

    @classmethod
    def of(cls, memory: CellState, beams: int) -> RecurrentState:
        """From the state of each sentence; all its beams begin there."""
        return cls(beams, tuple(piece.repeat_interleave(beams, dim=1) for piece in memory))

    def reorder(self, rows: Tensor) -> Self:
        """Row i goes on from what row rows[i] was."""
        return replace(self, memory=tuple(piece.index_select(1, rows) for piece in self.memory))

    def keep(self, sentences: Tensor) -> Self:
        """Only these sentences, with all their beams."""
        beams = torch.arange(self.beams, device=sentences.device)
        return self.reorder((sentences.unsqueeze(1) * self.beams + beams).flatten())
