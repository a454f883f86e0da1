"""Blocks and stacks: residual paths, dropout, shared weights, and the trace that watches them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from kinfolk.models.albert import AlbertConfig
from kinfolk.models.bert import BertConfig
from kinfolk.nn.attention import Attention
from kinfolk.nn.blocks import SharedStack, Stack, build_block
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import Full
from kinfolk.nn.trace import Trace

SIZES = {"width": 8, "heads": 2, "inner_width": 12, "dropout": 0.3, "attention_dropout": 0.3}
LAYOUT = Layout((3, 1, 6))


def hidden_rows(width: int = 8) -> Tensor:
    return torch.randn(LAYOUT.tokens, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_a_block_is_two_normed_residual_steps() -> None:
    torch.manual_seed(0)
    block, hidden, plan = build_block(BertConfig.make(**SIZES)).double().eval(), hidden_rows(), Full().plan(LAYOUT)
    middle = block.attention_norm(hidden + block.attention(hidden, plan))
    inner = nn.functional.gelu(middle @ block.feed_forward.up.weight.T + block.feed_forward.up.bias)
    outer = inner @ block.feed_forward.down.weight.T + block.feed_forward.down.bias
    torch.testing.assert_close(block(hidden, plan), block.feed_forward_norm(middle + outer), rtol=0, atol=1e-12)


def test_attention_weights_are_dropped_in_training_only() -> None:
    torch.manual_seed(0)
    attention, hidden, plan = Attention(8, 2, dropout=0.5).double(), hidden_rows(), Full().plan(LAYOUT)
    attention.train()
    assert not attention(hidden, plan).equal(attention(hidden, plan))
    attention.eval()
    assert attention(hidden, plan).equal(attention(hidden, plan))


def test_a_block_drops_in_training_only() -> None:
    block, hidden, plan = build_block(BertConfig.make(**SIZES)).double(), hidden_rows(), Full().plan(LAYOUT)
    assert not block.train()(hidden, plan).equal(block(hidden, plan))
    assert block.eval()(hidden, plan).equal(block(hidden, plan))


def test_depth_stops_the_stack_early() -> None:
    stack, hidden, plan = (
        Stack([build_block(BertConfig.make(**SIZES)) for _ in range(3)]),
        hidden_rows(),
        Full().plan(LAYOUT),
    )
    stack = stack.double().eval()
    assert stack(hidden, plan, depth=0).equal(hidden)
    two = stack.blocks[1](stack.blocks[0](hidden, plan), plan)
    assert stack(hidden, plan, depth=2).equal(two)
    assert stack(hidden, plan).equal(stack.blocks[2](two, plan))


@pytest.mark.parametrize(("groups", "layers", "expected"), [(1, 4, [0, 0, 0, 0]), (2, 5, [0, 0, 0, 1, 1])])
def test_shared_blocks_serve_neighbouring_layers(groups: int, layers: int, expected: list[int]) -> None:
    blocks = [build_block(AlbertConfig.make(width=4, heads=1, inner_width=4, embedding_width=2)) for _ in range(groups)]
    stack = SharedStack(blocks, layers)
    assert [blocks.index(stack.block(layer)) for layer in range(layers)] == expected


def test_a_trace_sees_each_layer_and_changes_nothing() -> None:
    stack = Stack([build_block(BertConfig.make(**SIZES)) for _ in range(2)]).double().eval()
    hidden, plan, trace = hidden_rows(), Full().plan(LAYOUT), Trace()
    trace.begin(LAYOUT)
    assert stack(hidden, plan, trace=trace).equal(stack(hidden, plan))
    assert [len(rows) for rows in trace.hidden[1]] == [3, 1, 6]
    assert [weights.shape for weights in trace.weights[0]] == [(2, 3, 3), (2, 1, 1), (2, 6, 6)]
    for weights, scores in zip(trace.weights[1], trace.scores[1], strict=True):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2], dtype=torch.float64))
        torch.testing.assert_close(scores.softmax(-1), weights)


def test_a_trace_goes_on_from_batch_to_batch() -> None:
    stack, trace = Stack([build_block(BertConfig.make(**SIZES))]).double().eval(), Trace()
    for lengths in ((3, 1), (6,)):
        layout = Layout(lengths)
        trace.begin(layout)
        stack(hidden_rows()[: layout.tokens], Full().plan(layout), trace=trace)
    assert [len(rows) for rows in trace.hidden[0]] == [3, 1, 6]
    assert [weights.shape[-1] for weights in trace.weights[0]] == [3, 1, 6]


def test_a_final_norm_is_never_left_out() -> None:
    torch.manual_seed(0)
    final_norm = nn.LayerNorm(8)
    nn.init.normal_(final_norm.weight)
    stack = Stack([build_block(BertConfig.make(**SIZES))], final_norm).eval()
    hidden, plan = hidden_rows().float(), Full().plan(LAYOUT)
    with torch.no_grad():
        expected = final_norm(stack.blocks[0](hidden, plan))
        torch.testing.assert_close(stack(hidden, plan), expected, rtol=0, atol=1e-5)
