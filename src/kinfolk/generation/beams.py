"""The books of a beam search: the open texts of each sentence, their possible continuations, and what is finished.

Everything is a tensor over (sentences, beams); only texts that end are turned into lists, once a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfolk.generation.constraints import Hypothesis, Request, require_finite


@dataclass(frozen=True)
class Candidates:
    """Possible next texts of each sentence, best first: (sentences, candidates) each."""

    sums: Tensor  # log-probabilities; minus infinity for what is impossible
    ids: Tensor  # the new token
    parents: Tensor  # which open text of the sentence it continues

    def best_of(self, wanted: Tensor, count: int) -> Candidates:
        """The `count` best among those that are wanted."""
        sums, places = self.sums.masked_fill(~wanted, -math.inf).topk(count)
        return Candidates(sums, self.ids.gather(1, places), self.parents.gather(1, places))

    def keep(self, sentences: Tensor) -> Candidates:
        return Candidates(self.sums[sentences], self.ids[sentences], self.parents[sentences])


@dataclass(frozen=True)
class ActiveBeams:
    """The open texts of the sentences that are not done."""

    sentences: Tensor  # (sentences,): their numbers in the request
    longest: Tensor  # (sentences,)
    sums: Tensor  # (sentences, beams): log-probabilities
    last_ids: Tensor  # (sentences, beams): what to feed next
    ids: Tensor  # (sentences, beams, longest): what is written

    @classmethod
    def start(cls, request: Request, beams: int) -> ActiveBeams:
        longest, first = request.tensor(request.longest), request.tensor(request.begins)
        ids = longest.new_zeros(len(longest), beams, max(request.longest))
        sums = torch.full(ids.shape[:2], -math.inf, dtype=torch.float64, device=ids.device)
        sums[:, 0] = 0.0  # all beams begin alike: only one may be continued
        numbers = torch.arange(len(longest), device=ids.device)
        return cls(numbers, longest, sums, first.unsqueeze(1).expand(-1, beams), ids)

    def candidates(self, scores: Tensor, request: Request, length: int) -> Candidates:
        """The best continuations of each sentence by token number `length`.

        The best of each row first, then the best of these: the best of all rows are among them, and only few numbers
        are added up (in float64).
        """
        sentences, beams = self.sums.shape
        wanted = 2 * beams if beams > 1 else 1
        likely = request.rules.apply(scores, (self.longest == length).repeat_interleave(beams))
        best, ids = likely.topk(min(wanted, likely.shape[1]))  # (rows, few)
        few = best.shape[1]
        sums = best.double() + self.sums.view(-1, 1)
        sums, places = sums.view(sentences, beams * few).topk(wanted)
        require_finite(sums[:, 0])
        return Candidates(sums, ids.view(sentences, -1).gather(1, places), places // few)

    def keep(self, stays: Tensor) -> ActiveBeams:
        fields = (self.sentences, self.longest, self.sums, self.last_ids, self.ids)
        return ActiveBeams(*(found[stays] for found in fields))

    def extend(self, going: Candidates, length: int) -> ActiveBeams:
        """The open texts after token number `length`."""
        own = torch.arange(len(going.ids), device=going.ids.device).unsqueeze(1)
        ids = self.ids[own, going.parents]
        ids[:, :, length - 1] = going.ids
        return ActiveBeams(self.sentences, self.longest, going.sums, going.ids, ids)


@dataclass(frozen=True)
class _Text:
    score: float
    log_probability: float
    ids: list[int]


class Finished:
    """The best finished texts of each sentence of a request, at most `kept` of each."""

    def __init__(self, request: Request, kept: int):
        self.end = request.rules.end
        sentences, device = len(request.longest), request.source.ids.device
        self.scores = torch.full((sentences, kept), -math.inf, dtype=torch.float64, device=device)  # best first
        self.texts: list[list[_Text]] = [[] for _ in range(sentences)]

    def add(self, found: ActiveBeams, candidates: Candidates, ended: Tensor, penalty: float, length: int) -> Tensor:
        """Note the first candidates of each sentence where `ended`; the worst score kept of each sentence.

        It is minus infinity while fewer than `kept` are finished.
        """
        sums = candidates.sums[:, : ended.shape[1]]
        scores = (sums / penalty).masked_fill(~ended, -math.inf)
        known = self.scores[found.sentences]
        own, places = (scores > known[:, -1:]).nonzero(as_tuple=True)
        self.scores[found.sentences] = torch.cat([known, scores], 1).topk(known.shape[1]).values
        if len(own):
            parents = candidates.parents[own, places]
            ids = torch.cat([found.ids[own, parents, : length - 1], candidates.ids[own, places].unsqueeze(1)], 1)
            values = (scores[own, places], sums[own, places], ids)
            noted = zip(found.sentences[own].tolist(), *(value.tolist() for value in values), strict=True)
            for sentence, *text in noted:
                self.texts[sentence].append(_Text(*text))
        return self.scores[found.sentences, -1]

    def results(self, best: int) -> list[list[Hypothesis]]:
        """The `best` texts of each sentence, best first."""
        ranked = (sorted(texts, key=lambda text: -text.score)[:best] for texts in self.texts)
        return [[self._written(text) for text in texts] for texts in ranked]

    def _written(self, text: _Text) -> Hypothesis:
        finished = text.ids[-1] == self.end
        return Hypothesis(text.ids[: len(text.ids) - finished], text.score, text.log_probability, finished)
