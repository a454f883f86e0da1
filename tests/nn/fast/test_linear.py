"""Packed weights: the same product, and never that of a weight which is no longer there."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kinfolk.nn.fast.linear import Linear, packing_pays

SIZE = st.integers(1, 70)
needs_packing = pytest.mark.skipif(not packing_pays(), reason="this processor does not pack weights")


def inferred(layer: Linear, hidden: Tensor) -> Tensor:
    with torch.inference_mode():
        return layer(hidden).clone()


def plain(layer: Linear, hidden: Tensor) -> Tensor:
    return F.linear(hidden, layer.weight, layer.bias).detach()


@settings(deadline=None, derandomize=True, max_examples=50)
@given(rows=st.integers(0, 70), inputs=SIZE, outputs=SIZE, bias=st.booleans())
def test_a_packed_product_is_the_plain_one(rows: int, inputs: int, outputs: int, bias: bool) -> None:
    torch.manual_seed(rows)
    layer, hidden = Linear(inputs, outputs, bias).eval(), torch.randn(rows, inputs)
    torch.testing.assert_close(inferred(layer, hidden), plain(layer, hidden), rtol=0, atol=2e-5)


@needs_packing
def test_a_layer_that_rests_is_packed_once_and_one_that_learns_is_not() -> None:
    layer, hidden = Linear(8, 6).eval(), torch.randn(3, 8)
    inferred(layer, hidden)
    cached = layer.packed_weight.cached
    assert cached is not None
    inferred(layer, hidden)
    assert layer.packed_weight.cached is cached
    assert layer.train().packed_weight.cached is None
    inferred(layer, hidden)
    assert layer.packed_weight.cached is None


@pytest.mark.parametrize("way", ["optimizer", "load", "in place", "replaced", "rounded"])
def test_a_weight_that_changed_is_packed_anew(way: str) -> None:
    torch.manual_seed(0)
    layer, hidden = Linear(8, 6).eval(), torch.randn(3, 8)
    before = inferred(layer, hidden)
    if way == "optimizer":
        layer(hidden).square().sum().backward()
        torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True).step()
    elif way == "load":
        layer.load_state_dict(Linear(8, 6).state_dict())
    elif way == "in place":
        with torch.no_grad():
            layer.weight.mul_(2)
    elif way == "replaced":
        layer.weight = torch.nn.Parameter(torch.randn(6, 8))
    else:
        layer.bfloat16().float()
    after = inferred(layer, hidden)
    assert not after.equal(before)
    torch.testing.assert_close(after, plain(layer, hidden), rtol=0, atol=2e-5)


def test_copies_and_pickles_have_a_packing_of_their_own() -> None:
    layer, hidden = Linear(8, 6).eval(), torch.randn(3, 8)
    before = inferred(layer, hidden)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.packed_weight is not layer.packed_weight
        with torch.no_grad():
            twin.weight.zero_()
        assert not inferred(twin, hidden).equal(before)
    assert inferred(layer, hidden).equal(before)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_threads_that_share_a_layer_get_the_same_product() -> None:
    torch.manual_seed(0)
    layer, hidden = Linear(64, 64).eval(), torch.randn(50, 64)
    with ThreadPoolExecutor(4) as pool:
        result = list(pool.map(lambda _: inferred(layer, hidden), range(40)))
    for other in result:
        torch.testing.assert_close(other, plain(layer, hidden), rtol=0, atol=2e-5)


@pytest.mark.filterwarnings("ignore")  # tracing warns of much
def test_a_recording_has_only_what_every_torch_knows() -> None:
    layer, first, second = Linear(16, 8).eval(), torch.randn(3, 16), torch.randn(3, 16)
    with torch.no_grad():
        recorded = torch.jit.trace(layer, first)
        assert "mkldnn" not in str(recorded.graph)
        torch.testing.assert_close(recorded(second), layer(second), rtol=0, atol=1e-5)
