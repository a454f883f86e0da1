"""Scope: who may see whom. AttentionPlan: a scope applied to the lengths of one batch.

Attention needs rectangles, a packed batch has none. `plan` therefore sorts the sequences of a batch into groups
of equal shape, which scaled_dot_product_attention takes as they are. Short groups of nearly equal shape are joined
and padded, where the padding costs less than one more call of the kernel. Each layer reuses the same groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from kinfolk.nn.packed import Layout

# One more call of the attention kernel costs about as much as padding of this many (query, key) pairs, mask included.
CALL_COST = 300


@dataclass(frozen=True)
class PackedIndex:
    """Which packed rows one side of a group reads: `count` sequences of up to `length` tokens.

    (`index_select` has a gradient three times as fast as that of `packed[index]`.)
    """

    count: int
    length: int
    start: int = -1  # of rows that simply follow each other
    index: Tensor | None = None  # or a list of them, where padding points at a row of the same sequence
    kept: Tensor | None = None  # the entries that are not padding

    def rows(self, packed: Tensor) -> Tensor:
        """(tokens, …) -> (count, length, …)."""
        if self.index is not None:
            rows = packed.index_select(0, self.index)
        else:
            taken = self.count * self.length
            rows = packed if taken == packed.shape[0] else packed.narrow(0, self.start, taken)
        return rows.view(self.count, self.length, *packed.shape[1:])

    def take(self, packed: Tensor) -> Tensor:
        """(tokens, heads, head_width) -> (count, heads, length, head_width)."""
        return self.rows(packed).transpose(1, 2)

    def take_zero_padded(self, packed: Tensor) -> Tensor:
        if self.kept is None:
            return self.take(packed)
        rows = packed.new_zeros(self.count * self.length, *packed.shape[1:])
        rows.index_copy_(0, self.kept, packed.index_select(0, self._packed_rows))
        return rows.view(self.count, self.length, *packed.shape[1:]).transpose(1, 2)

    def unpad(self, padded: Tensor) -> Tensor:
        """(count, heads, length, head_width) -> (real tokens, heads, head_width)."""
        rows = padded.transpose(1, 2).reshape(self.count * self.length, padded.shape[1], padded.shape[3])
        return rows if self.kept is None else rows.index_select(0, self.kept)

    def write(self, packed: Tensor, padded: Tensor) -> None:
        """Write what `take` would read: (count, heads, length, head_width) into (tokens, heads, head_width)."""
        if self.index is None:
            self.rows(packed).copy_(padded.transpose(1, 2))
        else:
            packed.index_copy_(0, self._packed_rows, self.unpad(padded))

    @cached_property
    def _packed_rows(self) -> Tensor:
        assert self.index is not None
        return self.index if self.kept is None else self.index.index_select(0, self.kept)


@dataclass(frozen=True)
class Group:
    """Sequences that attend in one call: their rows, and a mask (count or 1, 1, queries, keys), True = may see."""

    sequences: tuple[int, ...]
    queries: PackedIndex
    keys: PackedIndex
    mask: Tensor | None = None
    fully_masked: Tensor | None = None  # queries that may see nothing: their output is zero
    causal: bool = False

    def allowed(self, device: torch.device) -> Tensor | None:
        """The mask, also where `causal` stands for one."""
        if not self.causal:
            return self.mask
        length = self.queries.length
        return torch.ones(length, length, dtype=torch.bool, device=device).tril()

    def take(self, projected: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Its queries, keys and values, (count, heads, length, head_width) each, out of three packed tensors or one."""
        if len(projected) == 1:
            return self.keys.rows(projected[0]).permute(2, 0, 3, 1, 4).unbind(0)
        queries, keys, values = projected
        return self.queries.take(queries), self.keys.take(keys), self.keys.take(values)


@dataclass(frozen=True)
class AttentionPlan:
    """The groups of one batch under one scope. In self-attention, `rows` of the tokens may be the only queries."""

    groups: tuple[Group, ...]
    queries: Layout
    keys: Layout
    rows: Tensor | None = None

    @cached_property
    def order(self) -> Tensor | None:
        """Where each packed row stands in the groups' outputs joined end to end; None when they are in order."""
        ends = accumulate((group.queries.count * group.queries.length for group in self.groups), initial=0)
        if all(group.queries.start == end for group, end in zip(self.groups, ends, strict=False)):
            return None
        starts, lengths = self.queries.starts, self.queries.lengths
        indices = [index for group in self.groups for index in group.sequences]
        rows = [row for index in indices for row in range(starts[index], starts[index] + lengths[index])]
        return torch.tensor(rows, device=self.queries.device).argsort()


@dataclass(frozen=True)
class Scope:
    """Base of all scopes; itself the widest one: every query sees every key of its own sequence.

    `plan(target, source)` is cross-attention, or attention to a memory that was joined with the segment itself.
    """

    def allowed(self, queries: Tensor, keys: Tensor, sequences: Tensor) -> Tensor | None:
        """May a query at position `queries` (count, m) see a key at `keys` (count, n)? (count, m, n), or None: yes."""
        return None

    def plan(self, queries: Layout, keys: Layout | None = None, rows: Tensor | None = None) -> AttentionPlan:
        keys = queries if keys is None else keys
        assert queries.sequences == keys.sequences, "a scope joins layouts of the same sequences"
        groups = [_group(self, indices, queries, keys) for indices in _equal_shapes(queries, keys)]
        return AttentionPlan(tuple(groups), queries, keys, rows)


Full = Scope  # every token sees every other: encoders, and cross-attention


@dataclass(frozen=True)
class Causal(Scope):
    """A token sees itself and what came before: decoders, language models."""

    def allowed(self, queries: Tensor, keys: Tensor, sequences: Tensor) -> Tensor | None:
        return keys.unsqueeze(1) <= queries.unsqueeze(2)


def _equal_shapes(queries: Layout, keys: Layout) -> list[list[int]]:
    """Indices of sequences, grouped by (query length, key length) while all the padding costs less than a call."""
    shapes = list(zip(queries.lengths, keys.lengths, strict=True))
    groups: list[list[int]] = [[]]
    group_shape, padding = (0, 0), 0
    for index in sorted(range(len(shapes)), key=shapes.__getitem__):
        shape = shapes[index]
        joined = (max(group_shape[0], shape[0]), max(group_shape[1], shape[1]))
        area = joined[0] * joined[1]
        added = len(groups[-1]) * (area - group_shape[0] * group_shape[1]) + area - shape[0] * shape[1]
        one_is_empty = 0 in shape or 0 in group_shape  # an empty sequence has no row that could serve as padding
        if shape == group_shape or (not one_is_empty and padding + added <= CALL_COST):
            groups[-1].append(index)
            group_shape, padding = joined, padding + added
        else:
            groups.append([index])
            group_shape, padding = shape, 0
    return sorted(sorted(indices) for indices in groups if indices)


def _group(scope: Scope, indices: list[int], queries: Layout, keys: Layout) -> Group:
    query_rows, key_rows = _packed_index(queries, indices), _packed_index(keys, indices)
    if isinstance(scope, Causal) and queries is keys and query_rows.kept is None:
        return Group(tuple(indices), query_rows, key_rows, causal=True)
    if type(scope).allowed is Scope.allowed and key_rows.kept is None:  # no mask, and no padding
        return Group(tuple(indices), query_rows, key_rows)
    sequences = torch.tensor(indices, device=queries.device)
    query_positions, _ = _positions(queries, indices, query_rows)
    key_positions, key_padding = _positions(keys, indices, key_rows)
    mask, fully_masked = scope.allowed(query_positions, key_positions, sequences), None
    if mask is not None:
        if key_padding is not None:
            mask = mask & ~key_padding.unsqueeze(1)
        fully_masked = ~mask.any(-1)
        # A row without any key would be 0/0: let it see everything, and clear its output afterwards.
        mask = (mask | fully_masked.unsqueeze(-1)).unsqueeze(1)
        fully_masked = fully_masked[:, None, :, None]
    elif key_padding is not None:
        mask = ~key_padding[:, None, None, :]
    return Group(tuple(indices), query_rows, key_rows, mask, fully_masked)


def _packed_index(layout: Layout, indices: list[int]) -> PackedIndex:
    lengths = [layout.lengths[index] for index in indices]
    longest, count = max(lengths), len(lengths)
    equal = min(lengths) == longest
    if equal and indices[-1] - indices[0] == count - 1:
        return PackedIndex(count, longest, start=layout.starts[indices[0]])
    starts = torch.tensor([layout.starts[index] for index in indices], device=layout.device)
    columns = torch.arange(longest, device=layout.device)
    if equal:
        return PackedIndex(count, longest, index=(starts.unsqueeze(1) + columns).flatten())
    last = torch.tensor(lengths, device=layout.device).unsqueeze(1) - 1
    rows = (starts.unsqueeze(1) + torch.minimum(columns, last)).flatten()
    kept = [row * longest + column for row, length in enumerate(lengths) for column in range(length)]
    return PackedIndex(count, longest, index=rows, kept=torch.tensor(kept, device=layout.device))


def _positions(layout: Layout, indices: list[int], rows: PackedIndex) -> tuple[Tensor, Tensor | None]:
    columns, padding = torch.arange(rows.length, device=layout.device).expand(rows.count, -1), None
    if rows.kept is not None:
        padding = columns >= torch.tensor([layout.lengths[index] for index in indices], device=layout.device)[:, None]
    if layout.first_positions is not None:
        first = torch.tensor([layout.first_positions[index] for index in indices], device=layout.device)
        columns = columns + first.unsqueeze(1)
    return columns, padding
