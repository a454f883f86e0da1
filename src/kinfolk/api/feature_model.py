"""A model whose body is a file: features looked up, and a readout that learns on them.

To the trainer, the objectives and the tasks it is a model like others; only the readout has weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinfolk.api.feature_cache import Features
from kinfolk.data.batching import BATCH_TOKENS, token_batches
from kinfolk.models.family import Family, Model
from kinfolk.nn.heads import ProbeConfig, ProbeHead
from kinfolk.nn.packed import Tokens
from kinfolk.objectives.objective import Sample, pack_samples


class FeatureModel(Model):
    """Heads that read layers, on the features of an encoder of this family."""

    def __init__(self, family: Family, config: Any, heads: Mapping[str, ProbeHead], features: Features):
        nn.Module.__init__(self)  # a body is not built: it has spoken already
        self.family, self.config, self.features = family, config, features
        self.heads = nn.ModuleDict(heads)

    def layer_ids(self) -> dict[str, int]:
        """All that learns stands on the same height."""
        return {name: 0 for name, _ in self.named_parameters()}

    def embedding_only_read(self) -> None:
        """It has none."""

    def hidden_for(self, name: str, tokens: Tokens) -> Tensor:
        """The layers that the head reads, (layers, tokens, width)."""
        return self.features.look_up(tokens, self.heads[name].layers)  # type: ignore[arg-type]

    def vectors(self, name: str, items: Sequence[Sample]) -> np.ndarray:
        """What the linear layer of a pooling head reads of each item, (items, width)."""
        readout: ProbeHead = self.heads[name]  # type: ignore[assignment]
        rows = np.empty((len(items), readout.output.in_features), dtype=np.float32)
        with torch.inference_mode():
            for batch in token_batches([len(item) for item in items], BATCH_TOKENS):
                tokens = pack_samples([items[number] for number in batch], self.config.segments, self.device)
                rows[batch] = readout.vectors(self.hidden_for(name, tokens), tokens.layout).cpu().numpy()
        return rows


def init_probe(config: ProbeConfig, seed: int) -> ProbeHead:
    """A readout that starts at random, from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ProbeHead(config)


def scaled(config: ProbeConfig, features: Features) -> ProbeConfig:
    """The same readout on vectors whose numbers have a standard deviation of one."""
    with torch.inference_mode():
        found = features.deviation(config.layers, ProbeHead(config).joined)
    return replace(config, scale=1 / found if found > 0 else 1.0)
