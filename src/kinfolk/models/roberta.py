"""RoBERTa: BERT, trained longer and on more, without the second task.

Idea: BERT was undertrained; its architecture needs no change.
Departures from BERT:
  1. byte-level BPE with 50,265 pieces instead of WordPiece;
  2. positions start at 2: the rows 0 and 1 of the table belong to padding and are never read;
  3. one segment; no next-sentence prediction, so text-level heads carry their own dense layer;
  4. masks are drawn anew each time a text is seen.
Paper: Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinfolk.models.bert import KEYS, Bert, BertConfig
from kinfolk.models.encoder_family import TextForm, encoder_family, masked_keys
from kinfolk.models.family import Preset


@dataclass(frozen=True)
class RobertaConfig(BertConfig):
    vocabulary_size: int = 50_265
    positions: int = 514
    segments: int = 1
    norm_epsilon: float = 1e-5
    pad_id: int = 1

    hf_defaults: ClassVar[dict[str, Any]] = {"positions": 512, "segments": 2, "norm_epsilon": 1e-12}

    @property
    def first_position(self) -> int:
        return self.pad_id + 1


LARGE = RobertaConfig(width=1024, layers=24, heads=16, inner_width=4096)
PRESETS = {
    "roberta-base": Preset(RobertaConfig(), "125M"),
    "roberta-large": Preset(LARGE, "355M"),
    "distilroberta-base": Preset(RobertaConfig(layers=6), "82M"),
}

MASKED_LM = masked_keys("lm_head", "dense", "layer_norm", "bias", "decoder")
DENSE = TextForm("first", "tanh", {"dense": "classifier.dense", "output": "classifier.out_proj"})

FAMILY = encoder_family(
    "roberta",
    "Roberta",
    title="RoBERTa",
    parent="bert",
    idea="BERT trained longer on more text: byte-level pieces, masks drawn anew, no next sentence",
    paper="Liu et al. 2019",
    config=RobertaConfig,
    body=Bert,
    presets=PRESETS,
    keys=KEYS,
    masked_lm=MASKED_LM,
    classify=DENSE,
)
