"""Next-token prediction over one long stream of tokens, in lanes whose state is carried from batch to batch.

    stream     t0 t1 t2 t3 t4 t5 t6 t7 t8         two lanes, three tokens a batch:
    lane 0     t0 t1 t2 | t3                      batch 0 reads t0 t1 t2 and t4 t5 t6, and is asked for the tokens
    lane 1     t4 t5 t6 | t7                      after each; batch 1 goes on where both lanes stopped

Every token but the first is asked for once per epoch. What a lane's recurrence remembers at the end of a batch is where
its next one begins; gradients stop there (truncated backpropagation). At the beginning of an epoch it remembers
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np
import torch
from torch import Tensor

from kinfolk.errors import InputError, check_int
from kinfolk.nn.losses import chunked_cross_entropy
from kinfolk.nn.packed import Tokens, pack
from kinfolk.nn.recurrent import CellState
from kinfolk.objectives.objective import Batch, Sample


@dataclass(frozen=True, slots=True)
class StreamSample(Sample):
    """A stretch of one lane: `target` are the tokens after each of `ids`; `opens`: nothing of the lane came before."""

    opens: bool


class ContiguousStreams(Sequence[StreamSample]):
    """A stream as items, and the plan of which step sees which: all lanes at once, in the order of the stream.

    They differ by at most one token, so nothing is cut off; in the last batch of an epoch one may be empty.
    """

    def __init__(self, stream: Sequence[int] | np.ndarray, lanes: int, length: int):
        self.stream, self.lanes, self.length = stream, lanes, length
        asked = len(stream) - 1
        check_int("length", length)
        if asked < check_int("lanes", lanes):
            raise InputError(
                f"{len(stream):,} tokens cannot be read in {lanes:,} lanes of {length:,} tokens a step; "
                "bring more text or ask for fewer lanes"
            )
        each, longer = divmod(asked, lanes)
        self._starts = [lane * each + min(lane, longer) for lane in range(lanes + 1)]
        self.batches = math.ceil((each + (longer > 0)) / length)  # of an epoch

    def __len__(self) -> int:
        return self.batches * self.lanes

    @overload
    def __getitem__(self, number: int) -> StreamSample: ...
    @overload
    def __getitem__(self, number: slice) -> list[StreamSample]: ...
    def __getitem__(self, number: int | slice) -> StreamSample | list[StreamSample]:
        if isinstance(number, slice):
            return [self[place] for place in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        batch, lane = divmod(number, self.lanes)
        end = self._starts[lane + 1]
        first = min(self._starts[lane] + batch * self.length, end)
        last = min(first + self.length, end)
        ids, targets = ([int(token) for token in self.stream[first + shift : last + shift]] for shift in (0, 1))
        return StreamSample(ids, [], targets, first, batch == 0)

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, number of the batch in it) of a step."""
        return divmod(step, self.batches)

    def batch(self, step: int) -> list[int]:
        """Numbers of the items of one step."""
        first = self.locate(step)[1] * self.lanes
        return list(range(first, first + self.lanes))

    def steps(self, epochs: float) -> int:
        """How many steps so many epochs have."""
        return round(epochs * self.batches)


@dataclass(frozen=True)
class StreamBatch(Batch):
    """A batch of lanes; `opens`: its state is not taken from the batch before."""

    opens: bool


class LanguageModel(Protocol):
    """What the loss needs of a model."""

    @property
    def output_table(self) -> Tensor:
        """(vocabulary, width): what vectors are scored with."""

    @property
    def output_bias(self) -> Tensor | None:
        """(vocabulary,)."""

    def __call__(self, tokens: Tokens, state: CellState | None = None) -> tuple[Tensor, CellState]:
        """A vector for each token (tokens, width), and the state after the last ones."""

    def scores(self, hidden: Tensor) -> Tensor:
        """(tokens, vocabulary)."""


@dataclass(frozen=True)
class NextToken:
    """-log p of each token, given all tokens of its lane before it."""

    head: str = "next_token"

    def prepare(self, items: Sequence[Sample], device: torch.device) -> StreamBatch:
        """Pack the lanes of one batch. All of them are at the same place."""
        targets = torch.tensor([token for item in items for token in item.target], dtype=torch.long, device=device)
        opens = {item.opens for item in items if isinstance(item, StreamSample)}
        assert len(opens) == 1, "lanes move together"
        return StreamBatch(
            pack([item.ids for item in items], device=device),
            targets,
            float(len(targets)),
            tuple(item.example for item in items),
            opens.pop(),
        )

    def carry(self, model: LanguageModel, prepared: Batch, state: CellState | None) -> tuple[Tensor, CellState]:
        """The sum of the losses, and the state to go on from, without its history."""
        assert isinstance(prepared, StreamBatch)
        hidden, after = model(prepared.tokens, None if prepared.opens else state)
        total = chunked_cross_entropy(hidden, model.output_table, model.output_bias, prepared.targets)
        return total, tuple(piece.detach() for piece in after)

    def loss(self, model: LanguageModel, prepared: Batch) -> Tensor:
        """Of lanes that begin here."""
        return self.carry(model, prepared, None)[0]

    def scores(self, model: LanguageModel, prepared: Batch) -> Tensor:
        """(tokens, vocabulary): all of them, so for small batches only."""
        return model.scores(model(prepared.tokens)[0])


@torch.no_grad()
def perplexity(model: Any, stream: Sequence[int] | np.ndarray, length: int = 512, lanes: int = 1) -> float:
    """exp of the mean -log p of each token of a stream but the first, each scored once, given all tokens before it.

    `length` tokens are computed at a time, which changes nothing but the memory that it takes. Several lanes are faster
    and a little worse: each begins with nothing remembered.
    """
    plan, objective, total = ContiguousStreams(stream, lanes, length), NextToken(), 0.0
    state: CellState | None = None
    for step in range(plan.batches):
        prepared = objective.prepare([plan[number] for number in plan.batch(step)], model.device)
        loss, state = objective.carry(model, prepared, state)
        total += float(loss)
    return float(torch.tensor(total / (len(stream) - 1), dtype=torch.float64).exp())
