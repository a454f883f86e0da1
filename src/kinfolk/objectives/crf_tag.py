"""Tags as paths: a sentence loses -log p(its tags), with p from a linear-chain random field (nn/crf.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from kinfolk.nn.packed import Layout
from kinfolk.objectives.objective import Batch, Scorer
from kinfolk.objectives.supervised import IGNORED, WordTask


class PathScorer(Scorer, Protocol):
    """A model with a random field in its head."""

    @property
    def heads(self) -> Mapping[str, Any]:
        """Heads by name; ours has a `crf`."""


@dataclass(frozen=True)
class CrfTag(WordTask):
    """The chain links the first pieces of words; tokens without a tag are not part of it. The mean is over words."""

    head: str = "tag_crf"

    def loss(self, model: PathScorer, prepared: Batch) -> Tensor:
        layout, tagged = prepared.tokens.layout, prepared.targets != IGNORED
        emissions, tags = self.scores(model, prepared)[tagged], prepared.targets[tagged]
        words = torch.bincount(layout.owners[tagged], minlength=layout.sequences).tolist()
        chains = Layout(tuple(count for count in words if count), layout.device)
        if not chains.sequences:
            return emissions.sum()
        crf = model.heads[self.head].crf
        total: Tensor = (crf.log_partition(emissions, chains) - crf.score(emissions, tags, chains)).sum()
        return total
