"""MPNet: BERT that learns from permuted texts, and feels distances between tokens.

Idea: predict words in a random order, as XLNet does, but let every prediction know the positions of the whole text.
Departures from BERT:
  1. a bias per head for the bucketed distance of query and key, shared by all layers, besides the learned positions;
  2. positions start at 2, and there are no segments;
  3. text-level heads carry their own dense layer; no next-sentence prediction.
Paper: Song et al. 2020, "MPNet: Masked and Permuted Pre-training for Language Understanding".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kinfolk.errors import ConfigError
from kinfolk.models.bert import Bert, BertConfig
from kinfolk.models.config import renamed
from kinfolk.models.encoder_family import FEED_FORWARD, encoder_family, encoder_keys
from kinfolk.models.family import Preset
from kinfolk.models.roberta import DENSE, MASKED_LM, RobertaConfig
from kinfolk.nn.embeddings import BucketedBias


@dataclass(frozen=True)
class MPNetConfig(RobertaConfig):
    vocabulary_size: int = 30_527
    segments: int = 0
    distance_buckets: int = 32

    hf_names: ClassVar = renamed(RobertaConfig.hf_names, "segments", distance_buckets="relative_attention_num_buckets")
    hf_defaults: ClassVar[dict[str, Any]] = {"positions": 512, "norm_epsilon": 1e-12}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 4 <= self.distance_buckets < 512 or self.distance_buckets % 4:
            raise ConfigError(f"distance_buckets={self.distance_buckets} must be a multiple of 4 below 512")


class MPNet(Bert):
    def build_bias(self, config: BertConfig) -> BucketedBias | None:
        assert isinstance(config, MPNetConfig)
        return BucketedBias(config.distance_buckets, config.heads)


KEYS = encoder_keys(
    qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    parts=("attention.attn.o", "attention.LayerNorm", *FEED_FORWARD),
) | {"bias.table": "encoder.relative_attention_bias", "pooler": "pooler"}

FAMILY = encoder_family(
    "mpnet",
    "MPNet",
    title="MPNet",
    parent="bert",
    idea="BERT that learns from permuted texts and adds a bias for the distance between tokens",
    paper="Song et al. 2020",
    config=MPNetConfig,
    body=MPNet,
    presets={"mpnet-base": Preset(MPNetConfig(), "110M")},
    keys=KEYS,
    masked_lm=MASKED_LM,
    classify=DENSE,
)
