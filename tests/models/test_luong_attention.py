"""Scores, weights and context vectors equal their formulas, packed or a step at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kinfolk.models.attention_seq2seq import (
    SCORES,
    AdditiveAttention,
    LuongAttention,
    Score,
    contexts,
)
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import Full
from kinfolk.nn.state import RecurrentState
from kinfolk.nn.trace import Trace
from support.tiny import close, randomise

TARGET, SOURCE, INNER = 4, 6, 5
TARGETS, SOURCES = Layout((2, 5, 1, 3, 3)), Layout((4, 1, 7, 3, 2))
every_score = pytest.mark.parametrize("kind", SCORES)


def made(kind: str) -> tuple[Score, int]:
    """A random score, and how wide the sources are that it can read."""
    source_width = TARGET if kind == "dot" else SOURCE
    return randomise(SCORES[kind](TARGET, source_width, INNER)).double(), source_width


def vectors(layout: Layout, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(layout.tokens, width, dtype=torch.float64, generator=generator)


def formula(score: Score, h: Tensor, s: Tensor) -> Tensor:
    """One number for one target and one source state."""
    weights = dict(score.named_parameters())
    if not weights:
        return sum(a * b for a, b in zip(h, s, strict=True))  # type: ignore[return-value]
    if not isinstance(score, AdditiveAttention):
        return h @ weights["matrix.weight"] @ s
    joined = torch.cat([weights["target.weight"], weights["source.weight"]], 1)  # W1
    return weights["output.weight"][0] @ torch.tanh(joined @ torch.cat([h, s]))


@every_score
def test_packed_contexts_and_weights_equal_plain_loops(kind: str) -> None:
    score, width = made(kind)
    target, source, trace = vectors(TARGETS, TARGET), vectors(SOURCES, width, seed=1), Trace()
    trace.begin(TARGETS)
    with torch.no_grad():
        actual = contexts(score, target, source, Full().plan(TARGETS, SOURCES), trace)
        assert actual.equal(contexts(score, target, source, Full().plan(TARGETS, SOURCES)))
        for index, (own, states) in enumerate(zip(TARGETS.split(target), SOURCES.split(source), strict=True)):
            for position, h in enumerate(own):
                scores = torch.stack([formula(score, h, s) for s in states])
                weights = scores.exp() / scores.exp().sum()
                close(trace.scores[0][index][0, position], scores)
                close(trace.weights[0][index][0, position], weights)
                close(TARGETS.split(actual)[index][position], sum(w * s for w, s in zip(weights, states, strict=True)))


@every_score
def test_gradients_are_those_of_the_loops(kind: str) -> None:
    score, width = made(kind)
    target, source = vectors(TARGETS, TARGET).requires_grad_(), vectors(SOURCES, width, seed=1).requires_grad_()
    wanted = [target, source, *score.parameters()]
    ours = torch.autograd.grad(contexts(score, target, source, Full().plan(TARGETS, SOURCES)).square().sum(), wanted)
    rows = [
        torch.stack([formula(score, h, s) for s in states]).softmax(0) @ states
        for own, states in zip(TARGETS.split(target), SOURCES.split(source), strict=True)
        for h in own
    ]
    close(ours, torch.autograd.grad(torch.stack(rows).square().sum(), wanted))


def test_an_empty_source_gives_a_context_of_zeros() -> None:
    score, width = made("bilinear")
    targets, sources = Layout((2, 1)), Layout((0, 3))
    actual = contexts(score, vectors(targets, TARGET), vectors(sources, width), Full().plan(targets, sources))
    assert not actual[:2].any()
    assert actual[2].all()


@every_score
@pytest.mark.parametrize("lengths", [SOURCES.lengths, (3, 3, 3, 3, 3), (0, 2, 0, 1, 4), (0, 0, 0, 0, 0)])
def test_a_step_of_two_beams_equals_the_whole(kind: str, lengths: tuple[int, ...]) -> None:
    score, width = made(kind)
    layout, look = Layout(lengths), randomise(LuongAttention(score, TARGET, width)).double()
    source, hidden = vectors(layout, width), vectors(Layout((10,)), TARGET, seed=2)  # five sentences of two beams
    state = look.start(RecurrentState(2, (hidden.unsqueeze(0),)), source, layout)
    with torch.no_grad():
        expected = look(hidden, source, Full().plan(Layout((2,) * 5), layout))
        close(look.step(hidden, state), expected)
        kept = torch.tensor([3, 0])
        few = look.step(hidden.view(5, 2, -1)[kept].flatten(0, 1), state.keep(kept))
        close(few, expected.view(5, 2, -1)[kept].flatten(0, 1))


def test_only_the_longest_source_that_is_kept_takes_room() -> None:
    score, width = made("dot")
    before = RecurrentState(1, (torch.zeros(1, 5, TARGET),))
    state = LuongAttention(score, TARGET, width).start(before, vectors(SOURCES, width), SOURCES)
    kept = state.keep(torch.tensor([4, 3]))
    assert kept.lengths == (2, 3)
    assert kept.states.shape == kept.keys.shape == (2, 3, width)
