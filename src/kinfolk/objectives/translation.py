"""The loss of translation: each token of a target, given its source and the target's tokens before it.

    loss = sum over target tokens of  (1 - e) (-log p_y) + e mean over v of (-log p_v)

Teacher forcing: the model reads the target shifted right behind the start token, so the vector at place t tells of
token t. Label smoothing e is 0.1 in Vaswani et al. 2017, section 5.4 (nn/losses.py has the computation).

    target       the  cat  end              what is asked for
    shifted      start the cat              what the decoder reads
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kinfolk.nn.losses import chunked_cross_entropy
from kinfolk.nn.packed import Tokens, pack
from kinfolk.objectives.objective import Batch, Sample


@dataclass(frozen=True, slots=True)
class PairSample(Sample):
    """A source (`ids`) and its `target`, a list of ids that ends with the end token; the length is that of both."""

    def __len__(self) -> int:
        return len(self.ids) + len(self.target)


def pair_sample(source: list[int], target: list[int], example: int) -> PairSample:
    """One pair, ready to be packed."""
    return PairSample(source, [], target, example)


@dataclass(frozen=True)
class PairBatch(Batch):
    """`tokens` are the sources, `targets` what is asked for (m,), and `shifted` what the decoder reads."""

    shifted: Tokens


class PairModel(Protocol):
    """What the loss needs of a model."""

    @property
    def output_table(self) -> Tensor:
        """(vocabulary, width): what vectors are scored with."""

    @property
    def output_bias(self) -> Tensor | None:
        """(vocabulary,)."""

    def __call__(self, source: Tokens, target: Tokens) -> Tensor:
        """A vector for each token of the target: (m, width)."""

    def scores(self, hidden: Tensor) -> Tensor:
        """(m, vocabulary)."""


@dataclass(frozen=True)
class Translation:
    """`start_id` stands before each target; `smoothing` is e."""

    start_id: int
    smoothing: float = 0.1
    head: str = "translate"

    def prepare(self, items: Sequence[Sample], device: torch.device) -> PairBatch:
        """Pack both sides. Every target has at least its end token."""
        asked = pack([item.target for item in items], device=device)
        assert min(asked.layout.lengths, default=1) > 0, "a target ends with its end token"
        before = asked.ids.roll(1)
        before[torch.tensor(asked.layout.starts, dtype=torch.long, device=device)] = self.start_id
        return PairBatch(
            pack([item.ids for item in items], device=device),
            asked.ids,
            float(asked.layout.tokens),
            tuple(item.example for item in items),
            Tokens(before, asked.layout),
        )

    def loss(self, model: PairModel, prepared: Batch) -> Tensor:
        assert isinstance(prepared, PairBatch)
        hidden = model(prepared.tokens, prepared.shifted)
        return chunked_cross_entropy(hidden, model.output_table, model.output_bias, prepared.targets, self.smoothing)

    def scores(self, model: PairModel, prepared: Batch) -> Tensor:
        """(target tokens, vocabulary): all of them, so for small batches only."""
        assert isinstance(prepared, PairBatch)
        return model.scores(model(prepared.tokens, prepared.shifted))
