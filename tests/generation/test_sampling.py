"""Sampling: the right distribution, the right cuts, and streams that hang on nothing but seed, sentence and step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from toys import BEGIN, END, Toy, ask

from kinfolk.errors import InputError, WeightsError
from kinfolk.generation.config import DecodingConstraints, Request, Sampling
from kinfolk.generation.sampling import draw, likeliest, sample, uniforms
from kinfolk.generation.search import greedy
from kinfolk.nn.packed import pack

SHARES = torch.tensor([0.05, 0.4, 0.1, 0.25, 0.2], dtype=torch.float64)


def test_the_first_token_has_the_models_distribution():
    toy, count = Toy(0, vocabulary=5, tables=1), 4000
    start = toy.after(0, BEGIN)
    toy.table[0, start] = SHARES.log()
    texts = sample(toy, Request(pack([[0]] * count), BEGIN, [1] * count, DecodingConstraints(END)), Sampling(seed=3))
    firsts = [END if text.finished else text.ids[0] for text in texts]
    counted = np.bincount(firsts, minlength=5)
    expected = count * SHARES.numpy()
    assert ((counted - expected) ** 2 / expected).sum() < 18.47  # chi-square, 4 degrees of freedom, one in a thousand
    assert texts[0].log_probability == pytest.approx(math.log(SHARES[firsts[0]]))


@pytest.mark.parametrize("temperature", [1e-3, 1e-38, 1e-39, 1e-300, 5e-324, 0.0])
def test_however_cold_the_likeliest_is_drawn(temperature: float):
    uniform = torch.linspace(0, 1, 101)[:-1]
    rows = torch.tensor([0.1, 0.6, 0.3, 0.0]).log().repeat(100, 1)
    for options in (Sampling(temperature), Sampling(temperature, top_k=2), Sampling(temperature, top_p=0.9)):
        assert draw(rows, uniform, options).tolist() == [1] * 100


def test_temperature_sharpens_and_flattens():
    uniform = torch.linspace(0, 1, 10_001)[:-1]
    rows = SHARES.log().repeat(len(uniform), 1)
    for temperature in (0.5, 1.0, 2.0):
        counted = torch.bincount(draw(rows, uniform, Sampling(temperature)), minlength=5) / len(uniform)
        wanted = SHARES ** (1 / temperature)
        assert counted.tolist() == pytest.approx((wanted / wanted.sum()).tolist(), abs=2e-4)


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (None, 0.4, {1}),
        (None, 0.41, {1, 3}),
        (None, 0.65, {1, 3}),
        (None, 0.66, {1, 3, 4}),
        (None, 1.0, {0, 1, 2, 3, 4}),
        (2, None, {1, 3}),
        (9, None, {0, 1, 2, 3, 4}),
        (3, 0.76, {1, 3}),  # 0.65 of the 0.85 that the first three have
        (3, 0.77, {1, 3, 4}),
    ],
)
def test_the_smallest_set_that_reaches_the_share_is_kept(top_k: int | None, top_p: float | None, kept: set[int]):
    uniform = torch.linspace(0, 1, 1001, dtype=torch.float64)[:-1]
    drawn = draw(SHARES.log().repeat(1000, 1), uniform, Sampling(top_k=top_k, top_p=top_p))
    assert set(drawn.tolist()) == kept
    assert drawn.diff().min() >= 0  # in the order of the vocabulary


def test_a_flat_vocabulary_is_cut_at_the_right_place():
    shares = torch.full((2, 5000), 1 / 5000, dtype=torch.float64)
    result, ids = likeliest(shares, None, 0.9)
    assert (result > 0).sum(-1).tolist() == pytest.approx([4500, 4500], abs=1)
    assert ids.shape == (2, 5000)


def test_company_and_order_do_not_matter():
    toy, options = Toy(7, vocabulary=9), Sampling(0.9, top_k=6, top_p=0.95, seed=11)
    limits, order = [6, 2, 9, 4, 8], [3, 0, 4, 2, 1]
    together = sample(toy, ask(order, [limits[table] for table in order]), options, order)
    for text, table in zip(together, order, strict=True):
        assert sample(toy, ask([table], limits[table]), options, [table])[0].ids == text.ids


def test_a_seed_repeats_and_another_differs():
    toy, request = Toy(1, vocabulary=9), ask(range(8), 9)
    first, again, other = ([text.ids for text in sample(toy, request, Sampling(seed=seed))] for seed in (1, 1, 2))
    assert first == again != other


def test_one_likeliest_token_is_greedy_search():
    toy, request = Toy(1, vocabulary=9), ask(range(8), 9)
    expected = [text.ids for text in greedy(toy, request)]
    assert [text.ids for text in sample(toy, request, Sampling(top_k=1))] == expected
    assert [text.ids for text in sample(toy, request, Sampling(top_p=1e-6))] == expected
    assert [text.ids for text in sample(toy, request, Sampling(temperature=1e-3))] == expected


def test_rules_hold():
    toy, rules = Toy(4, vocabulary=5), DecodingConstraints(END, never=(0, 2))
    for text in sample(toy, ask(range(8), 6, rules)):
        assert not {0, 2} & set(text.ids)


def test_uniform_numbers_are_even_and_do_not_follow_each_other():
    numbers = np.stack([uniforms(5, np.arange(100, dtype=np.uint64), step) for step in range(100)])
    assert len(np.unique(numbers)) == numbers.size
    counted, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert ((counted - 500) ** 2 / 500).sum() < 43.8  # chi-square, 19 degrees of freedom, one in a thousand
    for other in (np.roll(numbers, 1, 0), np.roll(numbers, 1, 1), numbers.T):
        assert abs(np.corrcoef(numbers.ravel(), other.ravel())[0, 1]) < 0.04


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_range_draw_possible_tokens(uniform: float):
    shares = torch.tensor([[0.0, 0.3, 0.7, 0.0]])
    assert draw(shares.log(), torch.tensor([uniform], dtype=torch.float64), Sampling()).item() in (1, 2)


def test_settings_without_meaning_are_refused():
    for wrong in (
        {"temperature": -1},
        {"temperature": math.nan},
        {"top_k": 0},
        {"top_p": 0},
        {"top_p": 1.1},
        {"seed": -1},
    ):
        with pytest.raises(InputError):
            Sampling(**wrong)
    with pytest.raises(InputError, match="2 sentences"):
        sample(Toy(0, 4), ask([0, 1], 3), numbers=[5])


def test_scores_that_are_no_numbers_are_named():
    toy = Toy(0, 4)
    toy.table[:] = math.nan
    with pytest.raises(WeightsError):
        sample(toy, ask([0], 3))
