"""Next-token prediction over one long stream of tokens: contiguous streams, truncated backpropagation through time.

    tokens      t0 t1 t2 t3 t4 t5 t6 t7 t8         batch_size 2, bptt_length 3:
    stream 0    t0 t1 t2 | t3                      batch 0 reads t0 t1 t2 and t4 t5 t6, with the tokens after each
    stream 1    t4 t5 t6 | t7                      as targets; batch 1 continues both streams

Every token but the first is a target once per epoch. The state of a stream at the end of a batch is where its next
batch begins; gradients stop there. At the beginning of an epoch the state is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from kinfolk.errors import InputError, check_int
from kinfolk.nn.packed import pack
from kinfolk.nn.recurrent import CellState
from kinfolk.objectives.objective import Batch, Sample


@dataclass(frozen=True, slots=True)
class StreamSample(Sample):
    """A stretch of one stream: `target` has the token after each of `ids`; `opens`: it begins the stream."""

    opens: bool


class ContiguousStreams(Sequence[StreamSample]):
    """A text cut into `batch_size` streams, and the order of its batches: `bptt_length` tokens of every stream.

    Streams differ by at most one token, so nothing is dropped; in the last batch of an epoch one may be empty.
    """

    def __init__(self, stream: Sequence[int] | np.ndarray, batch_size: int, bptt_length: int):
        self.stream, self.batch_size, self.bptt_length = stream, batch_size, bptt_length
        targets = len(stream) - 1
        check_int("bptt_length", bptt_length)
        if targets < check_int("batch_size", batch_size):
            raise InputError(
                f"{len(stream):,} tokens are too few for batch_size {batch_size:,}; bring more text or a smaller batch"
            )
        each, longer = divmod(targets, batch_size)
        self._starts = [index * each + min(index, longer) for index in range(batch_size + 1)]
        self.batches = math.ceil((each + (longer > 0)) / bptt_length)  # of an epoch

    def __len__(self) -> int:
        return self.batches * self.batch_size

    @overload
    def __getitem__(self, index: int) -> StreamSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[StreamSample]: ...
    def __getitem__(self, index: int | slice) -> StreamSample | list[StreamSample]:
        if isinstance(index, slice):
            return [self[inner] for inner in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        batch, stream = divmod(index, self.batch_size)
        end = self._starts[stream + 1]
        first = min(self._starts[stream] + batch * self.bptt_length, end)
        last = min(first + self.bptt_length, end)
        ids, targets = ([int(token) for token in self.stream[first + shift : last + shift]] for shift in (0, 1))
        return StreamSample(ids, [], targets, first, batch == 0)

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, index of the batch in it)."""
        return divmod(step, self.batches)

    def batch(self, step: int) -> list[int]:
        """Indices of the samples of a batch."""
        first = self.locate(step)[1] * self.batch_size
        return list(range(first, first + self.batch_size))

    def steps(self, epochs: float) -> int:
        """The number of batches in some epochs."""
        return round(epochs * self.batches)


@dataclass(frozen=True)
class StreamBatch(Batch):
    """The same stretch of every stream; `opens`: the state of the batch before is not used."""

    opens: bool


@dataclass(frozen=True)
class NextToken:
    """-log p of each token, given all tokens of its stream before it."""

    head: str = "next_token"

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> StreamBatch:
        """Pack one stretch of all streams."""
        targets = torch.tensor([token for sample in samples for token in sample.target], dtype=torch.long)
        opens = {sample.opens for sample in samples if isinstance(sample, StreamSample)}
        assert len(opens) == 1, "streams move together"
        tokens = pack([sample.ids for sample in samples], device=device)
        counts = {self.head: float(len(targets))}
        return StreamBatch(tokens, targets.to(device), counts, opens.pop())

    def carry(self, model: Any, batch: Batch, state: CellState | None) -> tuple[dict[str, Tensor], CellState]:
        """The sum of the losses, and the detached state for the next batch."""
        assert isinstance(batch, StreamBatch)
        hidden, after = model.body.read(batch.tokens, None if batch.opens else state)
        total = model.vocabulary_loss(hidden, batch.targets)
        return {self.head: total}, tuple(tensor.detach() for tensor in after)

    def losses(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        """Of streams that begin here."""
        return self.carry(model, batch, None)[0]

    def scores(self, model: Any, batch: Batch) -> Tensor:
        """(tokens, vocabulary): all of them, so for small batches only."""
        return model.vocabulary_scores(model(batch.tokens))  # type: ignore[no-any-return]


@torch.no_grad()
def perplexity(model: Any, stream: Sequence[int] | np.ndarray, bptt_length: int = 512, batch_size: int = 1) -> float:
    """exp of the mean -log p of each token of a stream but the first, each scored once, given all tokens before it.

    `bptt_length` changes only the memory it takes. A larger batch is faster and a little worse: each of its streams
    begins with an empty state.
    """
    streams, objective, total = ContiguousStreams(stream, batch_size, bptt_length), NextToken(), 0.0
    state: CellState | None = None
    for step in range(streams.batches):
        batch = objective.prepare([streams[index] for index in streams.batch(step)], model.device)
        losses, state = objective.carry(model, batch, state)
        total += float(losses[objective.head])
    return float(torch.tensor(total / (len(stream) - 1), dtype=torch.float64).exp())
