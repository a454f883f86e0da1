"""A trace is detached, unless it is asked to keep gradients: then losses on layers and attention reach the weights."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from kinfolk.nn.blocks import Stack, build_block
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import Causal, Full, Scope
from kinfolk.nn.trace import PairTrace, Trace

LAYOUT = Layout((3, 1, 6))


@dataclass(frozen=True)
class Settings:
    width: int = 8
    heads: int = 2
    inner_width: int = 12
    activation: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    norm_epsilon: float = 1e-5


def traced(trace: Trace, scope: Scope) -> Stack:
    torch.manual_seed(0)
    stack = Stack([build_block(Settings()) for _ in range(2)]).double()
    trace.begin(LAYOUT)
    stack(torch.randn(LAYOUT.tokens, 8, dtype=torch.float64), scope.plan(LAYOUT), trace=trace)
    return stack


@pytest.mark.parametrize("scope", [Full(), Causal()], ids=str)
def test_losses_on_layers_and_attention_reach_the_weights_below(scope: Scope) -> None:
    trace = Trace(gradients=True)
    stack = traced(trace, scope)
    first = stack.blocks[0].attention.qkv.weight
    for loss in (trace.packed[0].square().sum(), sum(part.square().sum() for part in trace.weights[0])):
        (gradient,) = torch.autograd.grad(loss, first, retain_graph=True)
        assert gradient.abs().sum() > 0
    (second,) = torch.autograd.grad(trace.weights[1][2].square().sum(), first, retain_graph=True)
    assert second.abs().sum() > 0
    assert torch.autograd.grad(trace.packed[0].sum(), stack.blocks[1].attention.qkv.weight, allow_unused=True) == (
        None,
    )


def test_a_gradient_of_recorded_weights_is_that_of_a_difference() -> None:
    trace = Trace(gradients=True)
    weight = traced(trace, Full()).blocks[0].attention.qkv.weight
    (gradient,) = torch.autograd.grad(trace.weights[0][0][0, 0, 1], weight)

    def value(change: float) -> float:
        torch.manual_seed(0)
        stack, other = Stack([build_block(Settings()) for _ in range(2)]).double(), Trace()
        with torch.no_grad():
            stack.blocks[0].attention.qkv.weight[3, 5] += change
        other.begin(LAYOUT)
        stack(torch.randn(LAYOUT.tokens, 8, dtype=torch.float64), Full().plan(LAYOUT), trace=other)
        return float(other.weights[0][0][0, 0, 1])

    assert (value(1e-5) - value(-1e-5)) / 2e-5 == pytest.approx(float(gradient[3, 5]), abs=1e-8)


def test_otherwise_nothing_of_a_graph_is_kept() -> None:
    trace = Trace()
    traced(trace, Full())
    assert not any(tensor.requires_grad for tensor in [*trace.packed, *trace.weights[0], *trace.scores[0]])
    assert PairTrace(gradients=True).across.gradients
