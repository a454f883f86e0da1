"""The loss of translation: each token of a target, given its source and the target's tokens before it.

    loss = sum over target tokens of  (1 - e) (-log p_y) + e mean over v of (-log p_v)

Teacher forcing: the model reads the target shifted right behind the start token, so the vector at position t predicts
token t. Label smoothing e is 0.1 in Vaswani et al. 2017, section 5.4 (nn/losses.py has the computation).

    target       the  cat  end              what is predicted
    shifted      start the cat              what the decoder reads
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

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
    """`tokens` are the sources, `targets` what is predicted (m,), and `shifted` what the decoder reads."""

    shifted: Tokens


class PairModel(Protocol):
    """What the loss needs of a model."""

    def __call__(self, source: Tokens, target: Tokens) -> Tensor:
        """A vector for each token of the target: (m, width)."""

    def vocabulary_scores(self, hidden: Tensor) -> Tensor:
        """(m, vocabulary)."""

    def vocabulary_loss(self, hidden: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """The sum of the losses of targets (m,)."""


@dataclass(frozen=True)
class Translation:
    """`start_id` stands before each target; `smoothing` is e."""

    start_id: int
    smoothing: float = 0.1
    head: str = "translate"

    def prepare(self, samples: Sequence[Sample], device: torch.device) -> PairBatch:
        """Pack both sides. Every target has at least its end token."""
        targets = pack([sample.target for sample in samples], device=device)
        assert min(targets.layout.lengths, default=1) > 0, "a target ends with its end token"
        shifted = targets.ids.roll(1)
        shifted[torch.tensor(targets.layout.starts, dtype=torch.long, device=device)] = self.start_id
        source = pack([sample.ids for sample in samples], device=device)
        counts = {self.head: float(targets.layout.tokens)}
        return PairBatch(source, targets.ids, counts, Tokens(shifted, targets.layout))

    def losses(self, model: PairModel, batch: Batch) -> dict[str, Tensor]:
        """Of the whole batch; subclasses may have the decoder read something else than the true target."""
        assert isinstance(batch, PairBatch)
        hidden = self.hidden(model, batch)
        return {self.head: model.vocabulary_loss(hidden, batch.targets, self.smoothing)}

    def hidden(self, model: PairModel, batch: PairBatch) -> Tensor:
        """A vector for each target token: (m, width)."""
        return model(batch.tokens, batch.shifted)

    def scores(self, model: PairModel, batch: Batch) -> Tensor:
        """(target tokens, vocabulary): all of them, so for small batches only."""
        assert isinstance(batch, PairBatch)
        return model.vocabulary_scores(model(batch.tokens, batch.shifted))
