"""Muon: orthogonal steps for matrices, AdamW for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kinfolk
from kinfolk.errors import InputError
from kinfolk.training.optimizer import Muon, build_optimizer, orthogonal
from kinfolk.training.settings import OptimizerSettings, TrainSettings

RATE = 0.01


def muon(weights: list[nn.Parameter], pieces: int = 1, decay: float = 0.0) -> Muon:
    group = {"params": weights, "orthogonal": True, "pieces": pieces, "weight_decay": decay}
    return Muon([group], lr=RATE, fused=True)


def steps(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter], gradients: list[torch.Tensor]) -> None:
    for gradient in gradients:
        parts = gradient.chunk(len(weights))
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.clone()
        optimizer.step()


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 20), (1, 24, 6)])
def test_singular_values_become_nearly_one(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=generator)))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_a_step_is_that_of_torchs_muon() -> None:
    """Which multiplies in bf16: they agree as far as that goes."""
    theirs_of: Any = getattr(torch.optim, "Muon", None)
    if theirs_of is None:
        pytest.skip("this torch has no Muon")
    generator = torch.Generator().manual_seed(0)
    start, gradients = torch.randn(12, 30, generator=generator), list(torch.randn(4, 12, 30, generator=generator))
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    steps(muon([ours], decay=0.1), [ours], gradients)
    other = theirs_of([theirs], lr=RATE, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    steps(other, [theirs], [gradient * 20 for gradient in gradients])  # its average has (1 - beta) of a gradient
    change, expected = ours.detach() - start, theirs.detach() - start
    assert float((change - expected).norm() / expected.norm()) < 0.05


def test_projections_in_one_matrix_are_several_matrices() -> None:
    generator = torch.Generator().manual_seed(1)
    start, gradients = torch.randn(18, 6, generator=generator), list(torch.randn(3, 18, 6, generator=generator))
    joined = [nn.Parameter(start.clone())]
    apart = [nn.Parameter(part.clone()) for part in start.chunk(3)]
    steps(muon(joined, pieces=3), joined, gradients)
    steps(muon(apart), apart, gradients)
    torch.testing.assert_close(joined[0], torch.cat([part.detach() for part in apart]), rtol=0, atol=1e-6)


def test_tables_biases_norms_and_heads_learn_by_adamw(tiny_bert: Path) -> None:
    model = kinfolk.load(tiny_bert, device="cpu").model
    optimizer = build_optimizer(model, OptimizerSettings(optimizer="muon"))
    of_muon = {id(weight): group["pieces"] for group in optimizer.param_groups if group["orthogonal"]
               for weight in group["params"]}  # fmt: skip
    pieces = {name.split("blocks.0.")[1]: of_muon[id(weight)] for name, weight in model.named_parameters()
              if id(weight) in of_muon and "blocks.0." in name}  # fmt: skip
    parts = ("attention.output", "feed_forward.up", "feed_forward.down")
    assert pieces == {"attention.qkv.weight": 3} | {f"{part}.weight": 1 for part in parts}
    assert len(of_muon) == 4 * model.config.layers


def test_whole_matrices_are_needed() -> None:
    with pytest.raises(InputError, match=r"fsdp .*optimizer=muon"):
        TrainSettings(fsdp=True).but(optimizer="muon")
