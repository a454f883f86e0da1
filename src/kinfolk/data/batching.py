"""Batches by token budget: as many sequences as fit, neighbours of similar length, none cut or padded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def token_batches(lengths: Sequence[int], budget: int, most: int | None = None) -> Iterator[list[int]]:
    """Numbers of the sequences in each batch, shortest sequences first; a longer one than the budget stands alone.

    `most` is the greatest number of sequences in a batch.

    >>> list(token_batches([5, 2, 9, 2, 1], budget=6))
    [[4, 1, 3], [0], [2]]
    """
    batch: list[int] = []
    total = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (total + lengths[number] > budget or len(batch) == most):
            yield batch
            batch, total = [], 0
        batch.append(number)
        total += lengths[number]
    if batch:
        yield batch


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size` items, in order, read as they are asked for."""
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk


def weighted_chunks(
    items: Iterable[Item], size: int, weigh: Callable[[Item], int], most: int
) -> Iterator[tuple[int, list[Item]]]:
    """As `chunks`, each with the number of its first item; a chunk also ends with the item that makes it weigh `most`.

    >>> list(weighted_chunks(["a", "bb", "c", "d"], size=3, weigh=len, most=3))
    [(0, ['a', 'bb']), (2, ['c', 'd'])]
    """
    first, chunk, weight = 0, [], 0
    for item in items:
        chunk.append(item)
        weight += weigh(item)
        if len(chunk) == size or weight >= most:
            yield first, chunk
            first, chunk, weight = first + len(chunk), [], 0
    if chunk:
        yield first, chunk


class BatchSampler:
    """Which items each training step sees: a pure function of (seed, step), so a run can go on anywhere.

    Every epoch is a new shuffle, cut into stretches of fifty batches; each stretch is sorted by length, so that
    neighbours are alike, cut into batches of at most `max_items` items and `max_tokens` tokens, and the batches are
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

    def epoch(self, number: int) -> list[list[int]]:
        """The batches of one epoch."""
        if self._epoch[0] != number:
            self._epoch = (number, self._make(number))
        return self._epoch[1]

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, number of the batch in it) of a step."""
        number = 0
        start = 0
        while True:
            if len(self._ends) == number:
                self._ends.append(start + len(self.epoch(number)))
            if step < self._ends[number]:
                return number, step - start
            start = self._ends[number]
            number += 1

    def batch(self, step: int) -> list[int]:
        """Numbers of the items of one step."""
        epoch, place = self.locate(step)
        return self.epoch(epoch)[place]

    def steps(self, epochs: float) -> int:
        """How many steps so many epochs have."""
        whole = int(epochs)
        for number in range(whole):
            self.locate(self._ends[number - 1] if number else 0)
        steps = self._ends[whole - 1] if whole else 0
        return steps + round((epochs - whole) * len(self.epoch(whole))) if epochs > whole else steps

    def _make(self, number: int) -> list[list[int]]:
        draw = random.Random(f"{self.seed} epoch {number}")
        order = list(range(len(self.lengths)))
        draw.shuffle(order)
        batches: list[list[int]] = []
        for stretch in chunks(order, self.STRETCH * self.max_items):
            batches += self._cut(sorted(stretch, key=self.lengths.__getitem__))
        draw.shuffle(batches)
        return batches

    def _cut(self, ordered: list[int]) -> Iterator[list[int]]:
        batch: list[int] = []
        tokens = 0
        for item in ordered:
            full = self.max_tokens is not None and tokens + self.lengths[item] > self.max_tokens
            if batch and (full or len(batch) == self.max_items):
                yield batch
                batch, tokens = [], 0
            batch.append(item)
            tokens += self.lengths[item]
        if batch:
            yield batch
