"""Probes of a frozen encoder, and the learned mixture of its layers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from kinfolk.errors import ConfigError
from kinfolk.nn.packed import Layout
from kinfolk.nn.probe import ProbeConfig, ProbeHead, ScalarMix

LAYOUT = Layout((2, 3))
LAYERS = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CONFIG = ProbeConfig((0, 2, 3), "sum", width=4, labels=2)


def make(config: ProbeConfig) -> ProbeHead:
    torch.manual_seed(0)
    return ProbeHead(config).double().eval()


@pytest.mark.parametrize(
    ("join", "expected"),
    [("sum", LAYERS.sum(0)), ("concat", torch.cat([*LAYERS], dim=1)), ("mix", LAYERS.mean(0))],
)
def test_layers_are_summed_laid_side_by_side_or_mixed(join: str, expected: torch.Tensor) -> None:
    readout = make(replace(CONFIG, join=join, scale=2.0))
    torch.testing.assert_close(readout.joined(LAYERS), expected)
    torch.testing.assert_close(readout(LAYERS, LAYOUT), readout.output(2 * expected))


@pytest.mark.parametrize("pool", ["first", "mean", "max"])
def test_pooling_gives_scores_for_texts(pool: str) -> None:
    readout = make(replace(CONFIG, pool=pool))
    assert readout(LAYERS, LAYOUT).shape == (2, 2)
    torch.testing.assert_close(readout.vectors(LAYERS, LAYOUT), getattr(LAYOUT, pool)(LAYERS.sum(0)))


@pytest.mark.parametrize("recurrent", [0, 2])
def test_a_sequence_has_the_same_scores_alone_and_in_company(recurrent: int) -> None:
    readout = make(replace(CONFIG, join="mix", recurrent=recurrent, hidden=3))
    together = LAYOUT.split(readout(LAYERS, LAYOUT))
    for index, (start, length) in enumerate([(0, 2), (2, 3)]):
        alone = readout(LAYERS[:, start : start + length], Layout((length,)))
        torch.testing.assert_close(alone, together[index], rtol=0, atol=1e-12)


def test_the_lstm_looks_both_ways() -> None:
    readout = make(replace(CONFIG, recurrent=2, hidden=3))
    changed = LAYERS.clone()
    changed[:, 3] += 1
    differs = (readout(changed, LAYOUT) - readout(LAYERS, LAYOUT)).abs().amax(1) > 1e-6
    assert differs.tolist() == [False, False, True, True, True]


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": ()},
        {"layers": (1, -1)},
        {"layers": (True,)},
        {"layers": [1]},
        {"layers": (5_000,)},
        {"layers": (1,) * 2_000},
        {"join": "product"},
        {"pool": "last"},
        {"width": 0},
        {"labels": 2**40},
        {"recurrent": 17},
        {"hidden": 1.5},
        {"scale": float("inf")},
        {"scale": True},
        {"dropout": 1},
        {"crf": 1},
        {"crf": True, "pool": "mean"},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(CONFIG, **changes)


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
