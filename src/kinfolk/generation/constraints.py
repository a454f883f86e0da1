"""What every way of writing shares: the rules a text obeys, what comes out, and the loop that writes token by token.

Greedy search and sampling are this loop with another choice of the next token. Sentences end at different steps; the
ended ones leave the batch, and nothing that happens to a sentence depends on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kinfolk.errors import InputError, WeightsError
from kinfolk.nn.packed import Tokens
from kinfolk.nn.state import StepModel, compaction_order

# log-probabilities (rows, vocabulary), sentence numbers (rows,), length -> ids (rows,)
Choose = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class DecodingConstraints:
    """What a text obeys.

    `end` ends it and is not part of it. Tokens in `never` are not written: they are passed over, and the
    log-probabilities of the others stay the model's own, unless they are to be `renormalised`. A text that reaches its
    greatest length is cut there, unless `forced_end` gives the last place to the end token, free of charge
    (transformers' forced_eos_token_id).
    """

    end: int
    never: tuple[int, ...] = ()
    forced_end: bool = False
    renormalised: bool = False  # transformers' renormalize_logits

    def check(self, vocabulary: int) -> None:
        """Refuse rules that name tokens which do not exist, or leave nothing to write."""
        for token in (self.end, *self.never):
            if not 0 <= token < vocabulary:
                raise InputError(f"token {token} is outside the model's vocabulary of {vocabulary}")
        if len({self.end, *self.never}) == vocabulary:
            raise InputError(f"all {vocabulary} tokens of the vocabulary are forbidden; leave one that may be written")

    def apply(self, scores: Tensor, last: Tensor) -> Tensor:
        """Scores (rows, vocabulary) -> log-probabilities of the next token; `last` (rows,) marks last places.

        What is forbidden has minus infinity. At least float32, whatever the model computes in.
        """
        exact = scores.dtype if scores.dtype == torch.float64 else torch.float32
        found = scores.log_softmax(-1, dtype=exact)
        if self.never:
            found.index_fill_(1, torch.tensor(self.never, device=found.device), -math.inf)
        if self.forced_end:
            found[last] = -math.inf
            found[last, self.end] = 0.0
        return found.log_softmax(-1) if self.renormalised else found


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """A text as ids, without the end token.

    `log_probability` is the model's, the end token included; `score` is what the search ranked by (elsewhere the same).
    `finished` is false for a text that was cut at its greatest length.
    """

    ids: list[int]
    score: float
    log_probability: float
    finished: bool


@dataclass(frozen=True)
class Request:
    """What is to be written: one text per sentence of `source`.

    `begin` is the token that is fed first (one for all, or one per sentence), `longest` the greatest number of tokens
    of each text, the end token included.
    """

    source: Tokens
    begin: int | Sequence[int]
    longest: Sequence[int]
    rules: DecodingConstraints

    def __post_init__(self) -> None:
        sentences = self.source.layout.sequences
        if len(self.longest) != sentences or len(self.begins) != sentences:
            raise InputError(f"expected a greatest length and a first token for each of the {sentences} sentences")
        if any(length < 1 for length in self.longest):
            raise InputError(f"the greatest length of a text must be at least 1, not {min(self.longest)}")

    @property
    def begins(self) -> Sequence[int]:
        return [self.begin] * self.source.layout.sequences if isinstance(self.begin, int) else self.begin

    def tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.source.ids.device)


def one_by_one(model: StepModel[Any], request: Request, choose: Choose) -> list[Hypothesis]:
    """Write one text per sentence; `choose` picks the next token of each row."""
    rules, ids, longest = request.rules, request.tensor(request.begins), request.tensor(request.longest)
    alive = torch.arange(len(longest), device=ids.device)
    written = ids.new_zeros(len(longest), max(request.longest, default=0))
    sums = torch.zeros(len(longest), dtype=torch.float64, device=ids.device)
    lengths, finished = torch.zeros_like(longest), torch.zeros_like(longest, dtype=torch.bool)
    state = model.start(request.source, 1) if len(longest) else None
    for length in range(1, written.shape[1] + 1):
        scores, state = model.step(ids, state)
        rules.check(scores.shape[1])
        last = longest[alive] == length
        likely = rules.apply(scores, last)
        ids = choose(likely, alive, length)
        gains = likely.gather(1, ids.unsqueeze(1)).squeeze(1)
        require_finite(gains)
        sums[alive] += gains.double()
        written[alive, length - 1], lengths[alive], finished[alive] = ids, length, ids == rules.end
        stays = (~(last | (ids == rules.end))).nonzero().squeeze(1)
        if not len(stays):
            break
        if len(stays) < len(alive):
            stays = compaction_order(stays)
            alive, ids, state = alive[stays], ids[stays], state.keep(stays)
    texts = zip(written.tolist(), lengths.tolist(), finished.tolist(), sums.tolist(), strict=True)
    return [Hypothesis(row[: length - ended], total, total, ended) for row, length, ended, total in texts]


def require_finite(log_probabilities: Tensor) -> None:
    """Refuse to go on where even the best continuation is impossible or not a number."""
    if not bool((log_probabilities > -math.inf).all()):
        raise WeightsError("the model's scores are not finite numbers; its weights are damaged or do not fit")
