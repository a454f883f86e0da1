"""Batches: as many sequences as fit a budget of tokens or items, none cut or padded; and which of them a step sees."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import TypeVar

BATCH_TOKENS = 2048  # of a batch at inference: of 512 … 8,192 the fastest, within a few per cent
Item = TypeVar("Item")


def token_batches(
    lengths: Sequence[int], budget: int | None, max_items: int | None = None, order: Iterable[int] | None = None
) -> Iterator[list[int]]:
    """Indices of the sequences in each batch, in an order (shortest first); one above the budget is a batch alone.

    >>> list(token_batches([5, 2, 9, 2, 1], budget=6))
    [[4, 1, 3], [0], [2]]
    """
    batch: list[int] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__) if order is None else order:
        full = budget is not None and tokens + lengths[index] > budget
        if batch and (full or len(batch) == max_items):
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += lengths[index]
    if batch:
        yield batch


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size` items, in order, read as they are asked for."""
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk


def weighted_chunks(
    items: Iterable[Item], size: int, weigh: Callable[[Item], int], max_weight: int
) -> Iterator[tuple[int, list[Item]]]:
    """As `chunks`, each with the index of its first item; a chunk also ends with the item that brings it to the limit.

    >>> list(weighted_chunks(["a", "bb", "c", "d"], size=3, weigh=len, max_weight=3))
    [(0, ['a', 'bb']), (2, ['c', 'd'])]
    """
    first, chunk, weight = 0, [], 0
    for item in items:
        chunk.append(item)
        weight += weigh(item)
        if len(chunk) == size or weight >= max_weight:
            yield first, chunk
            first, chunk, weight = first + len(chunk), [], 0
    if chunk:
        yield first, chunk


class Plan(ABC):
    """Which samples each training step sees: a pure function of its index, so a run can resume anywhere."""

    batches: int  # of an epoch, where all have as many

    @abstractmethod
    def batch(self, step: int) -> list[int]:
        """Indices of the samples of one step."""

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, index of the batch in it) of a step."""
        return divmod(step, self.batches)

    def steps(self, epochs: float) -> int:
        """The number of steps in a number of epochs, which need not be whole."""
        return round(epochs * self.batches)


class BatchSampler(Plan):
    """Every epoch is a new shuffle, cut into batches of at most `max_items` samples and `max_tokens` tokens.

    With `stretch`, samples of so many batches are sorted by length before they are cut, and the batches are shuffled
    again: neighbours are alike, which decoders compute faster, but so they are in whatever goes with length, such as a
    class.
    """

    def __init__(
        self, lengths: Sequence[int], seed: int, max_items: int, max_tokens: int | None = None, stretch: int = 1
    ):
        self.lengths, self.seed, self.max_items, self.max_tokens = lengths, seed, max_items, max_tokens
        usual = max_items if max_tokens is None else min(max_items, max_tokens * len(lengths) // max(1, sum(lengths)))
        self.sorted = stretch * max(1, usual) if stretch > 1 else 0  # samples at once
        self._starts = [0]  # the first step of each epoch, as far as known
        self._epoch: tuple[int, list[list[int]]] = (-1, [])

    def epoch(self, epoch: int) -> list[list[int]]:
        if self._epoch[0] != epoch:
            generator = random.Random(f"{self.seed} epoch {epoch}")
            order = list(range(len(self.lengths)))
            generator.shuffle(order)
            if self.sorted:
                stretches = chunks(order, self.sorted)
                order = [index for stretch in stretches for index in sorted(stretch, key=self.lengths.__getitem__)]
            batches = list(token_batches(self.lengths, self.max_tokens, self.max_items, order))
            if self.sorted:
                generator.shuffle(batches)
            self._epoch = (epoch, batches)
        return self._epoch[1]

    def _start(self, epoch: int) -> int:
        while len(self._starts) <= epoch:
            self._starts.append(self._starts[-1] + len(self.epoch(len(self._starts) - 1)))
        return self._starts[epoch]

    def locate(self, step: int) -> tuple[int, int]:
        epoch = next(epoch for epoch in count() if step < self._start(epoch + 1))
        return epoch, step - self._start(epoch)

    def batch(self, step: int) -> list[int]:
        epoch, index = self.locate(step)
        return self.epoch(epoch)[index]

    def steps(self, epochs: float) -> int:
        whole = int(epochs)
        rest = round((epochs - whole) * len(self.epoch(whole))) if epochs > whole else 0
        return self._start(whole) + rest
