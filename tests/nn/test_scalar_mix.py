"""ScalarMix: a learned mixture of layers."""

from __future__ import annotations

import math

import torch

from kinfolk.nn.heads import ScalarMix


def test_two_layers_worked_by_hand() -> None:
    mix = ScalarMix(2).double()
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, math.log(3.0)]))
        mix.gamma.fill_(2.0)
    layers = torch.tensor([[[4.0, 0.0], [8.0, 4.0]], [[0.0, 4.0], [8.0, -4.0]]], dtype=torch.float64)
    # softmax gives 1/4 and 3/4
    torch.testing.assert_close(mix(layers), torch.tensor([[2.0, 6.0], [16.0, -4.0]], dtype=torch.float64))


def test_at_the_start_it_is_the_mean_of_the_layers() -> None:
    layers = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ScalarMix(5)(layers), layers.mean(0))


def test_it_learns_which_layer_tells_the_truth() -> None:
    generator = torch.Generator().manual_seed(0)
    layers = torch.randn(4, 50, 3, generator=generator)
    truth = 1.5 * layers[2]
    mix = ScalarMix(4)
    optimizer = torch.optim.Adam(mix.parameters(), lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        (mix(layers) - truth).square().mean().backward()
        optimizer.step()
    assert mix.shares.argmax() == 2
    assert mix.shares.max() > 0.95
    assert abs(float(mix.gamma.detach()) - 1.5) < 0.1
