"""A recurrent body: a table of tokens and a recurrent stack, whose state may begin elsewhere and goes on.

    ids ── table ── dropout ── stack ── dropout ──> vectors, and the state after them

A recurrent language model is one of these under a vocabulary head; the decoder of a sequence-to-sequence model is one
whose state begins where the encoder ended. Both have the same weights, so that one can start the other. Dropout lies
where nothing recurs (Zaremba et al. 2014).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from kinfolk.nn.fast.dropout import Dropout
from kinfolk.nn.fast.linear import Embedding
from kinfolk.nn.gru import DeckGru, build_recurrent
from kinfolk.nn.packed import Layout, Tokens
from kinfolk.nn.recurrent import CellState, Recurrent
from kinfolk.nn.trace import Trace

LAYER = re.compile(r"_l(\d+)(_reverse)?$")  # as torch ends the names of its weights
CELL = re.compile(r"cells\.(\d+)\.")  # as DeckGru begins them: layers x directions


class RecurrentBody(nn.Module):
    """tokens -> (tokens, directions x hidden), and the state after them."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        hidden: int,
        layers: int,
        kind: str,
        dropout: float,
        bidirectional: bool = False,
    ):
        super().__init__()
        self.depth, self.bidirectional = layers, bidirectional
        self.table = Embedding(vocabulary, width)
        self.stack = build_recurrent(kind, width, hidden, layers, bidirectional, dropout)
        self.dropout = Dropout(dropout)

    @property
    def token_embedding(self) -> Embedding:
        """(vocabulary, width), which a vocabulary head may share."""
        return self.table

    def forward(
        self, tokens: Tokens, trace: Trace | None = None, depth: int | None = None, state: CellState | None = None
    ) -> Tensor:
        """Vectors of the last layer, or of layer `depth`; `state` is where each sequence begins, zeros without it."""
        if trace is None and depth is None:
            return self.read(tokens, state)[0]
        embedded = self.dropout(self.table(tokens.ids))
        layers = [embedded, *self.stack.each_layer(embedded, tokens.layout, state)][
            : None if depth is None else depth + 1
        ]
        if trace is not None:
            trace.begin(tokens.layout)
            for hidden in layers:
                trace.add_hidden(hidden)
        return self.dropout(layers[-1])  # type: ignore[no-any-return]

    def read(self, tokens: Tokens, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """Vectors of the last layer, and the state after each sequence, from which the next batch can go on."""
        hidden, end = self.stack(self.dropout(self.table(tokens.ids)), tokens.layout, state)
        return self.dropout(hidden), end

    def last(self, hidden: Tensor, layout: Layout) -> Tensor:
        """What each direction knows when it has read all: (tokens, width) -> (sequences, width)."""
        if not self.bidirectional:
            return layout.last(hidden)
        forth, back = hidden.chunk(2, -1)  # what was read from the right has read all at the first token
        return torch.cat([layout.last(forth), layout.first(back)], -1)

    def start(self, source: Tokens, beams: int) -> RecurrentState:
        """Read what each text begins with, but for its last token: that is fed first. An empty beginning is none."""
        return RecurrentState.of(self.read(source)[1], beams)

    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """One token more of each row: (rows,) -> (rows, hidden), and the state after it."""
        hidden, memory = self.stack.step(self.dropout(self.table(ids)), state.memory)
        return self.dropout(hidden), replace(state, memory=memory)

    def layer_id(self, name: str) -> int:
        """The layer that a weight belongs to, from 1, and 0 for the table."""
        return 1 + layer_of(name, self.stack) if name.startswith("stack.") else 0


def layer_of(name: str, stack: Recurrent | DeckGru) -> int:
    """The index of the layer, from 0, that a weight of a recurrent stack belongs to."""
    match = (CELL if isinstance(stack, DeckGru) else LAYER).search(name)
    layer = int(match[1]) if match else 0
    return layer // stack.directions if isinstance(stack, DeckGru) else layer


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
