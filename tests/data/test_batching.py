"""Batches by token budget, and the plan of a run: a pure function of the step."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk.data.batching import BatchSampler, token_batches

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)
few = settings(deadline=None, derandomize=True, max_examples=60)


@few
@given(lengths=LENGTHS, budget=st.integers(1, 100))
def test_every_sequence_is_in_one_batch_and_no_batch_is_over_the_budget(lengths: list[int], budget: int) -> None:
    batches = list(token_batches(lengths, budget))
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[number] for number in batch) <= budget


@few
@given(lengths=LENGTHS, seed=st.integers(0, 5), size=st.integers(1, 9), tokens=st.none() | st.integers(1, 100))
def test_an_epoch_holds_everything_once_in_batches_that_fit(
    lengths: list[int], seed: int, size: int, tokens: int | None
) -> None:
    plan = BatchSampler(lengths, seed, size, tokens)
    steps = plan.steps(1)
    batches = [plan.batch(step) for step in range(steps)]
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= size
        assert tokens is None or len(batch) == 1 or sum(lengths[number] for number in batch) <= tokens
    assert [plan.locate(step)[0] for step in range(steps)] == [0] * steps


@few
@given(lengths=LENGTHS, seed=st.integers(0, 5), size=st.integers(1, 9))
def test_a_batch_depends_on_seed_and_step_alone(lengths: list[int], seed: int, size: int) -> None:
    forwards, backwards = (BatchSampler(lengths, seed, size, None) for _ in range(2))
    steps = range(2 * forwards.steps(1))
    assert [forwards.batch(step) for step in steps] == [backwards.batch(step) for step in reversed(steps)][::-1]


def test_epochs_differ_and_seeds_differ() -> None:
    lengths = [index % 40 + 1 for index in range(4000)]
    plan = BatchSampler(lengths, 0, 20)
    assert plan.batch(0) != plan.batch(plan.steps(1))
    assert plan.batch(0) != BatchSampler(lengths, 1, 20).batch(0)


def test_lengths_and_the_classes_that_go_with_them_are_mixed_in_every_batch() -> None:
    lengths = [5 if index % 2 else 40 for index in range(1350)]
    plan = BatchSampler(lengths, 0, 32)
    shares = [sum(lengths[n] == 5 for n in plan.batch(s)) / len(plan.batch(s)) for s in range(plan.steps(4))]
    assert 0.1 < min(shares) < max(shares) < 0.9


@few
@given(tokens=st.none() | st.integers(60, 400))
def test_within_a_stretch_neighbours_are_alike_in_length(tokens: int | None) -> None:
    lengths = [index % 40 + 1 for index in range(4000)]
    plan = BatchSampler(lengths, 0, 20, tokens, stretch=50)
    steps = plan.steps(1)
    spread = [max(lengths[n] for n in plan.batch(s)) - min(lengths[n] for n in plan.batch(s)) for s in range(steps)]
    assert sum(spread) / steps < 5  # of 39, were they shuffled
