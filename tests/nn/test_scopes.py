"""Scopes: who may see whom, and how a batch is sorted into groups that a kernel takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan, Causal, Full, Scope
from support.scopes import Prefix, Window

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=12)
few = settings(max_examples=25, deadline=None, derandomize=True)
Rule = Callable[[int, int, int], bool]  # query, key, sequence -> may it see

PREFIX = (2, 0, 5, 1) * 3
RULES: dict[str, tuple[Scope, Rule]] = {
    "full": (Full(), lambda query, key, sequence: True),
    "causal": (Causal(), lambda query, key, sequence: key <= query),
    "prefix": (Prefix(PREFIX), lambda query, key, sequence: key <= query or key < PREFIX[sequence]),
    "window": (Window(2), lambda query, key, sequence: abs(key - query) <= 2),
}


@pytest.mark.parametrize("name", RULES)
def test_allowed_agrees_with_a_slow_double_loop(name: str) -> None:
    scope, rule = RULES[name]
    queries, keys = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]]), torch.tensor([[0, 1, 2], [4, 6, 8]])
    actual = scope.allowed(queries, keys, torch.tensor([2, 3]))
    expected = [
        [[rule(int(query), int(key), number) for key in keys[row]] for query in queries[row]]
        for row, number in enumerate((2, 3))
    ]
    assert actual is None if name == "full" else actual is not None and actual.tolist() == expected


def sights(plan: AttentionPlan) -> torch.Tensor:
    """(query rows, key rows) of the packed matrices: how many times each query is shown each key, holes included."""
    counts = torch.zeros(plan.queries.tokens, plan.keys.tokens, dtype=torch.long)
    rows = torch.arange(plan.queries.tokens).view(-1, 1, 1), torch.arange(plan.keys.tokens).view(-1, 1, 1)
    for group in plan.groups:
        queries, keys = group.queries.take(rows[0])[:, 0, :, 0], group.keys.take(rows[1])[:, 0, :, 0]
        shape = (len(group.sequences), 1, queries.shape[1], keys.shape[1])
        mask = torch.ones(shape, dtype=torch.bool) if group.mask is None else group.mask.expand(shape)
        mask = mask.tril() if group.causal else mask
        mask = mask if group.fully_masked is None else mask & ~group.fully_masked
        for row, number in enumerate(group.sequences):
            real = plan.queries.lengths[number]
            pairs = (queries[row, :real].unsqueeze(1), keys[row].unsqueeze(0))
            counts.index_put_(pairs, mask[row, 0, :real].long(), accumulate=True)
    return counts


@pytest.mark.parametrize("name", RULES)
@few
@given(lengths=LENGTHS.filter(lambda lengths: sum(lengths) < 120))
def test_a_bound_scope_shows_each_key_once_to_exactly_those_that_the_rule_allows(name: str, lengths: list[int]) -> None:
    scope, rule = RULES[name]
    layout = Layout(tuple(lengths))
    expected = torch.zeros(layout.tokens, layout.tokens, dtype=torch.long)
    for index, (start, length) in enumerate(zip(layout.starts, lengths, strict=True)):
        for query in range(length):
            for key in range(length):
                expected[start + query, start + key] = rule(query, key, index)
    assert sights(scope.plan(layout)).equal(expected)


@few
@given(LENGTHS)
def test_groups_cover_each_sequence_and_each_row_once(lengths: list[int]) -> None:
    layout = Layout(tuple(lengths))
    plan = Full().plan(layout)
    assert sorted(number for group in plan.groups for number in group.sequences) == list(range(len(lengths)))
    rows = torch.arange(layout.tokens).view(-1, 1, 1)
    restored = torch.cat([group.queries.unpad(group.queries.take(rows)) for group in plan.groups])
    assert (restored if plan.order is None else restored[plan.order]).equal(rows)


def test_equal_lengths_share_one_group_and_no_copy() -> None:
    plan = Full().plan(Layout((4, 4, 4)))
    (group,) = plan.groups
    assert plan.order is None
    assert group.queries.start == 0
    assert group.mask is None


def test_short_neighbours_are_padded_together_and_long_ones_are_not() -> None:
    short, long = Full().plan(Layout((5, 7, 6))), Full().plan(Layout((300, 310)))
    assert [group.sequences for group in short.groups] == [(0, 1, 2)]
    assert short.groups[0].mask is not None
    assert [group.sequences for group in long.groups] == [(0,), (1,)]


def test_a_memory_shifts_the_positions_that_a_causal_scope_compares() -> None:
    memory_and_text, text = Layout((5,)), Layout((2,), first_positions=(3,))
    (group,) = Causal().plan(text, memory_and_text).groups
    assert group.mask is not None
    assert group.mask[0, 0].tolist() == [[True, True, True, True, False], [True] * 5]


def test_layouts_of_different_batches_are_not_joined() -> None:
    with pytest.raises(AssertionError, match="same sequences"):
        Full().plan(Layout((1, 2)), Layout((3,)))
