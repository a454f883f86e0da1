"""The loss of translation: each token of a target, given its source and the target's tokens before it.

    loss = sum over target tokens of  (1 - e) (-log p_y) + e mean over v of (-log p_v)

Teacher forcing: the model reads the target shifted right behind the start token, so the vector at position t predicts
token t. Label smoothing e is 0.1 in Vaswani et al. 2017, section 5.4 (nn/heads.py has the computation).

Scheduled sampling (Bengio et al. 2015): while training, a decoder reads its own predictions ever more often instead of
the true target, which it will not have at inference.

    true target     start  the  cat  sat             teacher forcing: all of it is read, probability 0
    predictions            a    cat  is              what was predicted for each position
    read            start  a    cat  sat             each position tosses a coin; probability 1 reads no truth at all

The probability of reading a prediction rises from 0 to `maximum`, by the share s of the run that is done:

    linear     maximum s
    sigmoid    maximum / (1 + exp(-12 (s - 1/2)))    the paper's k / (k + exp(i / k)), its middle in mid-run
    constant   maximum

Where the predictions come from (`mode`):

two-pass    a first pass over the whole target, without gradients, reads the truth and predicts every token; the second
            reads the mixture (Mihaylova and Martins 2019). For every model; but no prediction follows another.
step-wise   token by token, each prediction made after what was really read: the definition, for bodies with
            `differentiable_steps` (the recurrent ones)

Predictions are the most probable tokens; no gradient flows through them. A model in evaluation mode reads the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from kinfolk.errors import InputError, check_choice, check_number
from kinfolk.nn.heads import MAX_SCORES
from kinfolk.nn.packed import Tokens, pack
from kinfolk.nn.recurrent import Steps
from kinfolk.objectives.objective import Batch, Objective, Sample

SCHEDULES = ("linear", "sigmoid", "constant")
MODES = ("two-pass", "step-wise")
STEEPNESS = 12.0


@dataclass(frozen=True, slots=True)
class PairSample(Sample):
    """A source (`ids`) and its `target`, a list of ids that ends with the end token; the length is that of both."""

    def __len__(self) -> int:
        return len(self.ids) + len(self.target)


def pair_sample(source: list[int], target: list[int], example: int) -> PairSample:
    return PairSample(source, [], target, example)


@dataclass(frozen=True)
class PairBatch(Batch):
    """`tokens` are the sources, `targets` what is predicted (m,), and `shifted` what the decoder reads."""

    shifted: Tokens


@dataclass(frozen=True)
class Translate(Objective):
    """`start_id` stands before each target; `smoothing` is e."""

    start_id: int
    smoothing: float = 0.1
    head: str = "translate"
    sorts_by_length = True

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> PairBatch:
        targets = pack([sample.target for sample in samples], device=device)
        assert min(targets.layout.lengths, default=1) > 0, "a target ends with its end token"
        shifted = targets.ids.roll(1)
        shifted[torch.tensor(targets.layout.starts, dtype=torch.long, device=device)] = self.start_id
        source = pack([sample.ids for sample in samples], device=device)
        counts = {self.head: float(targets.layout.tokens)}
        return PairBatch(source, targets.ids, counts, Tokens(shifted, targets.layout))

    def losses(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        assert isinstance(batch, PairBatch)
        hidden = self.hidden(model, batch)
        return {self.head: model.vocabulary_loss(hidden, batch.targets, self.smoothing)}

    def hidden(self, model: Any, batch: PairBatch) -> Tensor:
        return model(batch.tokens, batch.shifted)  # type: ignore[no-any-return]

    def scores(self, model: Any, batch: Batch) -> Tensor:
        assert isinstance(batch, PairBatch)
        return model.vocabulary_scores(model(batch.tokens, batch.shifted))  # type: ignore[no-any-return]


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
        if self.schedule == "sigmoid":
            return self.maximum / (1 + math.exp(-STEEPNESS * (share - 0.5)))
        return self.maximum * (share if self.schedule == "linear" else 1.0)


@dataclass(frozen=True)
class ScheduledTranslation(Translate):
    """The loss of translation, of targets that are partly the model's own; `share` of the run is done."""

    sampling: SamplingSchedule = SamplingSchedule(0.5)
    share: float = 0.0

    def at(self, step: float, total: int) -> Self:
        return replace(self, share=step / total)

    @property
    def probability(self) -> float:
        return self.sampling.probability(self.share)

    def hidden(self, model: Any, batch: PairBatch) -> Tensor:
        if not model.training or self.probability == 0:
            return super().hidden(model, batch)
        coins = torch.rand(batch.targets.shape, device=batch.targets.device) < self.probability
        if self.sampling.mode == "step-wise":
            return _step_wise(model, batch, coins)
        return model(batch.tokens, _mixed(model, batch, coins))  # type: ignore[no-any-return]


@torch.no_grad()
def _mixed(model: Any, batch: PairBatch, coins: Tensor) -> Tokens:
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
