"""What every way of writing shares: the rules a text obeys, what comes out, and the loop that writes token by token.

Greedy search and sampling are this loop with another choice of the next token. Sentences end at different steps; the
ended ones leave the batch, and nothing that happens to a sentence depends on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from kinfolk.errors import InputError, WeightsError
from kinfolk.parts.state import StepModel
from kinfolk.parts.tokens import Tokens

# log-probabilities (rows, vocabulary), sentence numbers (rows,), length -> ids (rows,)
Choose = Callable[[Tensor, Tensor, int], Tensor]


@runtime_checkable
class Watchable(Protocol):
    """The hook for attention: a state that can show where its model looks.

    After each step of a `watched` state, `attention` (rows, source positions) says how much each row looked at each
    token of its source, in a tensor that later steps leave alone. Sources are padded to the longest of the batch; what
    stands behind a source's end is ignored.
    """

    @property
    def attention(self) -> Tensor | None: ...

    def watched(self) -> Self: ...


@dataclass(frozen=True)
class Rules:
    """What a text obeys.

    `end` ends it and is not part of it. Tokens in `never` are not written, nor is the end before `shortest` tokens
    stand there; what is forbidden is passed over, and the log-probabilities of the others stay the model's own. A text
    that reaches its greatest length is cut there, unless `forced_end` gives the last place to the end token, free of
    charge (transformers' forced_eos_token_id).
    """

    end: int
    never: tuple[int, ...] = ()
    shortest: int = 0
    forced_end: bool = False

    def check(self, vocabulary: int) -> None:
        """Refuse rules that name tokens which do not exist, or leave nothing to write."""
        for token in (self.end, *self.never):
            if not 0 <= token < vocabulary:
                raise InputError(f"token {token} is outside the model's vocabulary of {vocabulary}")
        if len({self.end, *self.never}) == vocabulary:
            raise InputError(f"all {vocabulary} tokens of the vocabulary are forbidden; leave one that may be written")

    def apply(self, scores: Tensor, length: int, last: Tensor) -> Tensor:
        """Scores (rows, vocabulary) -> log-probabilities of token number `length`; `last` (rows,) marks last places.

        What is forbidden has minus infinity. At least float32, whatever the model computes in.
        """
        exact = scores.dtype if scores.dtype == torch.float64 else torch.float32
        found = scores.log_softmax(-1, dtype=exact)
        if self.never:
            found.index_fill_(1, torch.tensor(self.never, device=found.device), -math.inf)
        if length <= self.shortest:
            found[:, self.end] = -math.inf
        if self.forced_end:
            found[last] = -math.inf
            found[last, self.end] = 0.0
        return found


@dataclass(frozen=True, eq=False)
class Written:
    """A text as ids, without the end token.

    `log_probability` is the model's, the end token included; `score` is what the search ranked by (elsewhere the same).
    `finished` is false for a text that was cut at its greatest length. `attention` (ids, source positions), if asked
    for, says where the model looked when it wrote each id.
    """

    ids: list[int]
    score: float
    log_probability: float
    finished: bool
    attention: Tensor | None = None


@dataclass(frozen=True)
class Request:
    """What is to be written: one text per sentence of `source`.

    `begin` is the token that is fed first (one for all, or one per sentence), `longest` the greatest number of tokens
    of each text, the end token included.
    """

    source: Tokens
    begin: int | Sequence[int]
    longest: Sequence[int]
    rules: Rules
    attention: bool = False

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


def start(model: StepModel[Any], request: Request, beams: int) -> Any:
    """The state before the first step, watched if attention is asked for."""
    state = model.start(request.source, beams)
    if not request.attention:
        return state
    if not isinstance(state, Watchable):
        raise InputError("this model has no attention to its source to show; ask without attention")
    return state.watched()


def one_by_one(model: StepModel[Any], request: Request, choose: Choose) -> list[Written]:
    """Write one text per sentence; `choose` picks the next token of each row."""
    rules, ids, longest = request.rules, request.tensor(request.begins), request.tensor(request.longest)
    alive = torch.arange(len(longest), device=ids.device)
    written = ids.new_zeros(len(longest), max(request.longest, default=0))
    sums = torch.zeros(len(longest), dtype=torch.float64, device=ids.device)
    lengths, finished, looks = torch.zeros_like(longest), torch.zeros_like(longest, dtype=torch.bool), []
    state = start(model, request, 1) if len(longest) else None
    for length in range(1, written.shape[1] + 1):
        scores, state = model.step(ids, state)
        rules.check(scores.shape[1])
        last = longest[alive] == length
        likely = rules.apply(scores, length, last)
        ids = choose(likely, alive, length)
        gains = likely.gather(1, ids.unsqueeze(1)).squeeze(1)
        require_finite(gains)
        sums[alive] += gains.double()
        written[alive, length - 1], lengths[alive], finished[alive] = ids, length, ids == rules.end
        if request.attention:
            looks.append((alive, state.attention))
        stays = (~(last | (ids == rules.end))).nonzero().squeeze(1)
        if not len(stays):
            break
        if len(stays) < len(alive):
            alive, ids, state = alive[stays], ids[stays], state.keep(stays)
    texts = zip(written.tolist(), lengths.tolist(), finished.tolist(), sums.tolist(), strict=True)
    return [
        Written(row[: length - ended], total, total, ended, _own_looks(request, looks, number, length - ended))
        for number, (row, length, ended, total) in enumerate(texts)
    ]


def require_finite(log_probabilities: Tensor) -> None:
    """Refuse to go on where even the best continuation is impossible or not a number."""
    if not bool((log_probabilities > -math.inf).all()):
        raise WeightsError("the model's scores are not finite numbers; its weights are damaged or do not fit")


def _own_looks(request: Request, looks: list[tuple[Tensor, Tensor]], number: int, length: int) -> Tensor | None:
    """The attention of one sentence: (length, source positions)."""
    if not request.attention:
        return None
    own = request.source.layout.lengths[number]
    rows = [seen[alive == number][0, :own] for alive, seen in looks[:length]]
    return torch.stack(rows) if rows else torch.zeros(0, own, device=request.source.ids.device)
