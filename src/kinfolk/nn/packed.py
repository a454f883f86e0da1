"""Packed batches: one matrix of all tokens, and a note of where each sequence lies.

A batch of sequences with lengths (3, 1, 2) is not a padded 3 x 3 rectangle but six rows:

    owner     0 0 0 1 2 2
    position  0 1 2 0 0 1
    starts    ^     ^ ^

Linear layers, norms and losses see (tokens, width) and know nothing of sequences. Only attention and
recurrence ask the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

import torch
from torch import Tensor

Ids = Sequence[Sequence[int]]
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Layout:
    lengths: tuple[int, ...]  # on the host, so that nothing waits for a device and the meta device works
    device: torch.device = CPU
    first_positions: tuple[int, ...] | None = None  # of each first token: zeros, unless a cache or memory came before

    @property
    def sequences(self) -> int:
        return len(self.lengths)

    @cached_property
    def tokens(self) -> int:
        return sum(self.lengths)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.lengths, initial=0))[:-1]

    @cached_property
    def _lengths(self) -> Tensor:
        return torch.tensor(self.lengths, dtype=torch.long, device=self.device)

    @cached_property
    def owners(self) -> Tensor:
        """(tokens,): which sequence each token belongs to."""
        indices = torch.arange(self.sequences, device=self.device)
        return indices.repeat_interleave(self._lengths, output_size=self.tokens)

    @cached_property
    def positions(self) -> Tensor:
        """(tokens,): of each token in its own sequence, counted from `first_positions`."""
        if self.sequences == 1:
            first = 0 if self.first_positions is None else self.first_positions[0]
            return torch.arange(first, first + self.tokens, device=self.device)
        shifts = self.starts
        if self.first_positions is not None:
            shifts = tuple(start - first for start, first in zip(shifts, self.first_positions, strict=True))
        shift = torch.tensor(shifts, dtype=torch.long, device=self.device)
        return torch.arange(self.tokens, device=self.device) - shift[self.owners]

    def split(self, packed: Tensor) -> tuple[Tensor, ...]:
        return torch.split(packed, list(self.lengths))

    def pad(self, packed: Tensor, fill: float = 0.0) -> Tensor:
        """(tokens, …) -> (sequences, longest, …), padded with `fill`."""
        longest = max(self.lengths, default=0)
        padded = packed.new_full((self.sequences * longest, *packed.shape[1:]), fill)
        return padded.index_copy_(0, self._padded_rows, packed).view(self.sequences, longest, *packed.shape[1:])

    def unpad(self, padded: Tensor) -> Tensor:
        """(sequences, longest, …) -> (tokens, …): the inverse of `pad`."""
        return padded.flatten(0, 1).index_select(0, self._padded_rows)

    @cached_property
    def _padded_rows(self) -> Tensor:
        columns = self.positions if self.first_positions is None else Layout(self.lengths, self.device).positions
        return self.owners * max(self.lengths, default=0) + columns

    @cached_property
    def first_rows(self) -> Tensor:
        """(sequences,): where the first token of each sequence stands. Every sequence must have one."""
        return torch.tensor(self.starts, dtype=torch.long, device=self.device)

    @cached_property
    def reversed_rows(self) -> Tensor:
        """(tokens,): the rows of each sequence from last to first."""
        return (2 * self.first_rows + self._lengths - 1)[self.owners] - torch.arange(self.tokens, device=self.device)

    def first(self, packed: Tensor) -> Tensor:
        """(tokens, …) -> (sequences, …): the first token of each sequence."""
        return packed.index_select(0, self.first_rows)

    def last(self, packed: Tensor) -> Tensor:
        """(tokens, …) -> (sequences, …): the last token of each sequence, which must have one."""
        return packed.index_select(0, self.first_rows + self._lengths - 1)

    def mean(self, packed: Tensor) -> Tensor:
        """(tokens, width) -> (sequences, width): the mean over each sequence; zeros for an empty one."""
        if self.sequences == 1 and self.tokens:
            return packed.mean(0, keepdim=True)
        total = packed.new_zeros(self.sequences, *packed.shape[1:]).index_add(0, self.owners, packed)
        return total / self._lengths.clamp(min=1).to(packed.dtype).unsqueeze(-1)

    def max(self, packed: Tensor) -> Tensor:
        """(tokens, width) -> (sequences, width): the largest value over each sequence; zeros for an empty one."""
        rows = [part.amax(0) if len(part) else packed.new_zeros(packed.shape[1:]) for part in self.split(packed)]
        return torch.stack(rows) if rows else packed.new_zeros(0, *packed.shape[1:])


@dataclass(frozen=True)
class Tokens:
    """A packed batch as models take it."""

    ids: Tensor  # (tokens,), or (tokens, characters) for a model that reads a token's characters
    layout: Layout
    segments: Tensor | None = None  # (tokens,); None: all zero


def pack(sequences: Ids, segments: Ids | None = None, device: torch.device | str = "cpu") -> Tokens:
    """Join sequences of ids into one batch.

    >>> batch = pack([[7, 8, 9], [5]])
    >>> batch.ids.tolist(), batch.layout.positions.tolist()
    ([7, 8, 9, 5], [0, 1, 2, 0])
    """
    device = torch.device(device)
    layout = Layout(tuple(len(sequence) for sequence in sequences), device)
    return Tokens(_joined(sequences, device), layout, None if segments is None else _joined(segments, device))


def join(first: Layout, second: Layout) -> tuple[Layout, Tensor]:
    """Sequence i of `first` then sequence i of `second`; torch.cat([their rows])[order] are the rows of the joined.

    >>> layout, order = join(Layout((2, 1)), Layout((1, 2)))
    >>> layout.lengths, order.tolist()
    ((3, 3), [0, 1, 3, 2, 4, 5])
    """
    lengths = tuple(sum(pair) for pair in zip(first.lengths, second.lengths, strict=True))
    owners = torch.cat([first.owners, second.owners])
    return Layout(lengths, first.device, first.first_positions), owners.argsort(stable=True)


def pack_for(segment_count: int, sequences: Ids, segments: Ids, device: torch.device) -> Tokens:
    """As `pack`, for a model of that many segments; they are left out where all tokens are of the first."""
    needed = segment_count > 1 and any(any(row) for row in segments)
    return pack(sequences, segments if needed else None, device)


def _joined(sequences: Ids, device: torch.device) -> Tensor:
    return torch.tensor(list(chain.from_iterable(sequences)), dtype=torch.long, device=device)
