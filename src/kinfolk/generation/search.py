"""Greedy and beam search, and the loop of every one-text search, over the `start` and `step` of any model.

`generate` writes one text per sentence, token by token: greedy search and sampling are this loop with another choice of
the next token. Finished sentences leave the batch, and no result depends on batch mates.

Beam search keeps the `beams` likeliest open texts of each sentence. In each step every open text meets every token;
of these candidates the best `2 * beams` are looked at: those among the first `beams` that end are finished, and the
best `beams` that go on stay open. (One beam keeps no second choice, so it is greedy search.) Finished texts are
ranked by log-probability / penalty(tokens, end included).

When a sentence is done (`early_stopping`):

never     when `n_best` texts are finished and no open one can still beat the worst of them. A text's log-probability
          only falls as it grows, so an open one with log-probability L can reach at most L / (the largest penalty
          within reach: that of its maximum length for a positive alpha, of the next token for a negative one).
          A beam as wide as the number of all texts therefore finds the `n_best` best of all texts. Certainty costs
          some steps more than the other rules take.
heuristic when `beams` texts are finished and the best open one, penalised at its present length, is not better than
          the worst of them. This is transformers' early_stopping=False: with a positive alpha it may stop before a
          longer text that would have won.
full      as soon as `beams` texts are finished, the other open ones notwithstanding: early_stopping=True.

(transformers' "never" is ours with n_best = beams.) With "heuristic" or "full" and Penalty(alpha, "power") the results
are those of transformers' generate with num_beams, num_return_sequences = n_best, length_penalty = alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kinfolk.generation.beams import ActiveBeams, Finished, require_finite
from kinfolk.generation.config import Beam, Hypothesis, Request
from kinfolk.nn.state import StepModel, compaction_order

# log-probabilities (rows, vocabulary), sentence indices (rows,), length -> ids (rows,)
Choose = Callable[[Tensor, Tensor, int], Tensor]


def generate(model: StepModel[Any], request: Request, choose: Choose) -> list[Hypothesis]:
    """One text per sentence; `choose` picks the next token of each row."""
    constraints, ids = request.constraints, request.tensor(request.begins)
    max_lengths = request.tensor(request.max_lengths)
    alive = torch.arange(len(max_lengths), device=ids.device)
    written = ids.new_zeros(len(max_lengths), max(request.max_lengths, default=0))
    sums = torch.zeros(len(max_lengths), dtype=torch.float64, device=ids.device)
    lengths, finished = torch.zeros_like(max_lengths), torch.zeros_like(max_lengths, dtype=torch.bool)
    state = model.start(request.source, 1) if len(max_lengths) else None
    for length in range(1, written.shape[1] + 1):
        scores, state = model.step(ids, state)
        constraints.check(scores.shape[1])
        last = max_lengths[alive] == length
        log_probabilities = constraints.apply(scores, last)
        ids = choose(log_probabilities, alive, length)
        gains = log_probabilities.gather(1, ids.unsqueeze(1)).squeeze(1)
        require_finite(gains)
        sums[alive] += gains.double()
        written[alive, length - 1], lengths[alive], finished[alive] = ids, length, ids == constraints.end
        stays = (~(last | (ids == constraints.end))).nonzero().squeeze(1)
        if not len(stays):
            break
        if len(stays) < len(alive):
            stays = compaction_order(stays)
            alive, ids, state = alive[stays], ids[stays], state.keep(stays)
    texts = zip(written.tolist(), lengths.tolist(), finished.tolist(), sums.tolist(), strict=True)
    return [Hypothesis(row[: length - ended], total, total, ended) for row, length, ended, total in texts]


@torch.inference_mode()
def greedy(model: StepModel[Any], request: Request) -> list[Hypothesis]:
    """For each sentence the text that takes the likeliest token at every step."""
    return generate(model, request, lambda log_probabilities, sentences, length: log_probabilities.argmax(-1))


@torch.inference_mode()
def beam(model: StepModel[Any], request: Request, options: Beam | None = None) -> list[list[Hypothesis]]:
    """For each sentence its `n_best` texts, best first; fewer where the vocabulary allows no more."""
    options = options or Beam()
    finished = Finished(request, options.kept)
    if not request.max_lengths:
        return []
    state, texts = model.start(request.source, options.beams), ActiveBeams.start(request, options.beams)
    for length in range(1, max(request.max_lengths) + 1):
        scores, state = model.step(texts.last_ids.flatten(), state)
        request.constraints.check(scores.shape[1])
        candidates = texts.candidates(scores, request, length)
        ended = (candidates.ids == request.constraints.end) | (texts.max_lengths == length).unsqueeze(1)
        worst = finished.add(texts, candidates, ended[:, : options.beams], options.penalty.of(length), length)
        going = candidates.best_of(~ended, options.beams)
        stays = (~_done(going.sums[:, 0], worst, texts.max_lengths, length, options)).nonzero().squeeze(1)
        if not len(stays):
            break
        if len(stays) < len(going.sums):
            stays = compaction_order(stays)
            texts, going, state = texts.keep(stays), going.keep(stays), state.keep(stays)
        texts = texts.extend(going, length)
        sentences = torch.arange(len(going.parents), device=going.parents.device).unsqueeze(1)
        state = state.reorder((going.parents + options.beams * sentences).flatten())
    return finished.results(options.n_best)


def _done(open_best: Tensor, worst: Tensor, max_lengths: Tensor, length: int, options: Beam) -> Tensor:
    """(sentences,): which are done, from the log-probability of the best open text and the worst score kept of each."""
    nothing_open = open_best == -math.inf
    if options.early_stopping == "full":
        return nothing_open | (worst > -math.inf)
    reach = torch.full_like(worst, options.penalty.of(length))
    if options.early_stopping == "never":
        reach = options.penalty(max_lengths).clamp(min=options.penalty.of(length + 1))
    return nothing_open | (open_best / reach <= worst)
