"""Dropout keeps the mean, drops the share it is told, and drops the same paths backwards."""

from __future__ import annotations

import pytest
import torch

from kinfolk.nn.fast.linear import Dropout, dropout


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
def test_the_share_of_zeros_is_p_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(400, 1001), p)
    assert (dropped == 0).float().mean() == pytest.approx(p, abs=0.003)
    assert dropped.mean() == pytest.approx(1, abs=0.01 / (1 - p))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - p)])


def test_places_are_dropped_independently() -> None:
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(200_000), 0.3) == 0).double()
    for distance in (1, 2, 3, 4, 5):
        assert (dropped[distance:] * dropped[:-distance]).mean() == pytest.approx(0.09, abs=0.003)


def test_the_gradient_passes_where_the_value_did() -> None:
    torch.manual_seed(0)
    values = torch.randn(7, 33, dtype=torch.float64, requires_grad=True)
    dropped = dropout(values, 0.2)
    dropped.sum().backward()
    torch.testing.assert_close(values.grad * values.detach(), dropped.detach())


def test_the_seed_decides_and_evaluation_drops_nothing() -> None:
    layer, values = Dropout(0.5), torch.randn(50, 3)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(layer(values))
    assert draws[0].equal(draws[1])
    assert not draws[0].equal(draws[2])
    assert layer.eval()(values) is values
