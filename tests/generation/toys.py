"""Toy models that write: scores looked up in a table by all that a row has read, so that mixing rows up shows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from kinfolk.generation.config import DecodingConstraints, Penalty, Request
from kinfolk.nn.packed import Tokens, pack

BEGIN, END = 0, 1
PREFIXES = 701  # more texts than this share their scores
Number = TypeVar("Number", int, Tensor)


@dataclass(frozen=True)
class ToyState:
    """`prefixes` number what each row has read; `tables` name its sentence."""

    beams: int
    tables: Tensor  # (rows,)
    prefixes: Tensor  # (rows,)

    @property
    def rows(self) -> int:
        return len(self.tables)

    def _at(self, rows: Tensor) -> ToyState:
        return replace(self, tables=self.tables[rows], prefixes=self.prefixes[rows])

    def reorder(self, rows: Tensor) -> ToyState:
        assert torch.equal(self.tables[rows], self.tables), "a row left its sentence"
        return self._at(rows)

    def keep(self, sentences: Tensor) -> ToyState:
        return self._at((sentences.unsqueeze(1) * self.beams + torch.arange(self.beams)).flatten())


class Toy:
    """Each sentence is one id: the number of its table. Tables are random: (tables, prefixes, vocabulary)."""

    def __init__(self, seed: int, vocabulary: int, tables: int = 8, spread: float = 2.0):
        self.vocabulary = vocabulary
        generator = torch.Generator().manual_seed(seed)
        shape = (tables, PREFIXES, vocabulary)
        self.table = spread * torch.randn(shape, generator=generator, dtype=torch.float64)

    def start(self, source: Tokens, beams: int) -> ToyState:
        tables = source.layout.first(source.ids).repeat_interleave(beams)
        return ToyState(beams, tables, torch.zeros_like(tables))

    def after(self, prefixes: Number, ids: Number) -> Number:
        return (prefixes * (self.vocabulary + 1) + ids + 1) % PREFIXES

    def step(self, ids: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        prefixes = self.after(state.prefixes, ids)
        return self.table[state.tables, prefixes].clone(), replace(state, prefixes=prefixes)

    def log_probability(self, table: int, ids: Sequence[int]) -> float:
        """Of a text, its end included if it is there, read by the definition."""
        prefix, total = 0, 0.0
        for fed, written in zip((BEGIN, *ids), ids, strict=False):
            prefix = self.after(prefix, fed)
            total += self.logs[table][prefix][written]
        return total

    @cached_property
    def logs(self) -> list[list[list[float]]]:
        """log-probabilities as plain numbers; the table must not change afterwards."""
        logs: list[list[list[float]]] = self.table.log_softmax(-1).tolist()
        return logs

    def all_texts(
        self, table: int, longest: int, penalty: Penalty, rules: DecodingConstraints
    ) -> list[tuple[float, list[int]]]:
        """(score, ids with the end) of every text there is, best first."""
        others = [token for token in range(self.vocabulary) if token != END and token not in rules.never]
        results = []
        for length in range(longest + 1):
            for words in itertools.product(others, repeat=length):
                ended = length < longest
                if ended and END in rules.never:
                    continue
                ids = [*words, END] if ended else list(words)
                score = self.log_probability(table, ids) / penalty(torch.tensor(len(ids))).item()
                results.append((score, ids))
        return sorted(results, key=lambda text: -text[0])


def ask(tables: Sequence[int], longest: int | Sequence[int], rules: DecodingConstraints | None = None) -> Request:
    """A request for the sentences with these tables; sentence i has i % 3 + 1 source tokens."""
    lengths = [longest] * len(tables) if isinstance(longest, int) else longest
    source = pack([[table] * (table % 3 + 1) for table in tables])
    return Request(source, BEGIN, lengths, rules or DecodingConstraints(END))


def close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)
