"""Bucketed distances, against the reference's formula."""

from __future__ import annotations

import pytest
import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from kinfolk.nn.packed import Layout
from kinfolk.nn.positions import BucketedBias
from kinfolk.nn.scopes import Full


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (64, 512)])
def test_buckets_equal_the_reference_from_minus_600_to_600(buckets: int, farthest: int) -> None:
    distances = torch.arange(-600, 601)
    theirs = MPNetEncoder.relative_position_bucket(distances, num_buckets=buckets, max_distance=farthest)
    assert BucketedBias(buckets, 1, farthest).bucket(distances).equal(theirs)


def test_near_distances_have_a_bucket_each_and_sides_are_told_apart() -> None:
    bias = BucketedBias(32, 1)
    assert bias.bucket(torch.tensor([0, -1, -7, 1, 7])).tolist() == [0, 1, 7, 17, 23]
    assert bias.bucket(torch.tensor([-128, -600, 128, 600])).tolist() == [15, 15, 31, 31]


def test_each_group_takes_its_corner_of_one_term() -> None:
    torch.manual_seed(0)
    bias = BucketedBias(8, 2)
    plan = Full().plan(Layout((2, 30, 3)))
    term = bias(plan)
    for group in plan.groups:
        found = term(group, torch.zeros(1))
        assert found.shape == (1, 2, group.queries.length, group.keys.length)
        for query in range(group.queries.length):
            for key in range(group.keys.length):
                bucket = int(bias.bucket(torch.tensor(key - query)))
                assert found[0, :, query, key].equal(bias.table.weight[bucket])
