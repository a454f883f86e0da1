"""Bucketed distances and sinusoids: worked by hand, and against the reference."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from kinfolk.nn.embeddings import BucketedBias, sinusoids
from kinfolk.nn.packed import Layout
from kinfolk.nn.scopes import Full


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (64, 512)])
def test_buckets_equal_the_reference_from_minus_600_to_600(buckets: int, farthest: int) -> None:
    distances = torch.arange(-600, 601)
    theirs = MPNetEncoder.relative_position_bucket(distances, num_buckets=buckets, max_distance=farthest)
    assert BucketedBias(buckets, 1, farthest).bucket(distances).equal(theirs)


def test_near_distances_have_a_bucket_each_and_sides_are_distinguished() -> None:
    bias = BucketedBias(32, 1)
    assert bias.bucket(torch.tensor([0, -1, -7, 1, 7])).tolist() == [0, 1, 7, 17, 23]
    assert bias.bucket(torch.tensor([-128, -600, 128, 600])).tolist() == [15, 15, 31, 31]


def test_each_group_takes_its_corner_of_one_term() -> None:
    torch.manual_seed(0)
    bias = BucketedBias(8, 2)
    plan = Full().plan(Layout((2, 30, 3)))
    term = bias(plan)
    for group in plan.groups:
        result = term(group, torch.zeros(1))
        assert result.shape == (1, 2, group.queries.length, group.keys.length)
        for query in range(group.queries.length):
            for key in range(group.keys.length):
                bucket = int(bias.bucket(torch.tensor(key - query)))
                assert result[0, :, query, key].equal(bias.table.weight[bucket])


def test_pairs_of_dimensions_turn_at_their_own_rates() -> None:
    table = sinusoids(8, 6, "interleaved")
    for position in range(8):
        for pair in range(3):
            angle = position / 10_000 ** (2 * pair / 6)
            assert float(table[position, 2 * pair]) == pytest.approx(math.sin(angle), abs=1e-7)
            assert float(table[position, 2 * pair + 1]) == pytest.approx(math.cos(angle), abs=1e-7)


def test_in_halves_the_sines_stand_before_the_cosines() -> None:
    interleaved, halves = sinusoids(50, 16, "interleaved"), sinusoids(50, 16, "halves")
    assert halves.equal(torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], 1))


def test_halves_equal_the_reference_to_the_bit() -> None:
    theirs = MarianSinusoidalPositionalEmbedding(512, 64).create_weight()
    assert sinusoids(512, 64, "halves").equal(theirs)
    assert sinusoids(512, 64, "halves").dtype == torch.float32
