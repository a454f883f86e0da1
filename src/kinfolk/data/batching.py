"""Batches by token budget: as many sequences as fit, neighbours of similar length, none cut or padded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

BATCH_TOKENS = 2048  # of a batch at inference: of 512 … 8,192 the fastest, within a few per cent
Item = TypeVar("Item")


def token_batches(lengths: Sequence[int], budget: int, max_items: int | None = None) -> Iterator[list[int]]:
    """Indices of the sequences in each batch, shortest sequences first; one longer than the budget is a batch alone.

    >>> list(token_batches([5, 2, 9, 2, 1], budget=6))
    [[4, 1, 3], [0], [2]]
    """
    return _cut(sorted(range(len(lengths)), key=lengths.__getitem__), lengths, budget, max_items)


def _cut(
    order: Iterable[int], lengths: Sequence[int], max_tokens: int | None, max_items: int | None
) -> Iterator[list[int]]:
    """Batches of consecutive indices, each as large as the limits allow."""
    batch: list[int] = []
    tokens = 0
    for index in order:
        full = max_tokens is not None and tokens + lengths[index] > max_tokens
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


class BatchSampler:
    """Which samples each training step sees: a pure function of (seed, step), so a run can resume anywhere.

    Every epoch is a new shuffle, cut into stretches of fifty batches; each stretch is sorted by length, so that
    neighbours are alike, cut into batches of at most `max_items` samples and `max_tokens` tokens, and the batches are
    shuffled again.
    """

    STRETCH = 50

    def __init__(self, lengths: Sequence[int], seed: int, max_items: int, max_tokens: int | None = None):
        self.lengths = lengths
        self.seed = seed
        self.max_items = max_items
        self.max_tokens = max_tokens
        self._ends: list[int] = []  # the first step after each epoch, as far as known
        self._epoch: tuple[int, list[list[int]]] = (-1, [])

    def epoch(self, epoch: int) -> list[list[int]]:
        """The batches of one epoch."""
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._make(epoch))
        return self._epoch[1]

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, index of the batch in it) of a step."""
        epoch = 0
        start = 0
        while True:
            if len(self._ends) == epoch:
                self._ends.append(start + len(self.epoch(epoch)))
            if step < self._ends[epoch]:
                return epoch, step - start
            start = self._ends[epoch]
            epoch += 1

    def batch(self, step: int) -> list[int]:
        """Indices of the samples of one step."""
        epoch, index = self.locate(step)
        return self.epoch(epoch)[index]

    def steps(self, epochs: float) -> int:
        """The number of steps in a number of epochs, which need not be whole."""
        whole = int(epochs)
        for epoch in range(whole):
            self.locate(self._ends[epoch - 1] if epoch else 0)
        steps = self._ends[whole - 1] if whole else 0
        return steps + round((epochs - whole) * len(self.epoch(whole))) if epochs > whole else steps

    def _make(self, epoch: int) -> list[list[int]]:
        generator = random.Random(f"{self.seed} epoch {epoch}")
        order = list(range(len(self.lengths)))
        generator.shuffle(order)
        batches: list[list[int]] = []
        for stretch in chunks(order, self.STRETCH * self.max_items):
            ordered = sorted(stretch, key=self.lengths.__getitem__)
            batches += _cut(ordered, self.lengths, self.max_tokens, self.max_items)
        generator.shuffle(batches)
        return batches
