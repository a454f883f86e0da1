"""Beam search: exact when wide, independent of company, and true to its rules."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import BEGIN, END, Toy, ask, close

from kinfolk.errors import InputError, WeightsError
from kinfolk.generation.config import EARLY_STOPPING, Beam, DecodingConstraints, Hypothesis, Penalty, Request
from kinfolk.generation.search import beam, greedy
from kinfolk.nn.packed import pack

penalties = st.builds(Penalty, st.floats(-1.0, 2.0), st.sampled_from(("gnmt", "power")))
rules = st.builds(DecodingConstraints, st.just(END), st.sampled_from([(), (0,), (2, 3), (END,)]))


def shown(texts: list[Hypothesis]) -> list[tuple[list[int], bool, float]]:
    return [(text.ids, text.finished, round(text.score, 9)) for text in texts]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), penalties, rules, st.integers(1, 4), st.integers(1, 5), st.floats(0.1, 5.0))
def test_a_full_width_beam_is_exhaustive_search(seed, penalty, rule, longest, best, spread):
    toy = Toy(seed, vocabulary=4, tables=1, spread=spread)
    (actual,) = beam(toy, ask([0], longest, rule), Beam(4**4, best, penalty))
    expected = toy.all_texts(0, longest, penalty, rule)[:best]
    assert len(actual) == len(expected)
    for text, (score, ids) in zip(actual, expected, strict=True):
        assert close(text.score, score)
        assert close(text.log_probability, toy.log_probability(0, text.ids + [END] * text.finished))
        assert text.ids + [END] * text.finished == ids


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(6)), st.integers(1, 4), st.sampled_from(EARLY_STOPPING), penalties)
def test_company_and_order_do_not_matter(seed, order, beams, stop, penalty):
    toy, options = Toy(seed, vocabulary=5), Beam(beams, 1 + beams // 2, penalty, stop)
    limits = [3, 6, 1, 5, 2, 6]
    together = beam(toy, ask(order, [limits[table] for table in order]), options)
    for index, table in enumerate(order):
        assert shown(together[index]) == shown(beam(toy, ask([table], limits[table]), options)[0])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), penalties, rules, st.sampled_from(EARLY_STOPPING))
def test_one_beam_is_greedy(seed, penalty, rule, stop):
    toy, request = Toy(seed, vocabulary=4), ask(range(5), 6, rule)
    for (one,), plain in zip(beam(toy, request, Beam(1, 1, penalty, stop)), greedy(toy, request), strict=True):
        assert (one.ids, one.finished) == (plain.ids, plain.finished)
        assert close(one.log_probability, plain.log_probability)
        assert plain.score == plain.log_probability


def test_greedy_by_hand():
    toy = Toy(0, vocabulary=4, tables=1)
    toy.table[:] = torch.tensor([1.0, 0.0, 3.0, 2.0])
    (cut,) = greedy(toy, ask([0], 3))
    assert (cut.ids, cut.finished) == ([2, 2, 2], False)
    (other,) = greedy(toy, ask([0], 3, DecodingConstraints(END, never=(2, 3))))
    assert other.ids == [0, 0, 0]
    assert close(other.log_probability, 3 * (1 - math.log(1 + math.e + math.e**2 + math.e**3)))


def test_a_longer_text_wins_with_never_and_is_missed_under_full():
    toy = Toy(0, vocabulary=3, tables=1)
    toy.table[:] = torch.tensor([1e-9, 1e-9, 1.0]).log()
    start = toy.after(0, BEGIN)
    toy.table[0, start] = torch.tensor([0.05, 0.5, 0.45]).log()  # the end at once is likeliest
    toy.table[0, toy.after(start, 0)] = torch.tensor([1e-9, 1.0, 1e-9]).log()
    power, long = Penalty(1.0, "power"), [2, 2, 2, 2]
    assert beam(toy, ask([0], 4), Beam(2, 1, power))[0][0].ids == long
    assert beam(toy, ask([0], 4), Beam(2, 1, Penalty(0.0)))[0][0].ids == []
    assert [text.ids for text in beam(toy, ask([0], 4), Beam(2, 2, power, "full"))[0]] == [[], [0]]


@pytest.mark.parametrize("beams", [1, 3])
def test_forced_end_takes_the_last_place_for_nothing(beams: int):
    toy = Toy(3, vocabulary=6)
    toy.table[:, :, END] = -30.0
    rules = DecodingConstraints(END, forced_end=True)
    for index, (text,) in enumerate(beam(toy, ask(range(4), [1, 2, 3, 4], rules), Beam(beams))):
        assert text.finished
        assert len(text.ids) == index
        assert close(text.log_probability, toy.log_probability(index, text.ids))
    assert all(text.finished for text in greedy(toy, ask(range(4), 3, rules)))


def test_no_sentences_give_no_texts():
    empty = Request(pack([]), BEGIN, [], DecodingConstraints(END))
    assert beam(Toy(0, 4), empty) == []
    assert greedy(Toy(0, 4), empty) == []


def test_begin_tokens_may_differ_by_sentence():
    toy = Toy(1, vocabulary=5)
    request = Request(pack([[0], [0]]), [2, 3], [4, 4], DecodingConstraints(END))
    alone = [greedy(toy, Request(pack([[0]]), begin, [4], DecodingConstraints(END)))[0].ids for begin in (2, 3)]
    assert [text.ids for text in greedy(toy, request)] == alone
    assert alone[0] != alone[1]


def test_rules_without_meaning_are_refused():
    toy = Toy(0, 4)
    with pytest.raises(InputError, match="outside"):
        greedy(toy, ask([0], 3, DecodingConstraints(END, never=(4,))))
    with pytest.raises(InputError, match="forbidden"):
        beam(toy, ask([0], 3, DecodingConstraints(END, never=(0, 2, 3))))
    with pytest.raises(InputError, match="at least 1"):
        ask([0, 1], [3, 0])
    with pytest.raises(InputError, match="2 sentences"):
        ask([0, 1], [3])
    for wrong in ({"beams": 0}, {"n_best": 5}, {"early_stopping": "soon"}):
        with pytest.raises(InputError):
            Beam(**wrong)
    for wrong_penalty in ({"alpha": math.nan}, {"alpha": 11.0}, {"kind": "none"}):
        with pytest.raises(InputError):
            Penalty(**wrong_penalty)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_are_named(value: float):
    toy = Toy(0, 4)
    toy.table[:] = value
    for search in (greedy, beam):
        with pytest.raises(WeightsError, match="not finite"):
            search(toy, ask([0], 3))


def test_half_precision_scores_are_widened():
    toy = Toy(2, vocabulary=6)
    toy.table = toy.table.bfloat16()
    assert beam(toy, ask([0], 4))[0][0].log_probability < 0
