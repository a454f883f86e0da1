"""The random field against its definition: every path listed and scored, in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from kinfolk.nn.crf import PACE, Crf
from kinfolk.nn.packed import Layout
from support.tiny import close

TAGS = 3
LENGTHS = (1, 4, 2, 5, 1)


def field(seed: int = 0) -> Crf:
    generator = torch.Generator().manual_seed(seed)
    crf = Crf(TAGS).double()
    with torch.no_grad():
        for weight in crf.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) / PACE)
    return crf


def emissions(lengths: tuple[int, ...] = LENGTHS, seed: int = 1) -> tuple[Tensor, Layout]:
    generator = torch.Generator().manual_seed(seed)
    layout = Layout(lengths)
    return 2 * torch.randn(layout.tokens, TAGS, generator=generator, dtype=torch.float64), layout


def numbers(values: Iterable[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)


def scores_of_all_paths(crf: Crf, own: Tensor) -> dict[tuple[int, ...], float]:
    """Every path of one sentence with its score, added up by hand."""
    transitions, start, end = (PACE * table for table in (crf.transition_bias, crf.start_bias, crf.end_bias))
    scores = {}
    for path in itertools.product(range(TAGS), repeat=len(own)):
        score = start[path[0]] + end[path[-1]] + sum(own[index, tag] for index, tag in enumerate(path))
        scores[path] = float(score + sum(transitions[one, two] for one, two in itertools.pairwise(path)))
    return scores


def test_a_path_of_two_words_worked_by_hand() -> None:
    crf = Crf(2).double()
    with torch.no_grad():
        crf.transition_bias.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]) / PACE)
        crf.start_bias.copy_(torch.tensor([10.0, 20.0]) / PACE)
        crf.end_bias.copy_(torch.tensor([100.0, 200.0]) / PACE)
    own = torch.tensor([[0.5, 0.25], [0.125, 0.0]], dtype=torch.float64)
    score = crf.score(own, torch.tensor([1, 0]), Layout((2,)))
    assert score.tolist() == pytest.approx([20 + 0.25 + 3 + 0.125 + 100])


def test_scores_sums_chances_and_best_paths_are_those_of_the_listed_paths() -> None:
    crf, (own, layout) = field(), emissions()
    tags = torch.randint(TAGS, (layout.tokens,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        listed = [scores_of_all_paths(crf, part) for part in layout.split(own)]
        paths = [tuple(part.tolist()) for part in layout.split(tags)]
        close(crf.score(own, tags, layout), numbers(scores[path] for scores, path in zip(listed, paths, strict=True)))
        sums = [math.log(sum(map(math.exp, scores.values()))) for scores in listed]
        close(crf.log_partition(own, layout), numbers(sums))
        best = [max(scores, key=scores.__getitem__) for scores in listed]
        assert crf.decode(own, layout).tolist() == [tag for path in best for tag in path]
        chances = [
            sum(math.exp(score - total) for path, score in scores.items() if path[index] == tag)
            for scores, total, length in zip(listed, sums, LENGTHS, strict=True)
            for index in range(length)
            for tag in range(TAGS)
        ]
        close(crf.marginals(own, layout).flatten(), numbers(chances))


def test_a_sentence_is_the_same_alone_and_in_company() -> None:
    crf, (own, layout) = field(), emissions((7, 1, 12, 3, 3))
    with torch.no_grad():
        alone = [(part, Layout((len(part),))) for part in layout.split(own)]
        close(crf.log_partition(own, layout), torch.cat([crf.log_partition(*one) for one in alone]))
        close(crf.marginals(own, layout), torch.cat([crf.marginals(*one) for one in alone]))
        assert crf.decode(own, layout).equal(torch.cat([crf.decode(*one) for one in alone]))


def test_the_gradient_of_the_partition_is_the_chance_of_each_tag() -> None:
    crf, (own, layout) = field(), emissions()
    own.requires_grad_()
    crf.log_partition(own, layout).sum().backward()
    close(own.grad, crf.marginals(own, layout).detach())


def test_gradients_of_the_tables_are_finite_and_count_once_what_the_value_counts_a_hundredfold() -> None:
    crf, (own, layout) = field(), emissions()
    tags = torch.zeros(layout.tokens, dtype=torch.long)
    crf.score(own, tags, layout).sum().backward()
    assert crf.start_bias.grad.tolist() == [len(LENGTHS), 0, 0]
    assert crf.transition_bias.grad[0, 0] == sum(LENGTHS) - len(LENGTHS)
    crf.log_partition(1e4 * own, layout).sum().backward()
    assert all(weight.grad.isfinite().all() for weight in crf.parameters())


def test_a_thousand_words_stay_sure_in_float32() -> None:
    crf, (own, layout) = field(), emissions((1000, 3))
    with torch.no_grad():
        expected = crf.marginals(own, layout)
        marginals = crf.float().marginals(own.float(), layout)
    torch.testing.assert_close(marginals.sum(1), torch.ones(len(own)), rtol=0, atol=1e-5)
    torch.testing.assert_close(marginals.double(), expected, rtol=0, atol=2e-3)
