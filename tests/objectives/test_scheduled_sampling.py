"""Scheduled sampling: what is read at which chance, and that a loop of steps is what the formula says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.errors import InputError
from kinfolk.nn.packed import Tokens, pack
from kinfolk.objectives.translation import MODES, SamplingSchedule, ScheduledTranslation, Translate, pair_sample
from support.tiny import RECURRENTS as VARIANTS
from support.tiny import SOURCES, TARGETS, close, our_seq2seq, our_transformer, rows

CPU = torch.device("cpu")
ITEMS = [
    pair_sample(source, target, index)
    for index, (source, target) in enumerate(zip(rows(SOURCES), rows(TARGETS, seed=1), strict=True))
]
ALWAYS = ScheduledTranslation(1, smoothing=0.0, sampling=SamplingSchedule(1.0, "constant"))
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def sampled(**changes: Any) -> ScheduledTranslation:
    return replace(ALWAYS, sampling=replace(ALWAYS.sampling, **changes))


def learning(**settings: Any) -> Any:
    """A model that is being trained, without dropout."""
    return our_seq2seq(**settings | {"dropout": 0.0}).train()


def free_running(model: Any, source: list[int], target: list[int]) -> Tensor:
    """The loss of one target when every token that is read is the model's own guess: the definition."""
    state, ids, total = model.body.start(pack([source])), torch.tensor([1]), torch.zeros((), dtype=torch.float64)
    for wanted in target:
        hidden, state = model.body.step(ids, state)
        scores = model.vocabulary_scores(hidden)
        total = total + F.cross_entropy(scores, torch.tensor([wanted]))
        ids = scores.argmax(-1)
    return total


def test_the_chance_rises_over_the_run() -> None:
    linear, curve = (ScheduledTranslation(1, sampling=SamplingSchedule(0.8, way)) for way in ("linear", "sigmoid"))
    assert [linear.at(step, 4).probability for step in range(5)] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    chances = [curve.at(step, 4).probability for step in range(5)]
    assert chances == sorted(chances)
    assert chances[2] == pytest.approx(0.4)
    assert chances[0] < 0.003 < 0.797 < chances[4]
    assert ALWAYS.at(0, 9).probability == 1.0


@every_variant
def test_a_loop_of_steps_at_chance_one_is_free_running_and_learns_as_such(variant: str) -> None:
    model, objective = learning(**VARIANTS[variant]), sampled(mode="step-wise")
    weights = list(model.parameters())
    actual = objective.losses(model, objective.prepare(ITEMS, CPU))["translate"]
    expected = torch.stack([free_running(model, item.ids, item.target) for item in ITEMS]).sum()
    close(actual, expected)
    close(torch.autograd.grad(actual, weights), torch.autograd.grad(expected, weights))


@every_variant
def test_a_loop_of_steps_that_reads_the_truth_is_teacher_forcing(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, objective = learning(**VARIANTS[variant]), sampled(mode="step-wise")
    monkeypatch.setattr(torch, "rand", lambda shape, device: torch.ones(shape, device=device))  # every coin says no
    result = objective.losses(model, objective.prepare(ITEMS, CPU))["translate"]
    plain = Translate(1, smoothing=0.0)
    close(result, plain.losses(model, plain.prepare(ITEMS, CPU))["translate"])


@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_two_passes_read_the_guesses_of_the_first(kind: str) -> None:
    model: Any = learning() if kind == "recurrent" else our_transformer(dropout=0.0).train()
    batch = ALWAYS.prepare(ITEMS, CPU)
    with torch.no_grad():
        guesses = model.vocabulary_scores(model(batch.tokens, batch.shifted)).argmax(-1)
    read = [[1, *own.tolist()[:-1]] for own in batch.shifted.layout.split(guesses)]
    scores = model.vocabulary_scores(model(batch.tokens, pack(read)))
    close(ALWAYS.losses(model, batch)["translate"], F.cross_entropy(scores, batch.targets, reduction="sum"))


@pytest.mark.parametrize("mode", MODES)
def test_between_the_ends_tokens_are_mixed_by_the_seed_alone(mode: str) -> None:
    model, objective = learning(score="bilinear"), sampled(maximum=0.5, mode=mode)
    batch = objective.prepare(ITEMS, CPU)

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        return float(objective.losses(model, batch)["translate"].detach())

    assert loss(1) == loss(1)
    assert loss(1) != loss(2)


def test_the_start_token_is_never_replaced_and_half_of_the_others_is() -> None:
    model, objective, seen = learning(), sampled(maximum=0.5), []
    items = [pair_sample([3, 4], [7] * 50, 0) for _ in range(20)]
    batch = objective.prepare(items, CPU)

    def watched(module: Any, replaced: tuple[Tokens, Tokens]) -> None:
        seen.append(replaced[1].ids.view(20, 50))

    with torch.no_grad():
        model.heads["next_token"].bias[9] = 100.0  # the guess is always 9
    model.register_forward_pre_hook(watched)
    torch.manual_seed(0)
    objective.losses(model, batch)["translate"]
    truth, mixed = seen
    assert truth.tolist() == [[1] + [7] * 49] * 20
    assert mixed[:, 0].tolist() == [1] * 20
    assert set(mixed[:, 1:].unique().tolist()) == {7, 9}
    assert 0.45 < float((mixed[:, 1:] == 9).double().mean()) < 0.55


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_is_evaluated_reads_the_truth(mode: str) -> None:
    model, plain = learning().eval(), Translate(1, smoothing=0.0)
    batch = plain.prepare(ITEMS, CPU)
    assert sampled(mode=mode).losses(model, batch)["translate"].equal(plain.losses(model, batch)["translate"])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match=r"scheduled_sampling=1\.5"):
        SamplingSchedule(1.5)
    with pytest.raises(InputError, match="sampling_schedule='cosine'"):
        SamplingSchedule(0.5, "cosine")
