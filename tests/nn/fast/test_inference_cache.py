"""A stack at rest computes what its blocks do, and notices every change."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kinfolk.nn.attention import Attention
from kinfolk.nn.blocks import Block, FeedForward, SharedStack, Stack, build_block
from kinfolk.nn.embeddings import BucketedBias
from kinfolk.nn.fast.linear import Linear, Norm, packing_pays
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import Full

needs_packing = pytest.mark.skipif(not packing_pays(), reason="this processor does not pack weights")


@dataclass(frozen=True)
class Settings:
    width: int = 12
    heads: int = 3
    inner_width: int = 20
    activation: str = "gelu"
    dropout: float = 0.5
    attention_dropout: float = 0.5
    norm_epsilon: float = 1e-12


def stack_of(blocks: int, activation: str = "gelu") -> Stack:
    torch.manual_seed(0)
    return Stack([build_block(Settings(activation=activation)) for _ in range(blocks)]).eval()


def rows(tokens: int) -> Tensor:
    return torch.randn(tokens, 12, generator=torch.Generator().manual_seed(tokens))


@torch.inference_mode()
def at_rest(stack: Stack, tokens: int = 5) -> Tensor:
    return stack(rows(tokens), Full().plan(Layout((tokens,)))).clone()


@torch.no_grad()
def by_blocks(stack: Stack, tokens: int = 5) -> Tensor:
    hidden, plan = rows(tokens), Full().plan(Layout((tokens,)))
    for layer in range(stack.layers):
        hidden = stack.block(layer)(hidden, plan)
    return hidden


@pytest.mark.parametrize("lengths", [(7,), (4, 4), (1, 9, 30), (5, 6, 5), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("activation", ["gelu", "relu", "silu"])
def test_the_same_numbers_as_the_blocks(lengths: tuple[int, ...], activation: str) -> None:
    stack, layout = stack_of(3, activation), Layout(lengths)
    plan, hidden = Full().plan(layout), rows(layout.tokens)
    bias = BucketedBias(8, 3, 16)(plan)
    with torch.inference_mode():
        for terms in (None, bias):
            expected = hidden
            for layer in range(3):
                torch.testing.assert_close(stack(hidden, plan, terms, depth=layer), expected, rtol=0, atol=1e-6)
                expected = stack.block(layer)(expected, plan, terms)
            torch.testing.assert_close(stack(hidden, plan, terms), expected, rtol=0, atol=1e-6)


def test_shared_blocks_serve_their_layers() -> None:
    stack = SharedStack(list(stack_of(2).blocks), 5).eval()
    torch.testing.assert_close(at_rest(stack), by_blocks(stack), rtol=0, atol=1e-6)


def step(stack: Stack) -> None:
    stack(rows(5), Full().plan(Layout((5,)))).square().sum().backward()
    torch.optim.AdamW(stack.parameters(), lr=0.1, fused=True).step()


def scale_bias(stack: Stack) -> None:
    with torch.no_grad():
        stack.blocks[1].attention_norm.bias.add_(1)  # type: ignore[union-attr, operator]


def replace_weight(stack: Stack) -> None:
    stack.blocks[0].attention.qkv.weight = nn.Parameter(torch.randn(36, 12))  # type: ignore[union-attr]


def replace_data(stack: Stack) -> None:
    stack.blocks[1].feed_forward.down.bias.data = torch.randn(12)  # type: ignore[union-attr]


def replace_layer(stack: Stack) -> None:
    stack.blocks[1].attention.output = Linear(12, 12).eval()  # type: ignore[union-attr]


class Doubled:
    """Twice what a part gives."""

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        return 2 * super().forward(*inputs, **named)  # type: ignore[misc, no-any-return]


def stranger(kind: type[nn.Module], *sizes: Any) -> nn.Module:
    return type("Stranger", (Doubled, kind), {})(*sizes).eval()  # type: ignore[no-any-return]


def put_a_strangers_linear(stack: Stack) -> None:
    stack.blocks[1].attention.output = stranger(Linear, 12, 12)  # type: ignore[union-attr]


def put_a_strangers_attention(stack: Stack) -> None:
    stack.blocks[1].attention = stranger(Attention, 12, 3)


def put_a_strangers_feed_forward(stack: Stack) -> None:
    stack.blocks[1].feed_forward = stranger(FeedForward, 12, 20, "gelu")


def put_a_strangers_norm(stack: Stack) -> None:
    stack.blocks[1].attention_norm = stranger(Norm, 12)


def put_no_norm(stack: Stack) -> None:
    stack.blocks[1].feed_forward_norm = nn.Identity().eval()


def set_heads(stack: Stack) -> None:
    stack.blocks[0].attention.heads = 4  # type: ignore[union-attr, assignment]


def set_epsilon(stack: Stack) -> None:
    stack.blocks[0].attention_norm.eps = 0.5  # type: ignore[union-attr, assignment]


def norm_first(stack: Stack) -> None:
    stack.blocks[0].pre_norm = True  # type: ignore[assignment]


def patch_forward(stack: Stack) -> None:
    part = stack.blocks[0].attention.output  # type: ignore[union-attr]
    part.forward = lambda hidden: 2 * hidden  # type: ignore[union-attr, assignment, method-assign]


def load_in_inference_mode(stack: Stack) -> None:
    with torch.inference_mode():
        stack.blocks[0].attention_norm.bias = nn.Parameter(torch.ones(12), requires_grad=False)  # type: ignore[union-attr]


def hook(stack: Stack) -> None:
    stack.blocks[0].feed_forward.register_forward_hook(lambda module, inputs, output: output + 1)  # type: ignore[union-attr]


CHANGES: list[Callable[[Stack], None]] = [
    step,
    scale_bias,
    replace_weight,
    replace_data,
    replace_layer,
    put_a_strangers_linear,
    put_a_strangers_attention,
    put_a_strangers_feed_forward,
    put_a_strangers_norm,
    put_no_norm,
    set_heads,
    set_epsilon,
    norm_first,
    patch_forward,
    load_in_inference_mode,
    hook,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_noticed(change: Callable[[Stack], None]) -> None:
    stack = stack_of(2)
    before = at_rest(stack)
    change(stack)
    after = at_rest(stack)
    assert not after.equal(before)
    torch.testing.assert_close(after, by_blocks(stack), rtol=0, atol=1e-6)


def test_a_hook_on_all_modules_is_called() -> None:
    stack, seen = stack_of(2), set()
    at_rest(stack)
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.add(type(module)))
    try:
        at_rest(stack)
    finally:
        handle.remove()
    assert {Block, Attention, FeedForward, Norm} <= seen


def test_one_thread_may_learn_while_another_infers() -> None:
    stack, expected = stack_of(2), at_rest(stack_of(2))

    def learn(_: int) -> None:
        stack(rows(5), Full().plan(Layout((5,)))).sum().backward()

    with ThreadPoolExecutor(3) as pool:
        learning = [pool.submit(learn, index) for index in range(100)]
        actual = list(pool.map(lambda _: at_rest(stack), range(200)))
        for done in learning:
            done.result()
    for vectors in actual:
        torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-6)


def test_one_part_that_learns_has_its_dropout() -> None:
    stack = stack_of(2)
    before = at_rest(stack)
    stack.blocks[1].dropout.train()  # type: ignore[union-attr]
    assert at_rest(stack).equal(before), "dropout is the block's to ask for"
    stack.blocks[1].train()
    assert not at_rest(stack).equal(at_rest(stack))


@needs_packing
def test_what_is_remembered_is_looked_up_once_and_given_back() -> None:
    stack = stack_of(2)
    at_rest(stack)
    cached = stack.inference_cache.cached
    assert cached is not None
    at_rest(stack)
    assert stack.inference_cache.cached is cached
    for twin in (copy.deepcopy(stack), pickle.loads(pickle.dumps(stack))):
        assert twin.inference_cache.cached is None
        assert at_rest(twin).equal(at_rest(stack))
    by_gradients = stack(rows(5), Full().plan(Layout((5,))))
    assert by_gradients.requires_grad
    assert stack.inference_cache.cached is None
