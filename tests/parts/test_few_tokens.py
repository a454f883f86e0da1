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

from kinfolk.parts.blocks import Block, SharedStack, Stack
from kinfolk.parts.few_tokens import MOST, library
from kinfolk.parts.positions import BucketedBias
from kinfolk.parts.scopes import Causal, Full, Scope, Window
from kinfolk.parts.tokens import Layout
from kinfolk.parts.trace import Trace

pytestmark = pytest.mark.skipif(library() is None, reason="few_tokens.c was not compiled for this processor")


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
    stack = Stack([Block(config) for _ in range(layers)]).eval()
    for weight in stack.parameters():  # norms and biases too
        nn.init.normal_(weight, std=0.2)
    return stack


def rows_of(tokens: int, width: int = 32, seed: int = 0) -> Tensor:
    return torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def by_blocks(stack: Stack, hidden: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """The definition, in float64."""
    wide, bound, result = copy.deepcopy(stack).double(), Full().bind(Layout(lengths)), hidden.double()
    for layer in range(stack.layers):
        result = wide.block(layer)(result, bound)
    return result.float()


def applies(stack: Stack, hidden: Tensor, lengths: tuple[int, ...], scope: Scope | None = None) -> bool:
    with torch.inference_mode():
        layers = stack._resting()
        few = None if layers is None else layers.few
        return few is not None and few.fits(hidden, (scope or Full()).bind(Layout(lengths)))


@settings(deadline=None)
@given(
    heads=st.integers(1, 4),
    head_width=st.sampled_from([16, 32, 48, 64]),
    inner=st.integers(1, 60),
    layers=st.integers(1, 3),
    length=st.integers(1, MOST),
    count=st.integers(1, 5),
    threads=st.integers(1, 3),
    size=st.sampled_from([1e-3, 1.0, 5.0]),
)
def test_the_same_numbers_as_the_blocks(
    heads: int, head_width: int, inner: int, layers: int, length: int, count: int, threads: int, size: float
) -> None:
    count = min(count, MOST // length)
    width, lengths = heads * head_width, (length,) * count
    stack = stack_of(Settings(width=width, heads=heads, inner_width=16 * inner), layers, seed=length)
    hidden = rows_of(length * count, width) * size
    expected, before = by_blocks(stack, hidden, lengths), torch.get_num_threads()
    assert applies(stack, hidden, lengths)
    try:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            found = stack(hidden, Full().bind(Layout(lengths)))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=5e-5)


def test_on_the_older_kind_of_processor_too() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "same_numbers", __file__]
    ended = subprocess.run(command, env={**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout
    assert "skipped" not in ended.stdout


def test_a_trace_sees_it_all_and_changes_no_bit() -> None:
    stack, hidden, layout = stack_of(Settings(), 3), rows_of(18), Layout((9, 9))
    bound, trace, plain = Full().bind(layout), Trace(), Trace()
    with torch.inference_mode():
        trace.begin(layout)
        assert applies(stack, hidden, layout.lengths)
        assert stack(hidden, bound, trace=trace).equal(stack(hidden, bound))
        for depth in range(1, 4):
            assert stack(hidden, bound, depth=depth).equal(trace.packed[depth - 1])
        plain.begin(layout)
        for layer in range(3):
            hidden = stack.block(layer)(hidden, bound, None, plain)
    for found, expected in zip(trace.weights, plain.weights, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_shared_blocks_serve_their_layers() -> None:
    stack, hidden = SharedStack(list(stack_of(Settings()).blocks), 5).eval(), rows_of(7)
    assert applies(stack, hidden, (7,))
    with torch.inference_mode():
        found = stack(hidden, Full().bind(Layout((7,))))
    torch.testing.assert_close(found, by_blocks(stack, hidden, (7,)), rtol=1e-5, atol=2e-5)


def test_what_it_does_not_know_is_left_to_torch() -> None:
    stack, few = stack_of(Settings()), rows_of(8)
    assert applies(stack, few, (8,))
    assert not applies(stack, few, (3, 5))
    assert not applies(stack, few, (8,), Causal())
    assert not applies(stack, few, (8,), Window(2))
    assert not applies(stack, rows_of(MOST + 1), (MOST + 1,))
    assert not applies(stack, rows_of(32).t()[:8], (8,))  # its rows are not side by side
    assert not applies(stack_of(Settings(activation="relu")), few, (8,))
    assert not applies(stack_of(Settings(inner_width=40)), few, (8,))
    assert not applies(stack_of(Settings(heads=4)), few, (8,))
    assert not applies(stack_of(Settings(width=40, heads=5)), rows_of(8, 40), (8,))


def test_a_bias_on_the_scores_is_not_forgotten() -> None:
    stack, hidden, bound = stack_of(Settings()), rows_of(8), Full().bind(Layout((8,)))
    torch.manual_seed(0)
    table = BucketedBias(8, 2, 16)
    nn.init.normal_(table.table.weight, std=3)
    with torch.inference_mode():
        terms, expected = table(bound), hidden
        for layer in range(2):
            expected = stack.block(layer)(expected, bound, terms)
        torch.testing.assert_close(stack(hidden, bound, terms), expected, rtol=0, atol=1e-5)
        assert not torch.allclose(stack(hidden, bound), expected, atol=1e-2)


def test_a_weight_that_moved_or_changed_is_read_anew() -> None:
    stack, hidden = stack_of(Settings()), rows_of(6)
    bound = Full().bind(Layout((6,)))
    with torch.inference_mode():
        stack(hidden, bound)
    for change in (
        lambda weight: weight.data.mul_(-1),
        lambda weight: setattr(weight, "data", weight.data * 0.5),
        lambda weight: setattr(weight, "data", weight.data.t().contiguous().t()),  # the same numbers in another order
    ):
        change(stack.blocks[0].feed_forward.narrow.weight)  # type: ignore[no-untyped-call]
        with torch.inference_mode():
            found = stack(hidden, bound)
        torch.testing.assert_close(found, by_blocks(stack, hidden, (6,)), rtol=1e-5, atol=2e-5)


@pytest.mark.filterwarnings("ignore")  # tracing warns of much
def test_a_recording_does_not_take_it_for_a_constant() -> None:
    stack, bound = stack_of(Settings()), Full().bind(Layout((6,)))

    class Bounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = stack

        def forward(self, hidden: Tensor) -> Tensor:
            return self.stack(hidden, bound)  # type: ignore[no-any-return]

    with torch.no_grad():
        recorded = torch.jit.trace(Bounded().eval(), rows_of(6), check_trace=False)
        torch.testing.assert_close(recorded(rows_of(6, seed=1)), stack(rows_of(6, seed=1), bound), rtol=0, atol=1e-5)


def test_what_is_no_number_stays_none() -> None:
    stack, hidden = stack_of(Settings()), rows_of(5)
    hidden[3, 7] = float("nan")
    with torch.inference_mode():
        assert stack(hidden, Full().bind(Layout((5,)))).isnan().all()


def test_several_threads_at_once() -> None:
    stack = stack_of(Settings(), 3)

    @torch.inference_mode()
    def compute(length: int) -> Tensor:
        return stack(rows_of(length, seed=length), Full().bind(Layout((length,)))).clone()

    lengths = [1 + number % 20 for number in range(60)]
    alone = {length: compute(length) for length in set(lengths)}
    with ThreadPoolExecutor(3) as pool:
        for length, found in zip(lengths, pool.map(compute, lengths), strict=True):
            assert found.equal(alone[length])
