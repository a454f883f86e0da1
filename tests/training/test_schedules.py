"""The learning rate over a run."""

from __future__ import annotations

import pytest

from kinfolk.training.settings import SCHEDULES, rate_factor


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (2, 1), (10, 0), (100, 10), (997, 100)])
def test_every_rate_is_positive_and_at_most_the_peak(schedule: str, total: int, warmup: int) -> None:
    factors = [rate_factor(schedule, step, total, warmup) for step in range(total)]
    assert all(0 <= factor <= 1 + 1e-12 for factor in factors)
    assert max(factors) > 0


def test_linear_by_hand() -> None:
    assert [rate_factor("linear", step, 6, 2) for step in range(6)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]


def test_slanted_triangular_rises_for_a_tenth_and_ends_at_a_thirty_second() -> None:
    factors = [rate_factor("slanted_triangular", step, 100, 0) for step in range(100)]
    assert factors.index(max(factors)) == 9
    assert factors[-1] == pytest.approx(1 / 32)


def test_the_transformer_schedule_falls_with_the_root_of_the_step() -> None:
    late, later = (rate_factor("inverse_sqrt", step, 10**6, 100) for step in (399, 1599))
    assert late / later == pytest.approx(2, rel=0.01)


def test_one_cycle_peaks_at_thirty_per_cent_and_ends_near_zero() -> None:
    factors = [rate_factor("one_cycle", step, 100, 0) for step in range(100)]
    assert factors.index(max(factors)) == 29
    assert factors[-1] < 0.01
