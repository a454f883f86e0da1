"""Sines and cosines, worked by hand and against the reference."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from kinfolk.nn.positions import sinusoids


def test_pairs_of_dimensions_turn_at_their_own_rates() -> None:
    table = sinusoids(8, 6, "interleaved")
    for place in range(8):
        for pair in range(3):
            angle = place / 10_000 ** (2 * pair / 6)
            assert float(table[place, 2 * pair]) == pytest.approx(math.sin(angle), abs=1e-7)
            assert float(table[place, 2 * pair + 1]) == pytest.approx(math.cos(angle), abs=1e-7)


def test_in_halves_the_sines_stand_before_the_cosines() -> None:
    interleaved, halves = sinusoids(50, 16, "interleaved"), sinusoids(50, 16, "halves")
    assert halves.equal(torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], 1))


def test_halves_equal_the_reference_to_the_bit() -> None:
    theirs = MarianSinusoidalPositionalEmbedding(512, 64).create_weight()
    assert sinusoids(512, 64, "halves").equal(theirs)
    assert sinusoids(512, 64, "halves").dtype == torch.float32
