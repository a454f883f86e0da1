"""The state of a beam search: the active beams of each sentence, their possible continuations, and what is finished.

Everything is a tensor over (sentences, beams); only texts that end are turned into lists, once a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kinfolk.errors import WeightsError
from kinfolk.generation.config import Hypothesis, Request


@dataclass(frozen=True)
class Candidates:
    """Possible next texts of each sentence, best first: (sentences, candidates) each."""

    sums: Tensor  # log-probabilities; minus infinity for what is impossible
    ids: Tensor  # the new token
    parents: Tensor  # which open text of the sentence it continues

    def best_of(self, wanted: Tensor, count: int) -> Candidates:
        """The `count` best among those that are wanted."""
        sums, indices = self.sums.masked_fill(~wanted, -math.inf).topk(count)
        return Candidates(sums, self.ids.gather(1, indices), self.parents.gather(1, indices))

    def keep(self, sentences: Tensor) -> Candidates:
        return Candidates(self.sums[sentences], self.ids[sentences], self.parents[sentences])


@dataclass(frozen=True)
class ActiveBeams:
    """The open texts of the sentences that are not done."""

    sentences: Tensor  # (sentences,): their indices in the request
    max_lengths: Tensor  # (sentences,)
    sums: Tensor  # (sentences, beams): log-probabilities
    last_ids: Tensor  # (sentences, beams): what to feed next
    ids: Tensor  # (sentences, beams, longest): what is written

    @classmethod
    def start(cls, request: Request, beams: int) -> ActiveBeams:
        max_lengths, first = request.tensor(request.max_lengths), request.tensor(request.begins)
        ids = max_lengths.new_zeros(len(max_lengths), beams, max(request.max_lengths))
        sums = torch.full(ids.shape[:2], -math.inf, dtype=torch.float64, device=ids.device)
        sums[:, 0] = 0.0  # all beams begin alike: only one may be continued
        sentences = torch.arange(len(max_lengths), device=ids.device)
        return cls(sentences, max_lengths, sums, first.unsqueeze(1).expand(-1, beams), ids)

    def candidates(self, scores: Tensor, request: Request, length: int) -> Candidates:
        """The best continuations of each sentence by token number `length`.

        The best of each row first, then the best of these: the best of all rows are among them, and only few numbers
        are added up (in float64).
        """
        sentences, beams = self.sums.shape
        wanted = 2 * beams if beams > 1 else 1
        log_probabilities = request.constraints.apply(scores, (self.max_lengths == length).repeat_interleave(beams))
        best, ids = log_probabilities.topk(min(wanted, log_probabilities.shape[1]))  # (rows, few)
        few = best.shape[1]
        sums = best.double() + self.sums.view(-1, 1)
        sums, indices = sums.view(sentences, beams * few).topk(wanted)
        require_finite(sums[:, 0])
        return Candidates(sums, ids.view(sentences, -1).gather(1, indices), indices // few)

    def keep(self, stays: Tensor) -> ActiveBeams:
        fields = (self.sentences, self.max_lengths, self.sums, self.last_ids, self.ids)
        return ActiveBeams(*(field[stays] for field in fields))

    def extend(self, going: Candidates, length: int) -> ActiveBeams:
        """The open texts after token number `length`."""
        own = torch.arange(len(going.ids), device=going.ids.device).unsqueeze(1)
        ids = self.ids[own, going.parents]
        ids[:, :, length - 1] = going.ids
        return ActiveBeams(self.sentences, self.max_lengths, going.sums, going.ids, ids)


class Finished:
    """The best finished texts of each sentence of a request, at most `kept` of each."""

    def __init__(self, request: Request, kept: int):
        self.end = request.constraints.end
        sentences, device = len(request.max_lengths), request.source.ids.device
        self.scores = torch.full((sentences, kept), -math.inf, dtype=torch.float64, device=device)  # best first
        self.texts: list[list[Hypothesis]] = [[] for _ in range(sentences)]

    def add(self, active: ActiveBeams, candidates: Candidates, ended: Tensor, penalty: float, length: int) -> Tensor:
        """Note the first candidates of each sentence where `ended`; the worst score kept of each sentence.

        It is minus infinity while fewer than `kept` are finished.
        """
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

    def results(self, n_best: int) -> list[list[Hypothesis]]:
        """The `n_best` texts of each sentence, best first."""
        return [sorted(texts, key=lambda text: -text.score)[:n_best] for texts in self.texts]


def require_finite(log_probabilities: Tensor) -> None:
    """Refuse to go on where even the best continuation is impossible or not a number."""
    if not bool((log_probabilities > -math.inf).all()):
        raise WeightsError("the model's scores are not finite numbers; its weights are damaged or do not fit")
