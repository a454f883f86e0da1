"""Scope: who may see whom. Bound: a scope that has met the lengths of one batch.

Attention needs rectangles, a packed batch has none. `plan` therefore sorts the sequences of a batch into groups
of equal shape, which scaled_dot_product_attention takes as they are. Short groups of nearly equal shape are joined
and padded, where the padding costs less than one more call of the kernel. Each layer reuses the same groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kinfolk.nn.packed import Layout

# One more call of the attention kernel costs about as much as the holes of this many (query, key) pairs, mask included.
CALL_COST = 300


@dataclass(frozen=True)
class Rows:
    """Which packed rows one side of a group reads: `count` sequences of up to `length` tokens.

    `start` is set when the rows simply follow each other in the packed matrix; otherwise `index` lists them, with
    holes pointing at a row of the same sequence, and `kept` lists the places that are not holes. (`index_select` has a
    gradient three times as fast as that of `packed[index]`.)
    """

    count: int
    length: int
    start: int | None = None
    index: Tensor | None = None
    kept: Tensor | None = None

    def rows(self, packed: Tensor) -> Tensor:
        """(tokens, …) -> (count, length, …)."""
        if self.start is not None:
            taken = self.count * self.length
            rows = packed if taken == packed.shape[0] else packed.narrow(0, self.start, taken)
        else:
            assert self.index is not None
            rows = packed.index_select(0, self.index)
        return rows.view(self.count, self.length, *packed.shape[1:])

    def take(self, packed: Tensor) -> Tensor:
        """(tokens, heads, head_width) -> (count, heads, length, head_width)."""
        return self.rows(packed).transpose(1, 2)

    def give(self, padded: Tensor) -> Tensor:
        """(count, heads, length, head_width) -> (real tokens, heads, head_width)."""
        rows = padded.transpose(1, 2).reshape(self.count * self.length, padded.shape[1], padded.shape[3])
        return rows if self.kept is None else rows.index_select(0, self.kept)

    def spread(self, packed: Tensor) -> Tensor:
        """As `take`, with zeros in the holes."""
        if self.kept is None:
            return self.take(packed)
        rows = packed.new_zeros(self.count * self.length, *packed.shape[1:])
        rows.index_copy_(0, self.kept, packed.index_select(0, self._places))
        return rows.view(self.count, self.length, *packed.shape[1:]).transpose(1, 2)

    def put(self, packed: Tensor, padded: Tensor) -> None:
        """Write what `take` would read: (count, heads, length, head_width) into (tokens, heads, head_width)."""
        if self.start is not None:
            self.rows(packed).copy_(padded.transpose(1, 2))
        else:
            packed.index_copy_(0, self._places, self.give(padded))

    @cached_property
    def _places(self) -> Tensor:
        """The packed row of each place that is no hole."""
        assert self.index is not None
        return self.index if self.kept is None else self.index.index_select(0, self.kept)


@dataclass(frozen=True)
class Group:
    """Sequences that attend in one call: their rows, and a mask (count or 1, 1, queries, keys), True = may see."""

    sequences: tuple[int, ...]
    queries: Rows
    keys: Rows
    mask: Tensor | None = None
    fully_masked: Tensor | None = None  # queries that may see nothing: their output is zero
    causal: bool = False

    def allowed(self, device: torch.device) -> Tensor | None:
        """The mask, also where `causal` stands for one."""
        if not self.causal:
            return self.mask
        length = self.queries.length
        return torch.ones(length, length, dtype=torch.bool, device=device).tril()


@dataclass(frozen=True)
class AttentionPlan:
    """The groups of one batch under one scope."""

    groups: tuple[Group, ...]
    queries: Layout
    keys: Layout

    @cached_property
    def order(self) -> Tensor | None:
        """Where each packed row stands in the groups' outputs joined end to end; None when they are in order."""
        expected = 0
        for group in self.groups:
            if group.queries.start != expected:
                break
            expected += group.queries.count * group.queries.length
        else:
            return None
        starts, lengths = self.queries.starts, self.queries.lengths
        numbers = [number for group in self.groups for number in group.sequences]
        places = [row for number in numbers for row in range(starts[number], starts[number] + lengths[number])]
        return torch.tensor(places, device=self.queries.device).argsort()


@dataclass(frozen=True)
class Scope:
    """Base of all scopes; itself the widest one: every query sees every key of its own sequence.

    With two layouts, `plan(target, source)` is cross-attention: target tokens look at the source of the same number.
    """

    def allowed(self, queries: Tensor, keys: Tensor, sequences: Tensor) -> Tensor | None:
        """May a query at `queries` (count, m) see a key at `keys` (count, n)? (count, m, n), or None for yes."""
        return None

    def plan(self, queries: Layout, keys: Layout | None = None) -> AttentionPlan:
        """Meet the layouts of one batch; the result serves every layer."""
        keys = queries if keys is None else keys
        assert queries.sequences == keys.sequences, "a scope joins layouts of the same sequences"
        groups = [_group(self, numbers, queries, keys) for numbers in _equal_shapes(queries, keys)]
        return AttentionPlan(tuple(groups), queries, keys)


@dataclass(frozen=True)
class Full(Scope):
    """Everyone sees all_families: encoders, and cross-attention."""


@dataclass(frozen=True)
class Causal(Scope):
    """A token sees itself and what came before: decoders, language models."""

    def allowed(self, queries: Tensor, keys: Tensor, sequences: Tensor) -> Tensor | None:
        return keys.unsqueeze(1) <= queries.unsqueeze(2)


@dataclass(frozen=True)
class Prefix(Scope):
    """The first `prefix[i]` tokens of sequence i are seen by all; the rest is causal (UniLM, prefix LMs)."""

    prefix: tuple[int, ...] = ()

    def allowed(self, queries: Tensor, keys: Tensor, sequences: Tensor) -> Tensor | None:
        ends = torch.tensor(self.prefix, device=keys.device)[sequences].view(-1, 1, 1)
        return (keys.unsqueeze(1) < ends) | (keys.unsqueeze(1) <= queries.unsqueeze(2))


@dataclass(frozen=True)
class Window(Scope):
    """A token sees those at most `radius` places away."""

    radius: int = 0

    def allowed(self, queries: Tensor, keys: Tensor, sequences: Tensor) -> Tensor | None:
        return (keys.unsqueeze(1) - queries.unsqueeze(2)).abs() <= self.radius


def _equal_shapes(queries: Layout, keys: Layout) -> list[list[int]]:
    """Sequence numbers, grouped by equal or nearly equal (query length, key length).

    Joining a sequence to the group before it pays while all the holes it makes cost less than a call.
    """
    shapes = list(zip(queries.lengths, keys.lengths, strict=True))
    groups: list[list[int]] = []
    group_shape, holes = (0, 0), 0
    for number in sorted(range(len(shapes)), key=shapes.__getitem__):
        shape = shapes[number]
        joined = (max(group_shape[0], shape[0]), max(group_shape[1], shape[1]))
        added = 0
        if groups and shape != group_shape:
            area = joined[0] * joined[1]
            added = len(groups[-1]) * (area - group_shape[0] * group_shape[1]) + area - shape[0] * shape[1]
        one_is_empty = 0 in shape or 0 in group_shape  # an empty sequence has no row that could fill a hole
        if groups and (shape == group_shape or (not one_is_empty and holes + added <= CALL_COST)):
            groups[-1].append(number)
            group_shape, holes = joined, holes + added
        else:
            groups.append([number])
            group_shape, holes = shape, 0
    return sorted(sorted(numbers) for numbers in groups)


def _group(scope: Scope, numbers: list[int], queries: Layout, keys: Layout) -> Group:
    query_rows, key_rows = _rows(queries, numbers), _rows(keys, numbers)
    if isinstance(scope, Causal) and queries is keys and query_rows.kept is None:
        return Group(tuple(numbers), query_rows, key_rows, causal=True)
    if (
        type(scope).allowed is Scope.allowed and key_rows.kept is None
    ):  # all_families sees all_families, and there are no holes
        return Group(tuple(numbers), query_rows, key_rows)
    sequences = torch.tensor(numbers, device=queries.device)
    query_places, _ = _places(queries, numbers, query_rows)
    key_places, key_holes = _places(keys, numbers, key_rows)
    mask, fully_masked = scope.allowed(query_places, key_places, sequences), None
    if mask is not None:
        if key_holes is not None:
            mask = mask & ~key_holes.unsqueeze(1)
        fully_masked = ~mask.any(-1)
        # A row without any key would be 0/0: let it see everything, and clear its output afterwards.
        mask = (mask | fully_masked.unsqueeze(-1)).unsqueeze(1)
        fully_masked = fully_masked[:, None, :, None]
    elif key_holes is not None:
        mask = ~key_holes[:, None, None, :]
    return Group(tuple(numbers), query_rows, key_rows, mask, fully_masked)


def _rows(layout: Layout, numbers: list[int]) -> Rows:
    lengths = [layout.lengths[number] for number in numbers]
    longest, count = max(lengths), len(lengths)
    equal = min(lengths) == longest
    if equal and numbers[-1] - numbers[0] == count - 1:
        return Rows(count, longest, start=layout.starts[numbers[0]])
    starts = torch.tensor([layout.starts[number] for number in numbers], device=layout.device)
    columns = torch.arange(longest, device=layout.device)
    if equal:
        return Rows(count, longest, index=(starts.unsqueeze(1) + columns).flatten())
    last = torch.tensor(lengths, device=layout.device).unsqueeze(1) - 1
    index = (starts.unsqueeze(1) + torch.minimum(columns, last)).flatten()
    kept = [row * longest + place for row, length in enumerate(lengths) for place in range(length)]
    return Rows(count, longest, index=index, kept=torch.tensor(kept, device=layout.device))


def _places(layout: Layout, numbers: list[int], rows: Rows) -> tuple[Tensor, Tensor | None]:
    """Positions (count, length) of one side's tokens, and which of them are holes."""
    columns = torch.arange(rows.length, device=layout.device).expand(rows.count, -1)
    holes = None
    if rows.kept is not None:
        lengths = torch.tensor([layout.lengths[number] for number in numbers], device=layout.device)
        holes = columns >= lengths.unsqueeze(1)
    if layout.first_positions is not None:
        first = torch.tensor([layout.first_positions[number] for number in numbers], device=layout.device)
        columns = columns + first.unsqueeze(1)
    return columns, holes
