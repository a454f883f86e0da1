"""The loss in chunks equals torch's in one piece, and so do its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.nn import heads as vocabulary
from kinfolk.nn.heads import chunked_cross_entropy
from support.tiny import close


def inputs(bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    return random(11, 4), random(7, 4), random(7) if bias else None, torch.randint(7, (11,), generator=generator)


@pytest.mark.parametrize("rows", [1, 3, 11, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_chunks_change_neither_loss_nor_gradients(
    rows: int, smoothing: float, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "MAX_SCORES", rows * 7)
    *weights, targets = inputs(bias)
    actual = chunked_cross_entropy(*weights, targets, smoothing)
    expected = F.cross_entropy(F.linear(*weights), targets, reduction="sum", label_smoothing=smoothing)
    close(actual, expected)
    learning = [weight for weight in weights if weight is not None]
    for one, other in zip(
        torch.autograd.grad(actual * 0.3, learning), torch.autograd.grad(expected * 0.3, learning), strict=True
    ):
        close(one, other)
    with torch.no_grad():
        close(chunked_cross_entropy(*weights, targets, smoothing), expected)


def test_smoothing_is_the_mean_over_the_vocabulary() -> None:
    hidden, table, bias, targets = inputs()
    chances = (hidden @ table.T + bias).log_softmax(-1)
    expected = -0.8 * chances[torch.arange(11), targets] - 0.2 * chances.mean(-1)
    close(chunked_cross_entropy(hidden, table, bias, targets, 0.2), expected.sum())


def test_frozen_weights_get_no_gradient() -> None:
    hidden, table, bias, targets = inputs()
    chunked_cross_entropy(hidden, table.detach(), bias, targets).backward()
    assert hidden.grad is not None
    assert table.grad is None


def test_gradients_are_made_once() -> None:
    hidden, table, bias, targets = inputs()
    loss = chunked_cross_entropy(hidden, table, bias, targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()
