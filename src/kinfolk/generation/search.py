"""Greedy and beam search, and the loop of every one-text search, over the `start` and `step` of any model.

Greedy search and sampling are one loop with another choice of the next token. Finished sentences leave the batch, and
no result depends on batch mates.

Beam search looks at the best `2 * beams` continuations of each sentence: those among the first `beams` that end are
finished, and the best `beams` that go on stay open. (One beam keeps no second choice, so it is greedy search.) Finished
texts are ranked by log-probability / penalty(tokens, end included). When a sentence is done (`early_stopping`):

never     when `n_best` texts are finished and no open one can still beat the worst of them: its log-probability only
          falls, and its penalty is at most that of its maximum length (with a negative alpha, of the next token).
heuristic when `beams` texts are finished and the best open one, penalised at its present length, is not better than
          the worst of them: transformers' early_stopping=False, which may stop before a longer text that would win.
full      as soon as `beams` texts are finished: early_stopping=True.

(transformers' "never" is ours with n_best = beams.) With "heuristic" or "full" and Penalty(alpha, "power") the results
are those of transformers' generate with num_beams, num_return_sequences = n_best, length_penalty = alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from kinfolk.errors import WeightsError
from kinfolk.generation.config import Beam, Hypothesis, Request
from kinfolk.models.family import Model
from kinfolk.nn.state import compaction_order

# Picks the next token of each row: log-probabilities (rows, vocabulary), sentences (rows,), length -> ids (rows,).
Choose = Callable[[Tensor, Tensor, int], Tensor]


def steps(model: Model, request: Request, choose: Choose) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """One token more of every open text until all have ended: sentences, tokens, log-probabilities, (rows,) each."""
    constraints, ids = request.constraints, request.tensor(request.begins)
    max_lengths = request.tensor(request.max_lengths)
    alive = torch.arange(len(max_lengths), device=ids.device)
    state = model.start(request.source, 1) if len(max_lengths) else None
    for length in range(1, max(request.max_lengths, default=0) + 1):
        scores, state = model.step(ids, state)
        constraints.check(scores.shape[1])
        last = max_lengths[alive] == length
        log_probabilities = constraints.apply(scores, last)
        ids = choose(log_probabilities, alive, length)
        gains = log_probabilities.gather(1, ids.unsqueeze(1)).squeeze(1)
        _require_finite(gains)
        yield alive, ids, gains
        stays = (~(last | (ids == constraints.end))).nonzero().squeeze(1)
        if not len(stays):
            break
        if len(stays) < len(alive):
            stays = compaction_order(stays)
            alive, ids, state = alive[stays], ids[stays], state.keep(stays)


def generate(model: Model, request: Request, choose: Choose) -> list[Hypothesis]:
    max_lengths = request.tensor(request.max_lengths)
    written = max_lengths.new_zeros(len(max_lengths), max(request.max_lengths, default=0))
    sums = torch.zeros(len(max_lengths), dtype=torch.float64, device=written.device)
    lengths, finished = torch.zeros_like(max_lengths), torch.zeros_like(max_lengths, dtype=torch.bool)
    for index, (sentences, ids, gains) in enumerate(steps(model, request, choose)):
        sums[sentences] += gains.double()
        written[sentences, index], lengths[sentences] = ids, index + 1
        finished[sentences] = ids == request.constraints.end
    texts = zip(written.tolist(), lengths.tolist(), finished.tolist(), sums.tolist(), strict=True)
    return [Hypothesis(row[: length - ended], total, total, ended) for row, length, ended, total in texts]


@torch.inference_mode()
def greedy(model: Model, request: Request) -> list[Hypothesis]:
    """For each sentence the text that takes the likeliest token at every step."""
    return generate(model, request, lambda log_probabilities, sentences, length: log_probabilities.argmax(-1))


@torch.inference_mode()
def beam(model: Model, request: Request, options: Beam | None = None) -> list[list[Hypothesis]]:
    """For each sentence its `n_best` texts, best first; fewer where the vocabulary allows no more."""
    options = options or Beam()
    # So many finished texts a sentence must have before it can be done:
    finished = _Finished(request, options.n_best if options.early_stopping == "never" else options.beams)
    if not request.max_lengths:
        return []
    state, texts = model.start(request.source, options.beams), _ActiveBeams.start(request, options.beams)
    for length in range(1, max(request.max_lengths) + 1):
        scores, state = model.step(texts.last_ids.flatten(), state)
        request.constraints.check(scores.shape[1])
        candidates = texts.candidates(scores, request, length)
        ended = (candidates.ids == request.constraints.end) | (texts.max_lengths == length).unsqueeze(1)
        worst = finished.add(texts, candidates, ended[:, : options.beams], options.penalty.of(length), length)
        sums, indices = candidates.sums.masked_fill(ended, -math.inf).topk(options.beams)
        going = _Candidates(sums, candidates.ids.gather(1, indices), candidates.parents.gather(1, indices))
        stays = (~_done(going.sums[:, 0], worst, texts.max_lengths, length, options)).nonzero().squeeze(1)
        if not len(stays):
            break
        if len(stays) < len(going.sums):
            stays = compaction_order(stays)
            state = state.keep(stays)
            texts = _ActiveBeams(*(part[stays] for part in texts))
            going = _Candidates(*(part[stays] for part in going))
        texts = texts.extend(going, length)
        sentences = torch.arange(len(going.parents), device=going.parents.device).unsqueeze(1)
        state = state.reorder((going.parents + options.beams * sentences).flatten())
    return [sorted(own, key=lambda text: -text.score)[: options.n_best] for own in finished.texts]


def _done(open_best: Tensor, worst: Tensor, max_lengths: Tensor, length: int, options: Beam) -> Tensor:
    """(sentences,): which are done, from the log-probability of the best open text and the worst score kept of each."""
    nothing_open = open_best == -math.inf
    if options.early_stopping == "full":
        return nothing_open | (worst > -math.inf)
    reach = torch.full_like(worst, options.penalty.of(length))
    if options.early_stopping == "never":
        reach = options.penalty(max_lengths).clamp(min=options.penalty.of(length + 1))
    return nothing_open | (open_best / reach <= worst)


class _Candidates(NamedTuple):
    """Possible next texts of each sentence, best first: (sentences, candidates) each."""

    sums: Tensor  # log-probabilities; minus infinity for what is impossible
    ids: Tensor  # the new token
    parents: Tensor  # which open text of the sentence it continues


class _ActiveBeams(NamedTuple):
    """The open texts of the sentences that are not done."""

    sentences: Tensor  # (sentences,): their indices in the request
    max_lengths: Tensor  # (sentences,)
    sums: Tensor  # (sentences, beams): log-probabilities
    last_ids: Tensor  # (sentences, beams): what to feed next
    ids: Tensor  # (sentences, beams, longest): what is written

    @classmethod
    def start(cls, request: Request, beams: int) -> _ActiveBeams:
        max_lengths, first = request.tensor(request.max_lengths), request.tensor(request.begins)
        ids = max_lengths.new_zeros(len(max_lengths), beams, max(request.max_lengths))
        sums = torch.full(ids.shape[:2], -math.inf, dtype=torch.float64, device=ids.device)
        sums[:, 0] = 0.0  # all beams begin alike: only one may be continued
        sentences = torch.arange(len(max_lengths), device=ids.device)
        return cls(sentences, max_lengths, sums, first.unsqueeze(1).expand(-1, beams), ids)

    def candidates(self, scores: Tensor, request: Request, length: int) -> _Candidates:
        """The best continuations of each sentence: of each row first, then of these, so that few numbers are added."""
        sentences, beams = self.sums.shape
        wanted = 2 * beams if beams > 1 else 1
        log_probabilities = request.constraints.apply(scores, (self.max_lengths == length).repeat_interleave(beams))
        best, ids = log_probabilities.topk(min(wanted, log_probabilities.shape[1]))  # (rows, few)
        few = best.shape[1]
        sums = best.double() + self.sums.view(-1, 1)
        sums, indices = sums.view(sentences, beams * few).topk(wanted)
        _require_finite(sums[:, 0])
        return _Candidates(sums, ids.view(sentences, -1).gather(1, indices), indices // few)

    def extend(self, going: _Candidates, length: int) -> _ActiveBeams:
        own = torch.arange(len(going.ids), device=going.ids.device).unsqueeze(1)
        ids = self.ids[own, going.parents]
        ids[:, :, length - 1] = going.ids
        return self._replace(sums=going.sums, last_ids=going.ids, ids=ids)


class _Finished:
    def __init__(self, request: Request, kept: int):
        self.end = request.constraints.end
        sentences, device = len(request.max_lengths), request.source.ids.device
        self.scores = torch.full((sentences, kept), -math.inf, dtype=torch.float64, device=device)  # best first
        self.texts: list[list[Hypothesis]] = [[] for _ in range(sentences)]

    def add(self, active: _ActiveBeams, candidates: _Candidates, ended: Tensor, penalty: float, length: int) -> Tensor:
        """Note what has `ended`; the worst score kept of each sentence, -inf while fewer than `kept` are finished."""
        sums = candidates.sums[:, : ended.shape[1]]
        scores = (sums / penalty).masked_fill(~ended, -math.inf)
        known = self.scores[active.sentences]
        own, indices = (scores > known[:, -1:]).nonzero(as_tuple=True)
        self.scores[active.sentences] = torch.cat([known, scores], 1).topk(known.shape[1]).values
        if len(own):
            parents = candidates.parents[own, indices]
            ids = torch.cat([active.ids[own, parents, : length - 1], candidates.ids[own, indices].unsqueeze(1)], 1)
            values = (scores[own, indices], sums[own, indices], ids)
            noted = zip(active.sentences[own].tolist(), *(value.tolist() for value in values), strict=True)
            for sentence, score, total, text in noted:
                finished = text[-1] == self.end
                self.texts[sentence].append(Hypothesis(text[: len(text) - finished], score, total, finished))
        return self.scores[active.sentences, -1]


def _require_finite(log_probabilities: Tensor) -> None:
    """Refuse to go on where even the best continuation is impossible or not a number."""
    if not bool((log_probabilities > -math.inf).all()):
        raise WeightsError("the model's scores are not finite numbers; its weights are damaged or do not fit")
