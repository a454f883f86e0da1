"""Products in bfloat16 are the rounded ones, and nothing else changes its type."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import train

import kinfolk
from kinfolk.errors import InputError
from kinfolk.files import read_object
from kinfolk.nn.fast.linear import check_precision, linear, products_in
from kinfolk.nn.heads import chunked_cross_entropy

CPU = torch.device("cpu")
needs_bf16 = pytest.mark.skipif(
    not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()),
    reason="the processor has no bfloat16 products",
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def test_a_product_is_of_rounded_numbers_added_up_exactly() -> None:
    hidden, weight, bias = random(9, 64), random(5, 64, seed=1), random(5, seed=2)
    with products_in("bf16"):
        actual = linear(hidden, weight, bias)
    rounded = [tensor.bfloat16().double() for tensor in (hidden, weight, bias)]
    expected = rounded[0] @ rounded[1].T + rounded[2]
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=2**-7, atol=1e-5)
    assert not torch.equal(actual, linear(hidden, weight, bias))


def test_gradients_come_in_the_type_of_the_weights_and_point_the_same_way() -> None:
    targets = torch.arange(9) % 5
    products = {}
    for precision in ("fp32", "bf16"):
        leaves = random(9, 64), random(5, 64, seed=1), random(5, seed=2)
        with products_in(precision):
            loss = chunked_cross_entropy(linear(leaves[0], random(64, 64, seed=3), None), *leaves[1:], targets)
        loss.backward()
        products[precision] = [leaf.grad for leaf in leaves]
    for wide, narrow in zip(products["fp32"], products["bf16"], strict=True):
        assert narrow.dtype == torch.float32
        assert torch.cosine_similarity(wide.flatten(), narrow.flatten(), dim=0) > 0.999


@needs_bf16
def test_a_model_learns_as_well_and_is_evaluated_and_saved_in_float32(tiny_bert: Path, tmp_path: Path) -> None:
    trained = train(tiny_bert, tmp_path / "run", count=400, epochs=6.0, precision="bf16")
    assert read_object(tmp_path / "run" / "run.json")["settings"]["precision"] == "bf16"
    assert trained.metrics["accuracy"] > 0.9
    model = kinfolk.load(tmp_path / "run", device="cpu").model
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_a_machine_without_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    check_precision("fp32", CPU)
    with pytest.raises(InputError, match="instructions"):
        check_precision("bf16", CPU)
