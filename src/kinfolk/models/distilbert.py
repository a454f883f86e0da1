"""DistilBERT: half of BERT's layers, taught by BERT itself.

Idea: a small student that imitates a large teacher keeps most of what it knows.
Departures from BERT:
  1. half the layers, started from every other layer of the teacher;
  2. no segments and no pooler; text-level heads carry their own dense layer;
  3. training adds the teacher's soft predictions and the direction of its vectors to the hidden-word loss.
Paper: Sanh et al. 2019, "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinfolk.models.bert import Bert, BertConfig
from kinfolk.models.config import renamed
from kinfolk.models.encoder_family import TextForm, encoder_family, encoder_keys, masked_keys
from kinfolk.models.family import Preset


@dataclass(frozen=True)
class DistilBertConfig(BertConfig):
    layers: int = 6
    segments: int = 0

    hf_names: ClassVar = renamed(
        BertConfig.hf_names,
        "segments norm_epsilon",
        width="dim", layers="n_layers", heads="n_heads", inner_width="hidden_dim",
        activation="activation", dropout="dropout", attention_dropout="attention_dropout",
    )  # fmt: skip
    hf_required: ClassVar[dict[str, Any]] = {"sinusoidal_pos_embds": False}


PRESETS = {
    "distilbert-base-uncased": Preset(DistilBertConfig(), "66M"),
    "distilbert-base-cased": Preset(DistilBertConfig(vocabulary_size=28_996), "65M"),
    "distilbert-base-multilingual-cased": Preset(DistilBertConfig(vocabulary_size=119_547), "134M"),
}

KEYS = encoder_keys(
    qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    parts=("attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
    layer="transformer.layer.{}",
)
DENSE = TextForm("first", "relu", {"dense": "pre_classifier", "output": "classifier"}, dropout=0.2)

FAMILY = encoder_family(
    "distilbert",
    "DistilBert",
    title="DistilBERT",
    parent="bert",
    idea="half the layers, taught by BERT: smaller and faster, nearly as good",
    paper="Sanh et al. 2019",
    config=DistilBertConfig,
    body=Bert,
    presets=PRESETS,
    keys=KEYS,
    masked_lm=masked_keys("", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector"),
    classify=DENSE,
    choose=DENSE,
)
