"""Gated BERT: a toy that does not ship, written by the six steps of CONTRIBUTING.md.

Idea: a block that begins with its attention half open learns how much of it the text needs.
Departures from BERT:
  1. the activation is ReLU;
  2. one learned number in each block multiplies what attention adds; it starts at a half.
Paper: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kinfolk.models.bert import KEYS, NEXT_SENTENCE, Bert, BertConfig
from kinfolk.models.encoder_family import encoder_family, masked_keys
from kinfolk.models.family import Preset, init_normal


@dataclass(frozen=True)
class GatedConfig(BertConfig):
    activation: str = "relu"


class Gated(nn.Module):
    """gate * f(x)"""

    def __init__(self, gated: nn.Module):
        super().__init__()
        self.gated, self.gate = gated, nn.Parameter(torch.tensor(0.5))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.gate * self.gated(hidden)


class GatedBert(Bert):
    def build_stack(self, config: BertConfig) -> nn.Module:
        stack: Any = super().build_stack(config)
        for block in stack.blocks:
            block.attention.output = Gated(block.attention.output)
        return stack  # type: ignore[no-any-return]


@torch.no_grad()
def init_gated(model: Any, seed: int = 0) -> None:
    """As BERT, with all gates at a half."""
    init_normal(model, seed)
    for block in model.body.stack.blocks:
        block.attention.output.gate.fill_(0.5)


FAMILY = encoder_family(
    "kinfolk-gated",
    "Gated",
    title="Gated BERT",
    parent="bert",
    idea="learns how much attention each block needs",
    paper="none",
    config=GatedConfig,
    body=GatedBert,
    presets={"gated-tiny": Preset(GatedConfig(width=32, layers=2, heads=2, inner_width=64))},
    keys=KEYS
    | {
        "stack.blocks.{}.attention.output.gated": "encoder.layer.{}.attention.output.dense",
        "stack.blocks.{}.attention.output.gate": "encoder.layer.{}.attention.output.gate",
    },
    masked_lm=masked_keys("cls.predictions", "transform.dense", "transform.LayerNorm", "bias", "decoder"),
    pretraining={"next_sentence": NEXT_SENTENCE.head("GatedForNextSentencePrediction")},
    initialize=init_gated,
)
