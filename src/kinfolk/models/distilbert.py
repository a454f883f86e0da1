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

from torch import nn

from kinfolk.models.bert import Bert, BertConfig
from kinfolk.models.encoder_family import IGNORED, block_keys, encoder_heads
from kinfolk.models.family import Family, Keys, Preset
from kinfolk.nn.heads import TextHead


@dataclass(frozen=True)
class DistilBertConfig(BertConfig):
    """Half the depth, no segments, and public names of its own."""

    layers: int = 6
    segments: int = 0

    hf_names: ClassVar[dict[str, str]] = {
        "vocabulary_size": "vocab_size",
        "width": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "inner_width": "hidden_dim",
        "positions": "max_position_embeddings",
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "init_std": "initializer_range",
        "pad_id": "pad_token_id",
    }
    hf_required: ClassVar[dict[str, Any]] = {"sinusoidal_pos_embds": False}


def dense_head(config: BertConfig, labels: int) -> nn.Module:
    """A dense ReLU layer and a linear one, on the first token."""
    return TextHead(config.width, labels, "first", 0.2, activation="relu")


PRESETS = {
    "distilbert-base-uncased": Preset(DistilBertConfig(), "66M"),
    "distilbert-base-cased": Preset(DistilBertConfig(vocabulary_size=28_996), "65M"),
    "distilbert-base-multilingual-cased": Preset(DistilBertConfig(vocabulary_size=119_547), "134M"),
}

KEYS: Keys = {  # ours: theirs, below "distilbert."; the longest match wins
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    **block_keys(
        "stack.blocks.{}",
        "transformer.layer.{}",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        output="attention.out_lin",
        attention_norm="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        norm="output_layer_norm",
    ),
}
MASKED_LM = {
    "transform": "vocab_transform",
    "norm": "vocab_layer_norm",
    "bias": "vocab_projector.bias",
    "table": "vocab_projector",
}
DENSE = {"dense": "pre_classifier", "output": "classifier"}  # its public checkpoints have no pooler

FAMILY = Family(
    name="distilbert",
    title="DistilBERT",
    parent="bert",
    idea="half the layers, taught by BERT: smaller and faster, nearly as good",
    paper="Sanh et al. 2019",
    config=DistilBertConfig,
    body=Bert,
    prefix="distilbert",
    base_architecture="DistilBertModel",
    presets=PRESETS,
    keys=KEYS,
    heads=encoder_heads(
        "DistilBert", MASKED_LM, classify=dense_head, choose=dense_head, classify_keys=DENSE, choose_keys=DENSE
    ),
    ignored=IGNORED,
)
