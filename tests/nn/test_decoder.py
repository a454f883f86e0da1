"""Norms before and after, dropout inside, and what a pair's trace sees."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from kinfolk.models.transformer import TransformerConfig
from kinfolk.nn.blocks import FeedForward, build_block
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import Causal, Full
from kinfolk.nn.trace import PairTrace
from support.tiny import SOURCES, TARGETS, close, our_transformer, pairs, randomise
from support.tiny import TRANSFORMER_SIZES as SIZES

CONFIG = TransformerConfig.make(**SIZES)
TARGET, SOURCE = Layout((3, 1, 6)), Layout((2, 5, 4))


def rows(layout: Layout, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(layout.tokens, CONFIG.width, dtype=torch.float64, generator=generator)


def added(norm: str, hidden: Tensor, middle: nn.Module, change: Tensor) -> Tensor:
    return hidden + change if norm == "pre" else middle(hidden + change)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_norm_stands_before_each_part_or_after_it(norm: str) -> None:
    block, hidden, source = (
        randomise(build_block(CONFIG, norm, cross=True)).double().eval(),
        rows(TARGET),
        rows(SOURCE, 1),
    )
    plan, across = Causal().plan(TARGET), Full().plan(TARGET, SOURCE)
    actual = block(hidden, plan, source=(source, across, None))

    def read(middle: nn.Module, vectors: Tensor) -> Tensor:
        return middle(vectors) if norm == "pre" else vectors

    change = block.attention(read(block.attention_norm, hidden), plan)
    hidden = added(norm, hidden, block.attention_norm, change)
    hidden = added(norm, hidden, block.cross_norm, block.cross(read(block.cross_norm, hidden), source, across))
    change = block.feed_forward(read(block.feed_forward_norm, hidden))
    close(actual, added(norm, hidden, block.feed_forward_norm, change))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_without_gradients_blocks_compute_the_same_in_place(norm: str) -> None:
    block, hidden = randomise(build_block(CONFIG, norm)).double().eval(), rows(TARGET)
    before, plan = hidden.clone(), Full().plan(TARGET)
    expected = block(hidden, plan).detach()
    with torch.no_grad():
        close(block(hidden, plan), expected)
    assert hidden.equal(before)


def test_the_inner_vectors_are_dropped_in_training_only() -> None:
    part, hidden = randomise(FeedForward(16, 24, "relu", dropout=0.5)).double(), rows(TARGET)
    assert not part.train()(hidden).equal(part(hidden))
    assert part.eval()(hidden).equal(part(hidden))
    assert build_block(CONFIG, inner_dropout=0.25).feed_forward.dropout == 0.25


def test_a_pair_s_trace_has_the_weights_of_every_layer_and_head_and_changes_nothing() -> None:
    model, (source, target), trace = our_transformer(), pairs(), PairTrace()
    with torch.no_grad():
        assert model(source, target, trace).equal(model(source, target))
    assert (len(trace.source.hidden), len(trace.target.hidden)) == (3, 4)
    assert (len(trace.source.weights), len(trace.target.weights), len(trace.across.weights)) == (2, 3, 3)
    for layer in trace.across.weights:
        assert [tuple(weights.shape) for weights in layer] == [(4, m, n) for m, n in zip(TARGETS, SOURCES, strict=True)]
        assert all(weights.sum(-1).allclose(weights.new_ones(())) for weights in layer)
    for weights in trace.target.weights[0]:
        assert weights.triu(1).count_nonzero() == 0
