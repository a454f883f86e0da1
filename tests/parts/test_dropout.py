"""Dropout keeps the mean, drops the share it is told, and drops the same places backwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kinfolk.parts.dropout import Dropout, dropout, dropped_mix


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
def test_the_share_of_zeros_is_p_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    found = dropout(torch.ones(400, 1001), p)
    assert (found == 0).float().mean() == pytest.approx(p, abs=0.003)
    assert found.mean() == pytest.approx(1, abs=0.01 / (1 - p))
    assert found.unique().tolist() == pytest.approx([0, 1 / (1 - p)])


def test_places_are_dropped_independently() -> None:
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(200_000), 0.3) == 0).double()
    for distance in (1, 2, 3, 4, 5):
        assert (dropped[distance:] * dropped[:-distance]).mean() == pytest.approx(0.09, abs=0.003)


def test_the_gradient_passes_where_the_value_did() -> None:
    torch.manual_seed(0)
    values = torch.randn(7, 33, dtype=torch.float64, requires_grad=True)
    found = dropout(values, 0.2)
    found.sum().backward()
    torch.testing.assert_close(values.grad * values.detach(), found.detach())


def test_the_seed_decides_and_evaluation_drops_nothing() -> None:
    layer, values = Dropout(0.5), torch.randn(50, 3)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(layer(values))
    assert draws[0].equal(draws[1])
    assert not draws[0].equal(draws[2])
    assert layer.eval()(values) is values


def kept_bytes(work: Callable[[], Tensor]) -> int:
    """What is held for the gradient."""
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        work()
    return sum(sizes.values())


def test_a_dropped_mix_has_the_values_and_gradients_of_its_parts_and_keeps_less() -> None:
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, 40, 50, dtype=torch.float64, generator=draw)
    scores[:, :, :, 30:] = float("-inf")
    values = torch.randn(2, 3, 50, 4, dtype=torch.float64, generator=draw)
    given = [tensor.requires_grad_() for tensor in (scores, values)]
    ways = [lambda: dropped_mix(*given, 0.25), lambda: dropout(given[0].softmax(-1), 0.25) @ given[1]]
    found = []
    for way in ways:
        torch.manual_seed(3)
        mixed = way()
        weights = torch.linspace(-1, 1, mixed.numel(), dtype=torch.float64).view(mixed.shape)
        found.append((mixed, *torch.autograd.grad((mixed * weights).sum(), given)))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)
    less, more = (kept_bytes(way) for way in ways)
    assert less < 0.45 * more
