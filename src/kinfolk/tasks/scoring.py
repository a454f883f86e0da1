"""Scores of a text-level head: tokenise, pack, run, put the windows of long texts together.

A long text is scored window by window; its scores are the mean of its windows', weighted by the tokens that belong to
each. Training sees every window with the label of its text. A pair of two long texts stops nothing: the shorter one is
cut where it must be, and the caller reports how much that was (see windows.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfolk.api.embed import BATCH_TOKENS
from kinfolk.data.batching import token_batches
from kinfolk.models.family import Model
from kinfolk.objectives.objective import Batch, Objective, Sample
from kinfolk.tasks.windows import CutCount, pieces
from kinfolk.text.tokenizer import Text, Tokenizer


@dataclass(frozen=True)
class ScoredItems:
    """Items of some texts, with each item's weight in the scores of its text."""

    items: list[Sample]
    weights: list[int]
    texts: int


def text_items(
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    targets: Sequence[Any],
    size: int,
    stride: int | None,
    cut: CutCount,
    place: Callable[[int], str],
) -> ScoredItems:
    """One item per text or, where it is longer than `size` tokens, per window; neighbours share `stride` tokens."""
    found = pieces(tokenizer, texts, size, "window", cut, place, stride, shorten=True)
    items = [Sample(part.encoding.ids, part.encoding.segments, targets[part.text], part.text) for part in found]
    return ScoredItems(items, [part.weight for part in found], len(texts))


def scored_batches(
    model: Model, objective: Objective, items: Sequence[Sample]
) -> Iterator[tuple[list[int], Batch, Tensor]]:
    """The numbers of the items in each batch, the batch, and what the head says of it."""
    for batch in token_batches([len(item) for item in items], BATCH_TOKENS):
        with torch.inference_mode():
            prepared = objective.prepare([items[number] for number in batch], model.device)
            found = objective.scores(model, prepared).float().cpu()
        yield batch, prepared, found


def score(model: Model, objective: Objective, scored: ScoredItems) -> np.ndarray:
    """(texts, labels), in the order of the texts."""
    rows: list[np.ndarray] = [np.empty(0)] * len(scored.items)
    for batch, _, found in scored_batches(model, objective, scored.items):
        for number, row in zip(batch, found.numpy(), strict=True):
            rows[number] = row
    owners = np.array([item.example for item in scored.items])
    weights = np.array(scored.weights, dtype=np.float32)[:, None]
    totals = np.zeros((scored.texts, len(rows[0])), dtype=np.float32)
    shares = np.zeros((scored.texts, 1), dtype=np.float32)
    np.add.at(totals, owners, np.stack(rows) * weights)
    np.add.at(shares, owners, weights)
    return totals / shares
