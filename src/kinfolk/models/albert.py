"""ALBERT: a BERT whose depth and vocabulary cost few weights.

Idea: memory limits how wide BERT can grow, so store little and use it often.
Departures from BERT:
  1. the embedding tables are narrow; one projection widens their sum to the hidden width;
  2. layers share weights: `groups` blocks (usually one) serve all layers;
  3. pre-training predicts sentence order, not next sentence;
  4. no dropout, and the tanh form of GELU.
Paper: Lan et al. 2019, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations", section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from kinfolk.models.bert import Bert, BertConfig
from kinfolk.models.encoder_family import TextForm, encoder_family, encoder_keys, masked_keys
from kinfolk.models.family import Preset
from kinfolk.nn.blocks import SharedStack, build_block
from kinfolk.nn.embeddings import SummedEmbeddings
from kinfolk.nn.fast.linear import Embedding, Linear
from kinfolk.nn.packed import Tokens


@dataclass(frozen=True)
class AlbertConfig(BertConfig):
    vocabulary_size: int = 30_000
    embedding_width: int = 128
    groups: int = 1
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation: str = "gelu_tanh"

    sizes: ClassVar = (*BertConfig.sizes, "embedding_width", "groups")
    hf_names: ClassVar = BertConfig.hf_names | {"embedding_width": "embedding_size", "groups": "num_hidden_groups"}
    hf_required: ClassVar[dict[str, Any]] = BertConfig.hf_required | {"inner_group_num": 1}
    hf_defaults: ClassVar[dict[str, Any]] = {"width": 4096, "heads": 64, "inner_width": 16_384}  # the xxlarge size

    @property
    def table_width(self) -> int:
        return self.embedding_width


class Albert(Bert):
    def build_embeddings(self, config: BertConfig) -> nn.Module:
        return WidenedEmbeddings(SummedEmbeddings(config, config.table_width), config.width)

    def build_stack(self, config: BertConfig) -> nn.Module:
        assert isinstance(config, AlbertConfig)
        return SharedStack([build_block(config) for _ in range(config.groups)], config.layers)

    @property
    def token_embedding(self) -> Embedding:
        return self.embeddings.narrow.tokens  # type: ignore[union-attr, return-value]


class WidenedEmbeddings(nn.Module):
    """(tokens, embedding_width) W + b: the factorised embedding."""

    def __init__(self, narrow: SummedEmbeddings, width: int):
        super().__init__()
        self.narrow = narrow
        self.widen = Linear(narrow.width, width)

    def forward(self, tokens: Tokens) -> Tensor:
        return self.widen(self.narrow(tokens))  # type: ignore[no-any-return]


PRESETS = {
    "albert-base-v2": Preset(AlbertConfig(), "12M"),
    "albert-large-v2": Preset(AlbertConfig(width=1024, layers=24, heads=16, inner_width=4096), "18M"),
    "albert-xlarge-v2": Preset(AlbertConfig(width=2048, layers=24, heads=16, inner_width=8192), "60M"),
    "albert-xxlarge-v2": Preset(AlbertConfig(width=4096, heads=64, inner_width=16_384), "235M"),
}

KEYS = encoder_keys(
    qkv=("attention.query", "attention.key", "attention.value"),
    parts=("attention.dense", "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm"),
    layer="encoder.albert_layer_groups.{}.albert_layers.0",
    embeddings="embeddings.narrow",
) | {"embeddings.widen": "encoder.embedding_hidden_mapping_in", "pooler.dense": "pooler"}

FAMILY = encoder_family(
    "albert",
    "Albert",
    title="ALBERT",
    parent="bert",
    idea="all layers share one set of weights, and the embedding is narrow: eighteen times fewer parameters",
    paper="Lan et al. 2019",
    config=AlbertConfig,
    body=Albert,
    presets=PRESETS,
    keys=KEYS,
    masked_lm=masked_keys("predictions", "dense", "LayerNorm", "bias", "decoder"),
    pretraining={"sentence_order": TextForm(keys={"output": "sop_classifier.classifier"}).head("AlbertForPreTraining")},
)
