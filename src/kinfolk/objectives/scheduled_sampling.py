"""Scheduled sampling: while it learns, a decoder reads its own guesses ever more often instead of the true target.

    true target     start  the  cat  sat             teacher forcing: all of it is read, chance 0
    own guesses            a    cat  is              what was guessed for each place
    read            start  a    cat  sat             each place tosses a coin; chance 1 reads no truth at all

When it writes, a model reads what it wrote; under teacher forcing it has never met its own mistakes. The chance of an
own guess rises over the run, from 0 to `most`, by the share s of the run that is behind:

    linear     most s
    sigmoid    most / (1 + exp(-12 (s - 1/2)))       Bengio et al. 2015's k / (k + exp(i / k)), its middle in mid-run
    constant   most

Where the guesses come from (`way`):

passes   two passes over the whole target: the first, without gradients, reads the truth and guesses every token, the
         second reads the mixture (Mihaylova and Martins 2019). Works for every model, and in parallel; but each guess
         was made after the true tokens before it, so chance 1 is not quite free running.
steps    token by token, each guess made after what was really read: the definition, and at chance 1 free running. Only
         for models that can `advance` (the recurrent ones).

Guesses are the likeliest tokens; no gradient flows through them. Coins come from torch's generator, which the trainer
seeds at every step. A model that is judged, not trained, reads the truth.
Paper: Bengio et al. 2015, "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from kinfolk.errors import InputError, check_choice, check_number
from kinfolk.nn.losses import MAX_SCORES, chunked_cross_entropy
from kinfolk.nn.packed import Tokens
from kinfolk.nn.recurrent import Steps
from kinfolk.objectives.objective import Batch
from kinfolk.objectives.translation import PairBatch, Translation

SCHEDULES = ("linear", "sigmoid", "constant")
WAYS = ("passes", "steps")
STEEPNESS = 12.0


@dataclass(frozen=True)
class SamplingSchedule:
    """How far a decoder is left to itself while it learns: the greatest chance of an own guess, and the words above."""

    most: float
    schedule: str = "linear"
    way: str = "passes"

    def __post_init__(self) -> None:
        check_choice("sampling_schedule", self.schedule, SCHEDULES)
        check_choice("sampling_way", self.way, WAYS)
        check_number("scheduled_sampling", self.most, 0, 1, "a chance from 0 to 1", inclusive=True)
        if self.most == 0 and (self.schedule, self.way) != ("linear", "passes"):
            raise InputError("sampling_schedule and sampling_way say how guesses are read: give scheduled_sampling too")


@runtime_checkable
class Advancing(Protocol):
    """A model that can go on by one token with gradients."""

    def begin(self, source: Tokens, beams: int = 1) -> Any:
        """The state before the first token."""

    def advance(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Each row's last token (rows,) -> the vectors that `scores` reads, and the state after it."""


@dataclass(frozen=True)
class ScheduledTranslation(Translation):
    """The loss of translation, of targets that are partly the model's own; `share` is how far the run has come."""

    sampling: SamplingSchedule = SamplingSchedule(0.5)
    share: float = 0.0

    def at(self, step: int, total: int) -> Self:
        """The objective of step number `step`, from 0, of `total`."""
        return replace(self, share=step / total)

    @property
    def chance(self) -> float:
        """Of reading an own guess."""
        plan = self.sampling
        if plan.schedule == "sigmoid":
            return plan.most / (1 + math.exp(-STEEPNESS * (self.share - 0.5)))
        return plan.most * (self.share if plan.schedule == "linear" else 1.0)

    def loss(self, model: Any, prepared: Batch) -> Tensor:
        assert isinstance(prepared, PairBatch)
        if not model.training or self.chance == 0:
            return super().loss(model, prepared)
        coins = torch.rand(prepared.targets.shape, device=prepared.targets.device) < self.chance
        if self.sampling.way == "steps":
            hidden = _step_by_step(model, prepared, coins)
        else:
            hidden = model(prepared.tokens, _mixed(model, prepared, coins))
        return chunked_cross_entropy(hidden, model.output_table, model.output_bias, prepared.targets, self.smoothing)


@torch.no_grad()
def _mixed(model: Any, prepared: PairBatch, coins: Tensor) -> Tokens:
    """What the second pass reads."""
    truth = prepared.shifted
    hidden = model(prepared.tokens, truth)
    size = max(1, MAX_SCORES // len(model.output_table))
    guesses = torch.cat([model.scores(rows).argmax(-1) for rows in torch.split(hidden, size)])
    # The guess that was made at one place is read at the next; the start token is nobody's guess.
    own = coins & (truth.layout.positions > 0)
    return Tokens(torch.where(own, guesses.roll(1), truth.ids), truth.layout)


def _step_by_step(model: Any, prepared: PairBatch, coins: Tensor) -> Tensor:
    """Vectors (m, width) of targets of which each token is read when the one before it has been guessed."""
    assert isinstance(model, Advancing), "jobs refuse others before they begin"
    steps = Steps.of(prepared.shifted.layout)
    sizes = steps.sizes.tolist()
    state, vectors, guesses = model.begin(prepared.tokens).keep(steps.sorted), [], None
    read = [torch.split(rows[steps.order], sizes) for rows in (prepared.shifted.ids, coins)]
    for truth, own in zip(*read, strict=True):
        ids = truth
        if guesses is not None:
            if len(truth) < len(guesses):  # the shortest targets have ended
                state = state.keep(torch.arange(len(truth), device=truth.device))
            ids = torch.where(own, guesses[: len(truth)], truth)
        hidden, state = model.advance(ids, state)
        vectors.append(hidden)
        with torch.no_grad():
            guesses = model.scores(hidden).argmax(-1)  # type: ignore[attr-defined]
    return torch.cat(vectors)[steps.back]
