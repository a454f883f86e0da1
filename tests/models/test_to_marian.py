"""A Transformer of ours as a Marian: the same scores under other names, ids and orders of dimensions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kinfolk.errors import ConfigError
from kinfolk.models.marian import NEVER, MarianConfig, to_marian
from kinfolk.nn.packed import Tokens, pack
from support.tiny import SOURCES, TARGETS, close, our_transformer, rows, stepped

ROWS = [2, 3, *range(4, 20), 1]  # the end, the unknown, pieces, and the start, which is last
FORMS: dict[str, dict[str, Any]] = {
    "as by default": {"vocabulary_size": 20},
    "halves, zero start": {"vocabulary_size": 20, "sinusoid": "halves", "zero_start": True},
    "two tables, bias, interleaved": {
        "vocabulary_size": 20, "shared_tables": False, "output_bias": True, "zero_start": True, "activation": "silu",
    },
}  # fmt: skip


def batches() -> tuple[list[list[int]], list[list[int]]]:
    """Sources, and targets that begin with the start token."""
    return rows(SOURCES), [[1, *target] for target in rows(TARGETS, seed=1)]


def moved(batch: list[list[int]]) -> Tokens:
    return pack([[ROWS.index(number) for number in row] for row in batch])


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_the_same(form: str) -> None:
    ours, (sources, targets) = our_transformer(**FORMS[form]), batches()
    marian = to_marian(ours, ROWS)
    assert isinstance(marian.config, MarianConfig)
    with torch.no_grad():
        expected = ours.vocabulary_scores(ours(pack(sources), pack(targets)))[:, ROWS]
        scores = marian.vocabulary_scores(marian(moved(sources), moved(targets)))
    close(scores[:, :-1], expected[:, :-1])
    assert float(scores[:, -1].max()) < NEVER / 2  # the start is never written


@pytest.mark.parametrize("form", FORMS)
def test_a_text_begins_the_same_token_by_token(form: str) -> None:
    ours = our_transformer(**FORMS[form])
    sources, _ = batches()
    written = torch.tensor([[1, 7, 8]] * len(sources))
    expected = stepped(ours, pack(sources), written)[..., ROWS]
    taken = torch.tensor([[ROWS.index(1), ROWS.index(7), ROWS.index(8)]] * len(sources))
    close(stepped(to_marian(ours, ROWS), moved(sources), taken)[..., :-1], expected[..., :-1])


def test_a_start_without_a_vector_is_a_row_of_zeros() -> None:
    zero, (sources, targets) = our_transformer(zero_start=True), batches()
    assert to_marian(zero, ROWS).body.token_embedding.weight[-1].count_nonzero() == 0
    assert to_marian(our_transformer(), ROWS).body.token_embedding.weight[-1].count_nonzero() > 0
    with torch.no_grad():
        before = zero(pack(sources), pack(targets))
        zero.body.token_embedding.weight[1] = 7.0
        close(zero(pack(sources), pack(targets)), before)
    zero(pack(sources), pack(targets)).sum().backward()
    assert zero.body.token_embedding.weight.grad is not None
    assert zero.body.token_embedding.weight.grad[1].count_nonzero() == 0


def test_what_marian_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"norm=pre .*post"):
        to_marian(our_transformer(norm="pre"), ROWS)
    with pytest.raises(ConfigError, match=r"norm_epsilon=0\.01"):
        to_marian(our_transformer(norm_epsilon=0.01), ROWS)
