"""Contiguous streams, carried state, and perplexity: every token is asked for once, with all that came before it."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from kinfolk.errors import InputError
from kinfolk.models.family import Model, family
from kinfolk.nn.packed import pack
from kinfolk.nn.state import CellState
from kinfolk.objectives.language_model import CarriedNextToken, ContiguousStreams, mean_loss
from support.tiny import close, our_lm, randomise

CPU = torch.device("cpu")


def stream(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(30) for _ in range(length)]


def test_two_lanes_of_nine_tokens_worked_by_hand() -> None:
    lanes = ContiguousStreams(list(range(10, 19)), batch_size=2, bptt_length=3)
    result = [[(item.ids, item.target, item.opens) for item in (lanes[n] for n in lanes.batch(k))] for k in range(3)]
    first = [([10, 11, 12], [11, 12, 13], True), ([14, 15, 16], [15, 16, 17], True)]
    assert result == [first, [([13], [14], False), ([17], [18], False)], first]
    assert (len(lanes), lanes.batches, lanes.steps(2.5), lanes.locate(3)) == (4, 2, 5, (1, 1))
    assert lanes[0].example == 0
    assert lanes[3].example == 7  # where it stands in the stream


@pytest.mark.parametrize(("tokens", "lanes", "length"), [(2, 1, 5), (23, 4, 3), (22, 4, 5), (24, 5, 2), (101, 7, 10)])
def test_every_token_but_the_first_is_asked_for_once_after_its_past(tokens: int, lanes: int, length: int) -> None:
    plan, text = ContiguousStreams(np.arange(tokens), lanes, length), range(tokens)
    asked = [token for item in plan for token in item.target]
    assert sorted(asked) == list(text)[1:]
    for lane in range(lanes):
        own = [plan[index] for index in range(lane, len(plan), lanes)]
        read = [token for item in own for token in item.ids]
        assert all(second == first + 1 for first, second in pairwise(read))
        assert [token + 1 for token in read] == [token for item in own for token in item.target]
        assert [item.opens for item in own] == [True] + [False] * (plan.batches - 1)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru_reset_before"])
def test_carried_lanes_give_the_loss_of_each_lane_as_a_whole(kind: str) -> None:
    model, objective, tokens = our_lm(kind=kind), CarriedNextToken(), stream(24)
    plan, total, count = ContiguousStreams(tokens, 4, 5), 0.0, 0.0
    state: CellState | None = None
    for step in range(plan.batches):
        batch = objective.prepare([plan[number] for number in plan.batch(step)], CPU)
        losses, state = objective.carry(model, batch, state)
        assert all(not piece.requires_grad for piece in state)
        total, count = total + float(losses["next_token"].detach()), count + batch.counts["next_token"]
    expected = 0.0
    for first, last in ((0, 6), (6, 12), (12, 18), (18, 23)):
        hidden = model(pack([tokens[first:last]]))
        wanted = torch.tensor(tokens[first + 1 : last + 1])
        expected += float(F.cross_entropy(model.vocabulary_scores(hidden), wanted, reduction="sum").detach())
    assert count == 23
    assert total == pytest.approx(expected, abs=1e-9)


def test_an_epoch_begins_with_nothing_remembered() -> None:
    model, objective, plan = our_lm(), CarriedNextToken(), ContiguousStreams(stream(20), 2, 4)
    batch = objective.prepare([plan[number] for number in plan.batch(0)], CPU)
    first, state = objective.carry(model, batch, None)
    again, after = objective.carry(model, batch, tuple(piece + 1 for piece in state))
    close(first["next_token"], again["next_token"])
    close(after, state)
    later = objective.prepare([plan[number] for number in plan.batch(1)], CPU)
    assert not objective.carry(model, later, state)[0]["next_token"].equal(objective.losses(model, later)["next_token"])


def test_gradients_stop_at_the_border_of_a_batch() -> None:
    model, objective, plan = our_lm(tied=False), CarriedNextToken(), ContiguousStreams(stream(9), 1, 4)
    first, second = (objective.prepare([plan[index]], CPU) for index in range(2))
    _, state = objective.carry(model, first, None)
    losses, _ = objective.carry(model, second, state)
    (table,) = torch.autograd.grad(losses["next_token"], [model.body.table.weight])
    only_read_before = sorted(set(first.tokens.ids.tolist()) - set(second.tokens.ids.tolist()))
    assert only_read_before
    assert not table[only_read_before].any()


@pytest.mark.parametrize("length", [1, 7, 512])
def test_each_token_is_scored_once_whatever_the_stretch(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = our_lm(), stream(40)
    hidden = model(pack([tokens[:-1]]))
    expected = float(F.cross_entropy(model.vocabulary_scores(hidden), torch.tensor(tokens[1:])).detach())
    monkeypatch.setattr("kinfolk.objectives.language_model.SCORED_LENGTH", length)
    assert mean_loss(model, tokens) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("overlap", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("count", [2, 8, 9, 10, 31, 40])
def test_a_model_with_a_context_scores_each_token_once_in_windows(count: int, overlap: float) -> None:
    """The definition, a window at a time: a token's window is the first that holds it."""
    config = family("gpt2").config.make(vocabulary_size=30, width=8, layers=2, heads=2, positions=8)
    model = randomise(Model(family("gpt2"), config)).double().eval()
    tokens, stride, losses = torch.tensor(stream(count)), max(1, round((1 - overlap) * 8)), {}
    for start in range(0, count, stride):
        window = tokens[start : start + 9]
        with torch.no_grad():
            scores = model.vocabulary_scores(model(pack([window[:-1].tolist()]))) if len(window) > 1 else []
        for index, row in enumerate(scores):
            losses.setdefault(start + index + 1, float(F.cross_entropy(row, window[index + 1])))
    assert len(losses) == count - 1
    assert mean_loss(model, tokens, overlap=overlap) == pytest.approx(sum(losses.values()) / len(losses), rel=1e-12)
    some = [losses[token] for token in losses if overlap == 0 and (token - 1) // 8 % 3 == 0]
    assert not some or mean_loss(model, tokens, overlap=0, every=3) == pytest.approx(sum(some) / len(some), rel=1e-12)


def test_a_model_that_knows_nothing_is_as_unsure_as_its_vocabulary_is_large() -> None:
    model = our_lm()
    with torch.no_grad():
        model.body.table.weight.zero_()
        model.heads["next_token"].bias.zero_()
    assert math.exp(mean_loss(model, np.array(stream(50)))) == pytest.approx(
        30.0
    )  # one tied table: all scores are zero


def test_a_stream_that_is_too_short_is_refused() -> None:
    with pytest.raises(InputError, match=r"3 tokens.*batch_size 3"):
        ContiguousStreams([1, 2, 3], batch_size=3, bptt_length=5)
    with pytest.raises(InputError, match="1 tokens"):
        mean_loss(our_lm(), [1])
