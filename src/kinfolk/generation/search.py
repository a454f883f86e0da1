"""Greedy and beam search, written once over the state of any model that writes.

Beam search keeps the `beams` likeliest open texts of each sentence. In each step every open text meets every token;
of these candidates the best `2 * beams` are looked at: those among the first `beams` that end are finished, and the
best `beams` that go on stay open. (One beam keeps no second choice, so it is greedy search.) Finished texts are
ranked by log-probability / penalty(tokens, end included).

When a sentence is done (`stop`):

exact     when `best` texts are finished and no open one can still beat the worst of them. A text's log-probability
          only falls as it grows, so an open one with log-probability L can reach at most L / (the largest penalty
          within reach: that of its greatest length for a positive alpha, of the next token for a negative one).
          A beam as wide as the number of all texts therefore finds the best `best` of all texts. Certainty costs
          some steps more than the other rules take.
present   when `beams` texts are finished and the best open one, penalised at its present length, is not better than
          the worst of them. This is transformers' early_stopping=False: with a positive alpha it may stop before a
          longer text that would have won.
full      as soon as `beams` texts are finished, the other open ones notwithstanding: early_stopping=True.

(early_stopping="never" is `exact` with best = beams.) With stop="present" or "full" and Penalty(alpha, "power") the
results are those of transformers' generate with num_beams, num_return_sequences = best, length_penalty = alpha.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kinfolk.errors import InputError, check_choice, check_number
from kinfolk.generation.beams import ActiveBeams, Finished
from kinfolk.generation.constraints import Hypothesis, Request, one_by_one
from kinfolk.nn.state import StepModel, compaction_order

PENALTIES = ("gnmt", "power")
STOPS = ("exact", "present", "full")
LARGEST_ALPHA = 10  # beyond, penalties of long texts leave the range of numbers


@dataclass(frozen=True)
class Penalty:
    """What the log-probability of a text of n tokens is divided by: ((5 + n) / 6)^alpha (gnmt) or n^alpha (power).

    gnmt: Wu et al. 2016, equation 14. Larger alphas favour longer texts; 0 ranks by log-probability alone.
    """

    alpha: float = 0.6
    kind: str = "gnmt"

    def __post_init__(self) -> None:
        check_choice("penalty", self.kind, PENALTIES)
        told = f"from -{LARGEST_ALPHA} to {LARGEST_ALPHA}"
        check_number("length_penalty", self.alpha, -LARGEST_ALPHA, LARGEST_ALPHA, told, inclusive=True)

    def __call__(self, lengths: Tensor) -> Tensor:
        base = (5.0 + lengths.double()) / 6.0 if self.kind == "gnmt" else lengths.double()
        return base**self.alpha

    def of(self, length: int) -> float:
        """The penalty of one length."""
        return self(torch.tensor(length)).item()


@dataclass(frozen=True)
class Beam:
    """How wide to search, how many texts to return, how to rank them and when to stop (see the top of the file)."""

    beams: int = 4
    best: int = 1
    penalty: Penalty = field(default_factory=Penalty)
    stop: str = "exact"

    def __post_init__(self) -> None:
        check_choice("stop", self.stop, STOPS)
        if not 1 <= self.best <= self.beams:
            raise InputError(f"cannot give the best {self.best} of {self.beams} beams; at least 1, at most the beams")

    @property
    def kept(self) -> int:
        """How many finished texts a sentence must have before it can be done."""
        return self.best if self.stop == "exact" else self.beams


@torch.inference_mode()
def greedy(model: StepModel[Any], request: Request) -> list[Hypothesis]:
    """For each sentence the text that takes the likeliest token at every step."""
    return one_by_one(model, request, lambda likely, sentences, length: likely.argmax(-1))


@torch.inference_mode()
def beam(model: StepModel[Any], request: Request, options: Beam | None = None) -> list[list[Hypothesis]]:
    """For each sentence its `best` texts, best first; fewer where the vocabulary allows no more."""
    options = options or Beam()
    finished = Finished(request, options.kept)
    if not request.longest:
        return []
    state, texts = model.start(request.source, options.beams), ActiveBeams.start(request, options.beams)
    for length in range(1, max(request.longest) + 1):
        scores, state = model.step(texts.last_ids.flatten(), state)
        request.rules.check(scores.shape[1])
        candidates = texts.candidates(scores, request, length)
        ended = (candidates.ids == request.rules.end) | (texts.longest == length).unsqueeze(1)
        worst = finished.add(texts, candidates, ended[:, : options.beams], options.penalty.of(length), length)
        going = candidates.best_of(~ended, options.beams)
        stays = (~_done(going.sums[:, 0], worst, texts.longest, length, options)).nonzero().squeeze(1)
        if not len(stays):
            break
        if len(stays) < len(going.sums):
            stays = compaction_order(stays)
            texts, going, state = texts.keep(stays), going.keep(stays), state.keep(stays)
        texts = texts.extend(going, length)
        state = state.reorder(_rows(going.parents))
    return finished.results(options.best)


def _done(open_best: Tensor, worst: Tensor, longest: Tensor, length: int, options: Beam) -> Tensor:
    """(sentences,): which are done, from the log-probability of the best open text and the worst score kept of each."""
    nothing_open = open_best == -math.inf
    if options.stop == "full":
        return nothing_open | (worst > -math.inf)
    reach = torch.full_like(worst, options.penalty.of(length))
    if options.stop == "exact":
        reach = options.penalty(longest).clamp(min=options.penalty.of(length + 1))
    return nothing_open | (open_best / reach <= worst)


def _rows(parents: Tensor) -> Tensor:
    """(sentences, beams) numbers within each sentence -> (rows,) numbers within the batch."""
    sentences, beams = parents.shape
    return (parents + beams * torch.arange(sentences, device=parents.device).unsqueeze(1)).flatten()
