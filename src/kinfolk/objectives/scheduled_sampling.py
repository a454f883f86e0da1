"""Scheduled sampling: during training, a decoder reads its own predictions ever more often instead of the true target.

    true target     start  the  cat  sat             teacher forcing: all of it is read, probability 0
    predictions            a    cat  is              what was predicted for each position
    read            start  a    cat  sat             each position tosses a coin; probability 1 reads no truth at all

At inference a model reads what it wrote; under teacher forcing it has never met its own mistakes. The probability of
reading a prediction rises over the run, from 0 to `maximum`, by the share s of the run that is done:

    linear     maximum s
    sigmoid    maximum / (1 + exp(-12 (s - 1/2)))    Bengio et al. 2015's k / (k + exp(i / k)), its middle in mid-run
    constant   maximum

Where the predictions come from (`mode`):

two-pass    the first pass over the whole target, without gradients, reads the truth and predicts every token; the
            second reads the mixture (Mihaylova and Martins 2019). Works for every model, and in parallel; but each
            prediction was made after the true tokens before it, so probability 1 is not quite free running.
step-wise   token by token, each prediction made after what was really read: the definition, and at probability 1 free
            running. Only for bodies with `differentiable_steps` (the recurrent ones).

Predictions are the most probable tokens; no gradient flows through them. Coins come from torch's generator, which the
trainer seeds at every step. A model in evaluation mode reads the truth.
Paper: Bengio et al. 2015, "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from kinfolk.errors import InputError, check_choice, check_number
from kinfolk.nn.losses import MAX_SCORES
from kinfolk.nn.packed import Tokens
from kinfolk.nn.recurrent import Steps
from kinfolk.objectives.translation import PairBatch, Translation

SCHEDULES = ("linear", "sigmoid", "constant")
MODES = ("two-pass", "step-wise")
STEEPNESS = 12.0


@dataclass(frozen=True)
class SamplingSchedule:
    """The final probability of reading a prediction, how it rises, and where predictions come from (see above)."""

    maximum: float
    schedule: str = "linear"
    mode: str = "two-pass"

    def __post_init__(self) -> None:
        check_choice("sampling_schedule", self.schedule, SCHEDULES)
        check_choice("sampling_mode", self.mode, MODES)
        check_number("scheduled_sampling", self.maximum, 0, 1, "a probability from 0 to 1", inclusive=True)
        if self.maximum == 0 and (self.schedule, self.mode) != ("linear", "two-pass"):
            raise InputError("sampling_schedule and sampling_mode need scheduled_sampling above 0")

    def probability(self, share: float) -> float:
        """Of reading a prediction, when this share of the run is done."""
        if self.schedule == "sigmoid":
            return self.maximum / (1 + math.exp(-STEEPNESS * (share - 0.5)))
        return self.maximum * (share if self.schedule == "linear" else 1.0)


@dataclass(frozen=True)
class ScheduledTranslation(Translation):
    """The loss of translation, of targets that are partly the model's own; `share` of the run is done."""

    sampling: SamplingSchedule = SamplingSchedule(0.5)
    share: float = 0.0

    def at(self, step: int, total: int) -> Self:
        """The objective of step number `step`, from 0, of `total`."""
        return replace(self, share=step / total)

    @property
    def probability(self) -> float:
        """Of reading a prediction."""
        return self.sampling.probability(self.share)

    def hidden(self, model: Any, batch: PairBatch) -> Tensor:
        if not model.training or self.probability == 0:
            return super().hidden(model, batch)
        coins = torch.rand(batch.targets.shape, device=batch.targets.device) < self.probability
        if self.sampling.mode == "step-wise":
            return _step_wise(model, batch, coins)
        vectors: Tensor = model(batch.tokens, _mixed(model, batch, coins))
        return vectors


@torch.no_grad()
def _mixed(model: Any, batch: PairBatch, coins: Tensor) -> Tokens:
    """What the second pass reads."""
    truth = batch.shifted
    hidden = model(batch.tokens, truth)
    size = max(1, MAX_SCORES // model.config.target_vocabulary)
    predictions = torch.cat([model.vocabulary_scores(rows).argmax(-1) for rows in torch.split(hidden, size)])
    # The prediction made at one position is read at the next; the start token is never replaced.
    replaced = coins & (truth.layout.positions > 0)
    return Tokens(torch.where(replaced, predictions.roll(1), truth.ids), truth.layout)


def _step_wise(model: Any, batch: PairBatch, coins: Tensor) -> Tensor:
    """Vectors (m, width) of targets of which each token is read when the one before it has been predicted."""
    assert model.body.differentiable_steps, "others are refused before training begins"
    steps = Steps.of(batch.shifted.layout)
    sizes = steps.sizes.tolist()
    state, vectors, predictions = model.body.start(batch.tokens).keep(steps.sorted), [], None
    read = [torch.split(rows[steps.order], sizes) for rows in (batch.shifted.ids, coins)]
    for truth, replaced in zip(*read, strict=True):
        ids = truth
        if predictions is not None:
            if len(truth) < len(predictions):  # the shortest targets have ended
                state = state.keep(torch.arange(len(truth), device=truth.device))
            ids = torch.where(replaced, predictions[: len(truth)], truth)
        hidden, state = model.body.step(ids, state)
        vectors.append(hidden)
        with torch.no_grad():
            predictions = model.vocabulary_scores(hidden).argmax(-1)
    return torch.cat(vectors)[steps.back]
