"""Batches by token budget: as many sequences as fit, neighbours of similar length, none cut or padded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Numbers of the sequences in each batch, shortest sequences first; a longer one than the budget stands alone.

    >>> list(token_batches([5, 2, 9, 2, 1], budget=6))
    [[4, 1, 3], [0], [2]]
    """
    batch: list[int] = []
    total = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and total + lengths[number] > budget:
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
