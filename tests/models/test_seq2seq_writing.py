"""Recurrent sequence to sequence while it writes: steps, beams and searches agree with training, in any company."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kinfolk.generation.config import Beam, DecodingConstraints, Request
from kinfolk.generation.search import beam, greedy
from kinfolk.nn.packed import Tokens, pack
from kinfolk.nn.trace import PairTrace
from support.tiny import LOOKING, SOURCES, close, our_seq2seq, rows, stepped
from support.tiny import RECURRENTS as VARIANTS

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@every_variant
@pytest.mark.parametrize("beams", [1, 3])
def test_steps_equal_teacher_forcing_for_all_beams(variant: str, beams: int) -> None:
    model, sources = our_seq2seq(**VARIANTS[variant]), rows(SOURCES)
    tokens = torch.tensor(rows((9,) * len(SOURCES) * beams))
    repeated = [row for row in sources for _ in range(beams)]
    with torch.no_grad():
        expected = model.vocabulary_scores(model(pack(repeated), pack(tokens.tolist())))
    close(stepped(model, pack(sources), tokens, beams).flatten(0, 1), expected)  # type: ignore[arg-type]


@every_variant
def test_rows_move_and_leave_as_if_they_had_been_alone(variant: str) -> None:
    model, beams, sources = our_seq2seq(**VARIANTS[variant]), 2, rows(SOURCES[:4])
    state, past = model.start(pack(sources), beams), torch.zeros(8, 0, dtype=torch.long)
    assert state.beams == 2
    for step in range(4):
        past = torch.cat([past, torch.tensor(rows((1,) * 8, seed=step))], 1)
        scores, state = model.step(past[:, -1], state)
        parents = torch.tensor([0, 0, 3, 2, 5, 5, 7, 6])
        state, past, scores = state.reorder(parents), past[parents], scores[parents]
    kept = torch.tensor([3, 1])
    lines = torch.tensor([6, 7, 2, 3])
    final, _ = model.step(torch.full((4,), 9), state.keep(kept))
    past = torch.cat([past[lines], torch.full((4, 1), 9)], 1)
    repeated = pack([sources[number] for number in (3, 3, 1, 1)])
    expected = stepped(model, repeated, past)  # type: ignore[arg-type]
    close(scores[lines], expected[:, -2])
    close(final, expected[:, -1])


@every_variant
def test_searches_do_not_depend_on_the_batch(variant: str) -> None:
    model, sources = our_seq2seq(**VARIANTS[variant]), [*rows((1, 7, 3, 12)), []]

    def ask(chosen: list[list[int]]) -> Request:
        return Request(pack(chosen), 1, [8] * len(chosen), DecodingConstraints(end=2, never=(0,)))

    together, firsts = beam(model, ask(sources), Beam(3, n_best=2)), greedy(model, ask(sources))
    for index, row in enumerate(sources):
        (alone,), (first,) = beam(model, ask([row]), Beam(3, n_best=2)), greedy(model, ask([row]))
        for actual, expected in zip([*together[index], firsts[index]], [*alone, first], strict=True):
            assert actual.ids == expected.ids
            assert actual.score == pytest.approx(expected.score, abs=1e-9)


@pytest.mark.parametrize("variant", LOOKING)
def test_a_trace_shows_where_each_token_looked_and_changes_nothing(variant: str) -> None:
    model, source, target = our_seq2seq(**VARIANTS[variant]), pack(rows((4, 6))), pack(rows((5, 3), seed=1))
    trace = PairTrace()
    with torch.no_grad():
        assert model(source, target, trace).equal(model(source, target))
    (layer,) = trace.across.weights
    for weights, shape in zip(layer, ((1, 5, 4), (1, 3, 6)), strict=True):
        assert weights.shape == shape
        close(weights.sum(-1), torch.ones(shape[:2], dtype=torch.float64))
    close(trace.source.hidden[1], source.layout.split(model.body.encode(source).detach()))


def test_in_float32_batch_mates_change_chances_by_less_than_a_millionth() -> None:
    model, sources = our_seq2seq(score="bilinear").float(), rows(SOURCES)
    tokens = torch.tensor(rows((8,) * len(SOURCES)))

    def chances(source: Tokens, written: Tensor) -> Tensor:
        return stepped(model, source, written).softmax(-1)  # type: ignore[arg-type]

    together = chances(pack(sources), tokens)
    for index, row in enumerate(sources):
        alone = chances(pack([row]), tokens[index : index + 1])[0]
        torch.testing.assert_close(together[index], alone, rtol=0, atol=1e-6)
