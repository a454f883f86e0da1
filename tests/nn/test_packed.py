"""Layout: where each sequence of a packed batch lies."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk.nn.attention import Attention
from kinfolk.nn.fast.kernels import attend
from kinfolk.nn.packed import Layout, Tokens, join, pack
from kinfolk.nn.scopes import Causal

few = settings(max_examples=50, deadline=None, derandomize=True)
LENGTHS = st.lists(st.integers(0, 6), max_size=6)
FILLED = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def numbered(layout: Layout, width: int = 2) -> torch.Tensor:
    """A packed matrix whose every number is another one, signs mixed."""
    numbers = torch.arange(layout.tokens * width, dtype=torch.float64).view(layout.tokens, width)
    return (numbers * 7 % 11 - 5) + numbers / 1000


def test_five_tokens_worked_by_hand() -> None:
    layout = Layout((3, 0, 2))
    packed = torch.tensor([[1.0, 9.0], [2.0, 8.0], [6.0, -1.0], [4.0, 4.0], [0.0, 6.0]])
    assert (layout.tokens, layout.sequences, layout.starts) == (5, 3, (0, 3, 3))
    assert layout.owners.tolist() == [0, 0, 0, 2, 2]
    assert layout.positions.tolist() == [0, 1, 2, 0, 1]
    assert layout.mean(packed).tolist() == [[3.0, pytest.approx(16 / 3)], [0.0, 0.0], [2.0, 5.0]]
    assert layout.max(packed).tolist() == [[6.0, 9.0], [0.0, 0.0], [4.0, 6.0]]
    assert layout.pad(packed[:, 0], fill=-7).tolist() == [[1, 2, 6], [-7, -7, -7], [4, 0, -7]]
    assert [part[:, 0].tolist() for part in layout.split(packed)] == [[1, 2, 6], [], [4, 0]]


def test_pack_joins_ids_and_segments() -> None:
    tokens = pack([[7, 8, 9], [5], [6, 4]], [[0, 0, 1], [0], [1, 1]])
    assert tokens.ids.tolist() == [7, 8, 9, 5, 6, 4]
    assert tokens.segments is not None
    assert tokens.segments.tolist() == [0, 0, 1, 0, 1, 1]
    assert tokens.layout == Layout((3, 1, 2))


def test_positions_count_on_from_what_came_before() -> None:
    layout = Layout((2, 3), first_positions=(10, 0))
    assert layout.positions.tolist() == [10, 11, 0, 1, 2]
    packed = torch.arange(5.0)
    assert layout.pad(packed).tolist() == [[0, 1, 0], [2, 3, 4]]
    assert layout.unpad(layout.pad(packed)).equal(packed)


@few
@given(LENGTHS)
def test_unpad_undoes_pad(lengths: list[int]) -> None:
    layout = Layout(tuple(lengths))
    packed = numbered(layout)
    padded = layout.pad(packed, fill=99.0)
    assert padded.shape == (len(lengths), max(lengths, default=0), 2)
    assert layout.unpad(padded).equal(packed)
    assert int((padded == 99.0).sum()) == 2 * (padded.shape[0] * padded.shape[1] - layout.tokens)


@few
@given(LENGTHS)
def test_mean_and_max_agree_with_a_loop(lengths: list[int]) -> None:
    layout = Layout(tuple(lengths))
    packed = numbered(layout)
    zero = torch.zeros(2, dtype=packed.dtype)
    parts = layout.split(packed)
    means = [part.mean(0) if len(part) else zero for part in parts]
    most = [part.max(0).values if len(part) else zero for part in parts]
    torch.testing.assert_close(list(layout.mean(packed)), means, rtol=0, atol=1e-12)
    assert [row.tolist() for row in layout.max(packed)] == [row.tolist() for row in most]


@few
@given(FILLED)
def test_first_and_last_are_the_ends_of_each_sequence(lengths: list[int]) -> None:
    layout = Layout(tuple(lengths))
    packed = numbered(layout)
    assert layout.first(packed).equal(torch.stack([part[0] for part in layout.split(packed)]))
    assert layout.last(packed).equal(torch.stack([part[-1] for part in layout.split(packed)]))


def test_an_empty_batch_is_a_batch() -> None:
    layout = pack([]).layout
    nothing = torch.zeros(0, 4)
    assert layout.tokens == layout.sequences == 0
    assert layout.pad(nothing).shape == (0, 0, 4)
    assert layout.mean(nothing).shape == layout.max(nothing).shape == (0, 4)
    assert layout.first(nothing).shape == (0, 4)


def test_a_memory_joined_to_a_segment_is_what_causal_attention_looks_at() -> None:
    torch.manual_seed(0)
    part = Attention(8, 2).double()
    memory, segment = Layout((2, 0, 3)), Layout((3, 4, 1), first_positions=(2, 0, 3))
    rows = torch.randn(memory.tokens + segment.tokens, 8, dtype=torch.float64)
    joined, order = join(memory, segment)
    whole = rows[order]
    expected = joined.split(part(whole, Causal().plan(joined)))
    _, keys, values = part.project(whole).unbind(1)
    queries = part.project(rows[memory.tokens :])[:, 0]
    mixed = attend((queries, keys, values), Causal().plan(segment, joined))
    parts = segment.split(part.output(mixed.flatten(1)))
    for vectors, wanted in zip(parts, expected, strict=True):
        torch.testing.assert_close(vectors, wanted[len(wanted) - len(vectors) :], rtol=0, atol=1e-12)


def test_ids_may_have_a_dimension_of_characters() -> None:
    layout = Layout((2, 3))
    tokens = Tokens(torch.arange(20).view(5, 4), layout)
    assert [part.shape for part in layout.split(tokens.ids)] == [(2, 4), (3, 4)]
    assert layout.unpad(layout.pad(tokens.ids)).equal(tokens.ids)
    assert layout.first(tokens.ids).tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
