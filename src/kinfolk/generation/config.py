"""What a search or a sampler is asked for: the request, constraints on every text, and how to choose among texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kinfolk.errors import InputError, check_choice, check_int, check_number
from kinfolk.nn.packed import Tokens

PENALTIES = ("gnmt", "power")
EARLY_STOPPING = ("never", "heuristic", "full")
LARGEST_ALPHA = 10  # beyond, penalties of long texts leave the range of numbers
LARGEST_TEMPERATURE = 1e30


@dataclass(frozen=True)
class DecodingConstraints:
    """What every text obeys. The log-probabilities of what is not in `never` stay the model's own."""

    end: int  # ends a text and is not part of it
    never: tuple[int, ...] = ()
    forced_end: bool = False  # has the last position, at probability 1 (transformers' forced_eos_token_id)
    renormalized: bool = False  # transformers' renormalize_logits

    def check(self, vocabulary: int) -> None:
        for token in (self.end, *self.never):
            if not 0 <= token < vocabulary:
                raise InputError(f"token {token} is outside the model's vocabulary of {vocabulary}")
        if len({self.end, *self.never}) == vocabulary:
            raise InputError(f"all {vocabulary} tokens of the vocabulary are forbidden; leave one that may be written")

    def apply(self, scores: Tensor, last: Tensor) -> Tensor:
        """Scores (rows, vocabulary) -> log-probabilities, at least float32; `last` (rows,) marks last positions."""
        exact = scores.dtype if scores.dtype == torch.float64 else torch.float32
        log_probabilities = scores.log_softmax(-1, dtype=exact)
        if self.never:
            log_probabilities.index_fill_(1, torch.tensor(self.never, device=log_probabilities.device), -math.inf)
        if self.forced_end:
            log_probabilities[last] = -math.inf
            log_probabilities[last, self.end] = 0.0
        return log_probabilities.log_softmax(-1) if self.renormalized else log_probabilities


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """A text as ids, without the end token."""

    ids: list[int]
    score: float  # what the search ranked by
    log_probability: float  # the model's, end token included
    finished: bool  # or cut at its maximum length


@dataclass(frozen=True)
class Request:
    """What to generate: one text per sentence of `source`."""

    source: Tokens
    begin: int | Sequence[int]  # what is fed first: one token for all, or one per sentence
    max_lengths: Sequence[int]  # in tokens, the end included
    constraints: DecodingConstraints

    def __post_init__(self) -> None:
        sentences = self.source.layout.sequences
        if len(self.max_lengths) != sentences or len(self.begins) != sentences:
            raise InputError(f"expected a maximum length and a first token for each of the {sentences} sentences")
        if any(length < 1 for length in self.max_lengths):
            raise InputError(f"the maximum length of a text must be at least 1, not {min(self.max_lengths)}")

    @property
    def begins(self) -> Sequence[int]:
        return [self.begin] * self.source.layout.sequences if isinstance(self.begin, int) else self.begin

    def tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.source.ids.device)


@dataclass(frozen=True)
class Penalty:
    """What the log-probability of a text of n tokens is divided by: ((5 + n) / 6)^alpha (gnmt) or n^alpha (power)."""

    alpha: float = 0.6  # larger ones favour longer texts; 0 ranks by log-probability alone
    kind: str = "gnmt"  # Wu et al. 2016, equation 14

    def __post_init__(self) -> None:
        check_choice("penalty", self.kind, PENALTIES)
        allowed = f"from -{LARGEST_ALPHA} to {LARGEST_ALPHA}"
        check_number("length_penalty", self.alpha, -LARGEST_ALPHA, LARGEST_ALPHA, allowed, inclusive=True)

    def __call__(self, lengths: Tensor) -> Tensor:
        base = (5.0 + lengths.double()) / 6.0 if self.kind == "gnmt" else lengths.double()
        return base**self.alpha

    def of(self, length: int) -> float:
        return self(torch.tensor(length)).item()


@dataclass(frozen=True)
class Beam:
    """Beam size, number of texts to return, how to rank them and when to stop (generation/search.py explains)."""

    beams: int = 4
    n_best: int = 1
    penalty: Penalty = field(default_factory=Penalty)
    early_stopping: str = "never"

    def __post_init__(self) -> None:
        check_choice("early_stopping", self.early_stopping, EARLY_STOPPING)
        if not 1 <= self.n_best <= self.beams:
            raise InputError(f"n_best={self.n_best} must be from 1 to the beam size, which is {self.beams}")


@dataclass(frozen=True)
class Sampling:
    """How to draw, in this order: divide by `temperature`, keep the `top_k` likeliest, keep `top_p` of the mass."""

    temperature: float = 1.0  # 0: the likeliest token every time (greedy)
    top_k: int | None = None
    top_p: float | None = None  # the smallest set of likeliest tokens that has this share (Holtzman et al. 2020)
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = f"a number from 0 (greedy) to {LARGEST_TEMPERATURE:g}"
        check_number("temperature", self.temperature, 0, LARGEST_TEMPERATURE, allowed, inclusive=True)
        if self.top_k is not None:
            check_int("top_k", self.top_k)
        if self.top_p is not None:
            check_number("top_p", self.top_p, 0, 1, "above 0 and at most 1")
        if check_int("seed", self.seed, 0) >= 2**63:
            raise InputError(f"seed={self.seed} must be below 2^63")
