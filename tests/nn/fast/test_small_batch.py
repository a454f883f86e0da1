"""Few tokens in one call of C: the numbers of the blocks, for every shape, and only where it applies."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import kinfolk
from kinfolk.errors import InputError
from kinfolk.nn.blocks import SharedStack, Stack, build_block
from kinfolk.nn.embeddings import BucketedBias
from kinfolk.nn.fast.inference_cache import MAX_TOKENS, SmallBatch, library
from kinfolk.nn.fast.linear import Linear
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan, Causal, Full, Scope
from kinfolk.nn.trace import Trace
from support.scopes import Window

pytestmark = pytest.mark.skipif(library() is None, reason="small_batch.c was not compiled for this processor")


@dataclass(frozen=True)
class Settings:
    width: int = 32
    heads: int = 2
    inner_width: int = 48
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_epsilon: float = 1e-12


def stack_of(config: Settings, layers: int = 2, seed: int = 0) -> Stack:
    torch.manual_seed(seed)
    stack = Stack([build_block(config) for _ in range(layers)]).eval()
    for weight in stack.parameters():  # norms and biases too
        nn.init.normal_(weight, std=0.2)
    return stack


def rows_of(tokens: int, width: int = 32, seed: int = 0) -> Tensor:
    return torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def by_blocks(stack: Stack, hidden: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """The definition, in float64."""
    wide, plan, result = copy.deepcopy(stack).double(), Full().plan(Layout(lengths)), hidden.double()
    for layer in range(stack.layers):
        result = wide.block(layer)(result, plan)
    return result.float()


def applies(stack: Stack, hidden: Tensor, lengths: tuple[int, ...], scope: Scope | None = None) -> bool:
    with torch.inference_mode():
        cached = stack.cached()
        few = None if cached is None else cached.small_batch
        return few is not None and few.fits(hidden, (scope or Full()).plan(Layout(lengths)))


@settings(deadline=None, max_examples=40)
@given(
    heads=st.integers(1, 4),
    head_width=st.sampled_from([16, 32, 48, 64]),
    inner=st.integers(1, 60),
    layers=st.integers(1, 3),
    length=st.integers(1, MAX_TOKENS),
    count=st.integers(1, 5),
    threads=st.integers(1, 3),
    size=st.sampled_from([1e-3, 1.0, 5.0]),
    epsilon=st.sampled_from([1e-12, 0.1]),
)
def test_the_same_numbers_as_the_blocks(
    heads: int,
    head_width: int,
    inner: int,
    layers: int,
    length: int,
    count: int,
    threads: int,
    size: float,
    epsilon: float,
) -> None:
    count = min(count, MAX_TOKENS // length)
    width, lengths = heads * head_width, (length,) * count
    config = Settings(width=width, heads=heads, inner_width=16 * inner, norm_epsilon=epsilon)
    stack = stack_of(config, layers, seed=length)
    hidden = rows_of(length * count, width) * size
    expected, before = by_blocks(stack, hidden, lengths), torch.get_num_threads()
    assert applies(stack, hidden, lengths)
    try:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            actual = stack(hidden, Full().plan(Layout(lengths)))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=5e-5)


def test_on_the_older_kind_of_processor_too() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "same_numbers", __file__]
    ended = subprocess.run(command, env={**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    assert "skipped" not in ended.stdout


def test_a_trace_sees_it_all_and_changes_no_bit() -> None:
    stack, hidden, layout = stack_of(Settings(), 3), rows_of(18), Layout((9, 9))
    plan, trace, plain = Full().plan(layout), Trace(), Trace()
    with torch.inference_mode():
        trace.begin(layout)
        assert applies(stack, hidden, layout.lengths)
        assert stack(hidden, plan, trace=trace).equal(stack(hidden, plan))
        for depth in range(1, 4):
            assert stack(hidden, plan, depth=depth).equal(trace.packed[depth - 1])
        plain.begin(layout)
        for layer in range(3):
            hidden = stack.block(layer)(hidden, plan, None, plain)
    for actual, expected in zip(trace.weights, plain.weights, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_shared_blocks_serve_their_layers() -> None:
    stack, hidden = SharedStack(list(stack_of(Settings()).blocks), 5).eval(), rows_of(7)
    assert applies(stack, hidden, (7,))
    with torch.inference_mode():
        actual = stack(hidden, Full().plan(Layout((7,))))
    torch.testing.assert_close(actual, by_blocks(stack, hidden, (7,)), rtol=1e-5, atol=5e-5)


def test_what_it_does_not_know_is_left_to_torch() -> None:
    stack, few = stack_of(Settings()), rows_of(8)
    assert applies(stack, few, (8,))
    assert not applies(stack, few, (3, 5))
    assert not applies(stack, few, (8,), Causal())
    assert not applies(stack, few, (8,), Window(2))
    assert not applies(stack, rows_of(MAX_TOKENS + 1), (MAX_TOKENS + 1,))
    assert not applies(stack, rows_of(32).t()[:8], (8,))  # its rows are not side by side
    assert not applies(stack_of(Settings(activation="relu")), few, (8,))
    assert not applies(stack_of(Settings(inner_width=40)), few, (8,))
    assert not applies(stack_of(Settings(heads=4)), few, (8,))
    assert not applies(stack_of(Settings(width=40, heads=5)), rows_of(8, 40), (8,))


def test_a_bias_on_the_scores_is_not_forgotten() -> None:
    stack, hidden, plan = stack_of(Settings()), rows_of(8), Full().plan(Layout((8,)))
    torch.manual_seed(0)
    table = BucketedBias(8, 2, 16)
    nn.init.normal_(table.table.weight, std=3)
    with torch.inference_mode():
        terms, expected = table(plan), hidden
        for layer in range(2):
            expected = stack.block(layer)(expected, plan, terms)
        torch.testing.assert_close(stack(hidden, plan, terms), expected, rtol=0, atol=1e-5)
        assert not torch.allclose(stack(hidden, plan), expected, atol=1e-2)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tokens of each call, as it is made."""
    made: list[int] = []
    run = SmallBatch.run

    def noted(few: SmallBatch, hidden: Tensor, plan: AttentionPlan, first: int, last: int) -> Tensor:
        made.append(len(hidden))
        return run(few, hidden, plan, first, last)

    monkeypatch.setattr(SmallBatch, "run", noted)
    return made


def test_short_texts_take_this_way_and_no_others(calls: list[int]) -> None:
    model = kinfolk.load("demo", device="cpu")
    model.embed("a short text")
    assert len(calls) == 1
    model.embed("a short text", layers="sum_last_4")
    assert len(calls) == 1 + 6  # layer by layer
    model.embed(["a short text", "another one that is longer"])
    model.embed("a long text " * 30)
    assert len(calls) == 7


def test_a_weight_that_moved_or_changed_is_read_anew(calls: list[int]) -> None:
    stack, hidden = stack_of(Settings()), rows_of(6)
    plan, weight = Full().plan(Layout((6,))), stack.blocks[0].feed_forward.down.weight
    with torch.inference_mode():
        stack(hidden, plan)
    for index, change in enumerate(
        (
            lambda: torch.no_grad()(weight.mul_)(-1),
            lambda: setattr(weight, "data", weight.data * 0.5),
            lambda: setattr(weight, "data", weight.data.t().contiguous().t()),  # the same numbers in another order
        )
    ):
        change()
        with torch.inference_mode():
            actual = stack(hidden, plan)
        torch.testing.assert_close(actual, by_blocks(stack, hidden, (6,)), rtol=1e-5, atol=5e-5)
        assert len(calls) == min(index + 2, 3)  # the last is left to torch


def test_blocks_of_other_shapes_are_left_to_torch() -> None:
    mixed = Stack([*stack_of(Settings(inner_width=64)).blocks, *stack_of(Settings(inner_width=16)).blocks]).eval()
    pruned = stack_of(Settings())
    for block in pruned.blocks:
        block.attention.heads = 1
        block.attention.qkv = Linear(32, 48)
        block.attention.output = Linear(16, 32)
    for stack in (mixed, pruned.eval()):
        assert not applies(stack, rows_of(8), (8,))
        with torch.inference_mode():
            actual = stack(rows_of(8), Full().plan(Layout((8,))))
        torch.testing.assert_close(actual, by_blocks(stack, rows_of(8), (8,)), rtol=1e-5, atol=5e-5)
    assert not applies(stack_of(Settings()), rows_of(8, 16), (8,))


def test_layers_that_are_added_later_count_and_a_depth_has_an_end() -> None:
    stack, plan, hidden = stack_of(Settings()), Full().plan(Layout((6,))), rows_of(6)
    with torch.inference_mode():
        stack(hidden, plan)
        stack.blocks.append(stack_of(Settings(), 1, seed=5).blocks[0])
        stack.layers = 3
        actual = stack(hidden, plan)
    torch.testing.assert_close(actual, by_blocks(stack, hidden, (6,)), rtol=1e-5, atol=5e-5)
    for depth in (4, -1):
        with pytest.raises(InputError, match=f"depth={depth}: "), torch.inference_mode():
            stack(hidden, plan, depth=depth)


@pytest.mark.filterwarnings("ignore")  # torch has no fast way for vmap here
def test_tensors_without_memory_of_their_own_are_left_to_torch() -> None:
    stack, plan = stack_of(Settings()), Full().plan(Layout((6,)))
    rows = torch.stack([rows_of(6), rows_of(6, seed=1)])
    with torch.no_grad():
        stack(rows[0], plan)
        several = torch.vmap(lambda hidden: stack(hidden, plan))(rows)
        torch.testing.assert_close(several[1], stack(rows[1], plan), rtol=0, atol=1e-5)
        recorded = make_fx(lambda hidden: stack(hidden, plan))(rows[0])
        torch.testing.assert_close(recorded(rows[1]), stack(rows[1], plan), rtol=0, atol=1e-5)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert stack(mode.from_tensor(rows[0]), plan).shape == (6, 32)


def test_what_is_no_number_stays_none() -> None:
    stack, hidden = stack_of(Settings()), rows_of(5)
    hidden[3, 7] = float("nan")
    with torch.inference_mode():
        assert stack(hidden, Full().plan(Layout((5,)))).isnan().all()


def test_several_threads_at_once() -> None:
    stack = stack_of(Settings(), 3)

    @torch.inference_mode()
    def compute(length: int) -> Tensor:
        return stack(rows_of(length, seed=length), Full().plan(Layout((length,)))).clone()

    lengths = [1 + index % 20 for index in range(60)]
    alone = {length: compute(length) for length in set(lengths)}
    with ThreadPoolExecutor(3) as pool:
        for length, result in zip(lengths, pool.map(compute, lengths), strict=True):
            assert result.equal(alone[length])
