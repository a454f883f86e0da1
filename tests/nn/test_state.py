"""Slots and sight: cached steps equal attention over the whole past, whatever beams do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kinfolk.nn.attention import Attention, CrossAttention
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import Causal, Full
from kinfolk.nn.state import CrossCache, KeyValueCache, compaction_order
from support.tiny import close, randomise

WIDTH, HEADS = 8, 2


def attention(kind: Any = Attention) -> Any:
    return randomise(kind(WIDTH, HEADS)).double().eval()


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cache_for(part: Attention, sentences: int, beams: int) -> KeyValueCache:
    like = part.output.weight
    return KeyValueCache.empty(1, sentences, beams, HEADS, WIDTH // HEADS, like)


@torch.no_grad()
def run(part: Attention, cache: KeyValueCache, hidden: Tensor) -> tuple[Tensor, KeyValueCache]:
    cache = cache.advance()
    return part.step(hidden, cache, 0), cache


@torch.no_grad()
def whole(part: Attention, past: Tensor) -> Tensor:
    """Causal attention of rows (rows, steps, width), without a cache: what the last step gives."""
    layout = Layout((past.shape[1],) * len(past))
    return layout.last(part(past.flatten(0, 1), Causal().plan(layout)))


@pytest.mark.parametrize("beams", [1, 3])
def test_steps_through_slots_equal_attention_over_the_whole_past(beams: int) -> None:
    part, past = attention(), vectors(2 * beams, 70)
    cache = cache_for(part, 2, beams)
    for step in range(70):  # the room doubles twice
        result, cache = run(part, cache, past[:, step])
        close(result, whole(part, past[:, : step + 1]))
    assert cache.steps == 70


def test_rows_go_on_from_what_other_rows_of_their_sentence_were() -> None:
    part, beams = attention(), 3
    cache, past = cache_for(part, 2, beams), torch.zeros(6, 0, WIDTH, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    for step in range(7):
        new = vectors(6, seed=step)
        past = torch.cat([past, new.unsqueeze(1)], 1)
        result, cache = run(part, cache, new)
        close(result, whole(part, past))
        parents = torch.randint(beams, (6,), generator=generator) + torch.tensor([0, 0, 0, 3, 3, 3])
        cache, past = cache.reorder(parents), past[parents]


def test_reordering_moves_no_slot() -> None:
    part = attention()
    _, cache = run(part, cache_for(part, 2, 2), vectors(4))
    assert cache.reorder(torch.tensor([1, 1, 2, 2])).slots is cache.slots
    _, alone = run(part, cache_for(part, 2, 1), vectors(2))
    assert alone.reorder(torch.tensor([0, 1])) is alone


@pytest.mark.parametrize("order", [[3, 1], [1, 3], [0, 3], [2, 1, 0], [0, 1, 3], [0]])
@pytest.mark.parametrize("beams", [1, 2])
def test_the_sentences_that_stay_are_as_they_were(beams: int, order: list[int]) -> None:
    part, past = attention(), vectors(4 * beams, 6)
    cache = cache_for(part, 4, beams)
    for step in range(3):
        _, cache = run(part, cache, past[:, step])
    kept = torch.tensor(order)
    cache, past = cache.keep(kept), past.view(4, beams, 6, WIDTH)[kept].flatten(0, 1)
    for step in range(3, 6):
        result, cache = run(part, cache, past[:, step])
        close(result, whole(part, past[:, : step + 1]))


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_whoever_stays_is_moved_only_into_a_gap(alive: list[bool]) -> None:
    numbers = torch.tensor(alive).nonzero().squeeze(1)
    order = compaction_order(numbers)
    assert sorted(order.tolist()) == numbers.tolist()
    assert all(number in (index, *range(len(order), len(alive))) for index, number in enumerate(order.tolist()))


@pytest.mark.parametrize("lengths", [(3, 1, 5), (4, 4, 4), (2, 0, 3), (0, 0, 0)])
def test_beams_look_at_ragged_sources_as_targets_do(lengths: tuple[int, ...]) -> None:
    part, beams, layout = attention(CrossAttention), 2, Layout(lengths)
    source, hidden = vectors(layout.tokens), vectors(3 * beams, seed=1)
    with torch.no_grad():
        keys = CrossCache.of([part.project(source)], layout)
        states = part.step(hidden, keys, 0)
        close(states, part(hidden, source, Full().plan(Layout((beams,) * 3), layout)))
        kept = keys.keep(torch.tensor([2, 0]))
        close(part.step(hidden[[4, 5, 0, 1]], kept, 0), states[[4, 5, 0, 1]])
    assert kept.slots.shape[4] == max(lengths[0], lengths[2], 1)
