"""Attention that learns under dropout: the values and gradients of its parts, with less kept for the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from kinfolk.nn.attention import attention_scores
from kinfolk.nn.fast.kernels import Bias, attend
from kinfolk.nn.fast.linear import dropout
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import AttentionPlan, Causal, Full, Group, Scope
from support.scopes import Prefix, Window

HEADS, WIDTH, P = 2, 4, 0.25
LAYOUTS = {
    "near equal, padded": (5, 7, 6, 7),
    "equal, apart": (40, 1, 40, 1),
    "ragged": (1, 7, 3, 12, 12, 30),
    "with an empty one": (3, 0, 5),
}
SCOPES: dict[str, Scope] = {
    "full": Full(),
    "causal": Causal(),
    "prefix": Prefix((0, 3, 9, 1, 2, 5)),
    "window": Window(2),
}


def by_parts(q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan, bias: Bias | None = None) -> Tensor:
    """dropout(softmax(Q K' / sqrt(width) + bias)) V, group by group; torch knows the gradients of all its parts."""
    outputs = []
    for group in plan.groups:
        queries, keys, values = group.queries.take(q), group.keys.take(k), group.keys.take(v)
        mixed = dropout(attention_scores(queries, keys, group, bias).softmax(-1), P) @ values
        outputs.append(
            group.queries.unpad(mixed if group.fully_masked is None else mixed.masked_fill(group.fully_masked, 0.0))
        )
    joined = torch.cat(outputs)
    return joined if plan.order is None else joined[plan.order]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)


def gradients(work: Callable[[], Tensor], leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    torch.manual_seed(3)
    output = work()
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view(output.shape)
    return (output, *torch.autograd.grad((output * weights).sum(), leaves))


def kept_bytes(work: Callable[[], Tensor]) -> int:
    """What is held for the gradient."""
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        work()
    return sum(sizes.values())


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("lengths", LAYOUTS)
def test_tokens_that_look_at_each_other_learn_as_by_parts(lengths: str, scope: str) -> None:
    layout = Layout(LAYOUTS[lengths])
    qkv, plan = drawn(layout.tokens, 3, HEADS, WIDTH), SCOPES[scope].plan(layout)
    actual = gradients(lambda: attend((qkv,), plan, dropout=P), [qkv])
    expected = gradients(lambda: by_parts(*qkv.unbind(1), plan), [qkv])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("scope", "firsts"), [(Full(), None), (Window(1), (50, 0, 0, 2, 0))], ids=["full", "some see nothing"]
)
def test_targets_that_look_at_sources_learn_as_by_parts(scope: Scope, firsts: tuple[int, ...] | None) -> None:
    targets, sources = Layout((3, 2, 4, 4, 1), first_positions=firsts), Layout((5, 0, 2, 3, 40))
    counts = (targets.tokens, sources.tokens, sources.tokens)
    rows = [drawn(tokens, HEADS, WIDTH, seed=seed) for seed, tokens in enumerate(counts)]
    plan = scope.plan(targets, sources)
    actual = gradients(lambda: attend(tuple(rows), plan, dropout=P), rows)
    expected = gradients(lambda: by_parts(*rows, plan), rows)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_term_of_the_scores_learns_too_whatever_it_reads(scope: str) -> None:
    layout = Layout(LAYOUTS["ragged"])
    qkv, table, plan = drawn(layout.tokens, 3, HEADS, WIDTH), drawn(HEADS, 30, 30), SCOPES[scope].plan(layout)

    def bias(group: Group, queries: Tensor) -> Tensor:
        shared = table[:, : group.queries.length, : group.keys.length].unsqueeze(0)
        return shared + queries.sum(-1, keepdim=True) if group.queries.count > 1 else shared

    actual = gradients(lambda: attend((qkv,), plan, bias, P), [qkv, table])
    expected = gradients(lambda: by_parts(*qkv.unbind(1), plan, bias), [qkv, table])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_less_is_kept_for_the_gradient_of_long_texts() -> None:
    qkv = drawn(400, 3, HEADS, WIDTH)
    plan = Full().plan(Layout((400,)))
    less = kept_bytes(lambda: attend((qkv,), plan, dropout=P))
    assert less < 0.45 * kept_bytes(lambda: by_parts(*qkv.unbind(1), plan))
