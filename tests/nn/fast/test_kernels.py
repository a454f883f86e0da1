"""attend gives the plain definition's result, whichever kernel it chooses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kinfolk.nn.attention import record_attention
from kinfolk.nn.embeddings import BucketedBias
from kinfolk.nn.fast.kernels import attend
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import Causal, Full, Group, Scope
from kinfolk.nn.trace import Trace
from support.scopes import Prefix, Window

HEADS, WIDTH = 2, 4
BATCHES = {
    "near equal, padded": (5, 7, 6, 7),
    "equal": (4, 4, 4),
    "equal, apart": (40, 1, 40, 1),
    "ragged": (1, 7, 3, 12, 12, 30),
    "with an empty one": (3, 0, 5),
    "one token": (1,),
}
SCOPES: dict[str, Scope] = {
    "full": Full(),
    "causal": Causal(),
    "prefix": Prefix((0, 3, 9, 1, 2, 5)),
    "window": Window(2),
}


def definition(q: Tensor, k: Tensor, v: Tensor, scope: Scope, queries: Layout, keys: Layout) -> Tensor:
    """softmax(Q K' / sqrt(width)) V for one sequence and head at a time; zeros where nothing may be seen."""
    outputs = []
    firsts = zip(queries.first_positions or [0] * queries.sequences, keys.first_positions or [0] * 99, strict=False)
    parts = zip(queries.split(q), keys.split(k), keys.split(v), firsts, strict=True)
    for index, (one_q, one_k, one_v, (first_query, first_key)) in enumerate(parts):
        scores = torch.einsum("mhd,nhd->hmn", one_q, one_k) / one_q.shape[-1] ** 0.5
        positions = torch.arange(len(one_q)) + first_query, torch.arange(len(one_k)) + first_key
        allowed = scope.allowed(positions[0][None], positions[1][None], torch.tensor([index]))
        mask = torch.ones(scores.shape[1:], dtype=torch.bool) if allowed is None else allowed[0]
        exponentials = torch.exp(scores) * mask
        total = exponentials.sum(-1, keepdim=True)
        weights = exponentials / torch.where(total == 0, torch.ones_like(total), total)
        outputs.append(torch.einsum("hmn,nhd->mhd", weights, one_v))
    return torch.cat(outputs)


def random_rows(*lengths: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    shapes = [(length, HEADS, WIDTH) for length in lengths]
    return [torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True) for shape in shapes]


def gradients(work: Callable[..., Tensor], rows: list[Tensor]) -> tuple[Tensor, ...]:
    output = work(*rows)
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view(output.shape)
    return (output, *torch.autograd.grad((output * weights).sum(), rows))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("lengths", BATCHES)
def test_values_and_gradients_equal_the_plain_definition(lengths: str, scope: str) -> None:
    layout, rule = Layout(BATCHES[lengths]), SCOPES[scope]
    rows = random_rows(layout.tokens, layout.tokens, layout.tokens)
    actual = gradients(lambda q, k, v: attend((q, k, v), rule.plan(layout)), rows)
    expected = gradients(lambda q, k, v: definition(q, k, v, rule, layout, layout), rows)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


def test_targets_look_at_their_own_source_and_an_empty_source_gives_zeros() -> None:
    targets, sources = Layout((3, 2, 4, 4, 1)), Layout((5, 0, 2, 3, 40))
    rows = random_rows(targets.tokens, sources.tokens, sources.tokens)
    actual = gradients(lambda q, k, v: attend((q, k, v), Full().plan(targets, sources)), rows)
    expected = gradients(lambda q, k, v: definition(q, k, v, Full(), targets, sources), rows)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)
    assert targets.split(actual[0])[1].count_nonzero() == 0


def test_a_query_that_may_see_nothing_gets_zeros() -> None:
    far, near = Layout((2, 3), first_positions=(50, 0)), Layout((4, 4))
    q, k, v = random_rows(far.tokens, near.tokens, near.tokens)
    trace = Trace()
    trace.begin(far)
    attended = attend((q, k, v), Window(1).plan(far, near))
    record_attention((q, k, v), Window(1).plan(far, near), None, trace)
    assert far.split(attended)[0].count_nonzero() == 0
    assert trace.weights[0][0].count_nonzero() == 0
    assert trace.scores[0][0].max() == -torch.inf
    torch.testing.assert_close(attended, definition(q, k, v, Window(1), far, near), rtol=0, atol=1e-9)


def test_a_bias_is_added_to_the_scores_in_every_group() -> None:
    layout = Layout(BATCHES["ragged"])
    q, k, v = random_rows(*[layout.tokens] * 3)
    bias = BucketedBias(8, HEADS).double()
    for scope in (Full(), Causal(), Window(3)):
        plan = scope.plan(layout)
        trace = Trace()
        trace.begin(layout)
        together = attend((q, k, v), plan, bias(plan))
        record_attention((q, k, v), plan, bias(plan), trace)
        for index, parts in enumerate(zip(*map(layout.split, (q, k, v, together)), strict=True)):
            alone = scope.plan(Layout((layout.lengths[index],)))
            torch.testing.assert_close(attend(parts[:3], alone, bias(alone)), parts[3], rtol=0, atol=1e-9)
            mixed = torch.einsum("hmn,nhd->mhd", trace.weights[0][index], parts[2])
            torch.testing.assert_close(mixed, parts[3], rtol=0, atol=1e-9)


def test_a_learned_bias_receives_its_gradient() -> None:
    layout = Layout((3, 5))
    rows = random_rows(*[layout.tokens] * 3)
    table = torch.randn(HEADS, 5, 5, dtype=torch.float64, requires_grad=True)

    def bias(group: Group, queries: Tensor) -> Tensor:
        return table[:, : group.queries.length, : group.keys.length].unsqueeze(0)

    attend(tuple(rows), Full().plan(layout), bias).sum().backward()
    assert table.grad is not None
    assert table.grad.count_nonzero() == table.numel()


def test_an_empty_batch_gives_an_empty_result() -> None:
    q, k, v = random_rows(0, 0, 0)
    assert attend((q, k, v), Full().plan(Layout(()))).shape == (0, HEADS, WIDTH)
