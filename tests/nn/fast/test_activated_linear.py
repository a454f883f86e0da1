"""A linear layer with its activation: the fused way gives what the plain way gives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.nn.activations import ACTIVATIONS
from kinfolk.nn.fast.linear import FUSED, ActivatedLinear

PLAIN = {
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: x.clamp(min=0),
    "tanh": lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


def layer_and_input(activation: str, dtype: torch.dtype = torch.float32) -> tuple[ActivatedLinear, Tensor]:
    torch.manual_seed(0)
    return ActivatedLinear(24, 40, activation).to(dtype), (3 * torch.randn(50, 24)).to(dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_follows_its_formula(activation: str) -> None:
    layer, hidden = layer_and_input(activation, torch.float64)
    expected = PLAIN[activation](hidden @ layer.weight.T + layer.bias)
    torch.testing.assert_close(layer(hidden), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_inference_equals_the_way_that_learns(activation: str) -> None:
    layer, hidden = layer_and_input(activation)
    learning = layer(hidden)
    assert learning.requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(layer(hidden), learning.detach(), rtol=0, atol=2e-6)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("activation", FUSED)
def test_the_fused_product_equals_the_plain_one(activation: str) -> None:
    layer, hidden = layer_and_input(activation)
    name, algorithm = FUSED[activation]
    with torch.no_grad():
        fused = torch.ops.mkldnn._linear_pointwise(hidden, layer.weight, layer.bias, name, [], algorithm)
        plain = ACTIVATIONS[activation](F.linear(hidden, layer.weight, layer.bias))
    torch.testing.assert_close(fused, plain, rtol=0, atol=2e-6)


@pytest.mark.parametrize("activation", FUSED)
def test_gradients_flow_to_the_input_of_a_frozen_layer(activation: str) -> None:
    layer, hidden = layer_and_input(activation)
    layer.requires_grad_(False)
    hidden.requires_grad_(True)
    layer(hidden).sum().backward()
    assert hidden.grad is not None
    assert hidden.grad.count_nonzero() > 0


def test_a_layer_without_rows_gives_no_rows() -> None:
    for activation in ACTIVATIONS:
        layer, hidden = layer_and_input(activation)
        with torch.inference_mode():
            assert layer(hidden[:0]).shape == (0, 40)
