"""BERT: a Transformer encoder that reads a text in both directions at once.

Idea: hide some words, and let every token look at all others to guess them; what it learns serves any task.
Departures from the Transformer's encoder:
  1. positions are learned, and a third table tells the two texts of a pair apart;
  2. the embeddings are normed before the first block, and the activation is GELU;
  3. the first token, [CLS], stands for the whole text: a pooler on top of it feeds text-level heads;
  4. pre-training predicts hidden words and whether the second text follows the first.
Paper: Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from kinfolk.errors import ConfigError
from kinfolk.models.config import Config
from kinfolk.models.encoder_family import FEED_FORWARD, TextForm, encoder_family, encoder_keys, masked_keys
from kinfolk.models.family import Preset
from kinfolk.nn.activations import ACTIVATIONS
from kinfolk.nn.blocks import Stack, build_block
from kinfolk.nn.embeddings import BucketedBias, SummedEmbeddings
from kinfolk.nn.fast.linear import Embedding, Linear
from kinfolk.nn.packed import Layout, Tokens
from kinfolk.nn.scopes import Full, Scope
from kinfolk.nn.trace import Trace

BLOCK = re.compile(r"\bblocks\.(\d+)\.")


@dataclass(frozen=True)
class BertConfig(Config):
    """Defaults, those of `Config` too, are BERT base's; its relatives state what differs."""

    layers: int = 12
    segments: int = 2
    init_std: float = 0.02
    heads: int = 12
    inner_width: int = 3072
    activation: str = "gelu"
    attention_dropout: float = 0.1
    norm_epsilon: float = 1e-12

    sizes: ClassVar = (*Config.sizes, "heads", "inner_width")
    choices: ClassVar = {"activation": tuple(ACTIVATIONS)}
    hf_names: ClassVar[dict[str, str]] = {
        "vocabulary_size": "vocab_size", "width": "hidden_size", "layers": "num_hidden_layers",
        "heads": "num_attention_heads", "inner_width": "intermediate_size",
        "positions": "max_position_embeddings", "segments": "type_vocab_size", "activation": "hidden_act",
        "dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob",
        "norm_epsilon": "layer_norm_eps", "init_std": "initializer_range", "pad_id": "pad_token_id",
    }  # fmt: skip
    hf_required: ClassVar[dict[str, Any]] = {"position_embedding_type": "absolute", "is_decoder": False}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ConfigError(f"width {self.width} cannot be cut into {self.heads} heads of equal size")


class Pooler(nn.Module):
    """tanh(W x + b) on the first token's vector: (sequences, width) -> (sequences, width)."""

    def __init__(self, width: int):
        super().__init__()
        self.dense = Linear(width, width)

    def forward(self, first: Tensor) -> Tensor:
        return torch.tanh(self.dense(first))


class Bert(nn.Module):
    """tokens -> (tokens, width), through `build_…` slots that relatives override."""

    scope: Scope = Full()

    def __init__(self, config: BertConfig, pooler: bool = False):
        super().__init__()
        self.depth = config.layers
        self.embeddings = self.build_embeddings(config)
        self.stack = self.build_stack(config)
        self.bias = self.build_bias(config)
        self.pooler = Pooler(config.width) if pooler else None

    def build_embeddings(self, config: BertConfig) -> nn.Module:
        return SummedEmbeddings(config, config.width)

    def build_stack(self, config: BertConfig) -> nn.Module:
        return Stack([build_block(config) for _ in range(config.layers)])

    def build_bias(self, config: BertConfig) -> BucketedBias | None:
        return None

    @property
    def token_embedding(self) -> Embedding:
        return self.embeddings.tokens  # type: ignore[return-value]

    def layer_id(self, name: str) -> int:
        """The layer that a weight belongs to, from 1, and 0 for embeddings; of several that share it the highest."""
        if name.startswith("pooler."):
            return self.depth + 1
        match, blocks = BLOCK.search(name), len(self.stack.blocks)  # type: ignore[arg-type]
        # Block b serves the layers i with i * blocks // layers == b; the highest of them, counted from 1:
        return math.ceil((int(match[1]) + 1) * self.stack.layers / blocks) if match else 0  # type: ignore[operator]

    def forward(self, tokens: Tokens, trace: Trace | None = None, depth: int | None = None) -> Tensor:
        plan = self.scope.plan(tokens.layout)
        hidden = self.embeddings(tokens)
        if trace is not None:
            trace.begin(tokens.layout, hidden)
        bias = None if self.bias is None else self.bias(plan)
        return self.stack(hidden, plan, bias, trace, depth)  # type: ignore[no-any-return]

    def first(self, tokens: Tokens) -> Tensor:
        """Vectors of the last layer, of each text's first token alone: (texts, width).

        The other tokens are not taken through that layer's second half, which is three quarters of it.
        """
        layout, last = tokens.layout, self.stack.layers - 1  # type: ignore[operator]
        if last < 0:
            return layout.first(self.embeddings(tokens))
        hidden = self(tokens, depth=last)
        plan = self.scope.plan(Layout((1,) * layout.sequences, layout.device), layout, layout.first_rows)
        bias = None if self.bias is None else self.bias(plan)
        return self.stack.block(last)(hidden, plan, bias)  # type: ignore[operator, no-any-return]


ROUGHLY = "110M, as the English one; its vocabulary is another"
LARGE = BertConfig(width=1024, layers=24, heads=16, inner_width=4096)
PRESETS = {
    "bert-base-uncased": Preset(BertConfig(), "110M"),
    "bert-base-cased": Preset(BertConfig(vocabulary_size=28_996), "110M"),
    "bert-large-uncased": Preset(LARGE, "340M"),
    "bert-large-cased": Preset(replace(LARGE, vocabulary_size=28_996), "340M"),
    # Turc et al. 2019
    "bert-tiny": Preset(BertConfig(width=128, layers=2, heads=2, inner_width=512), "4.4M"),
    "bert-mini": Preset(BertConfig(width=256, layers=4, heads=4, inner_width=1024), "11.3M"),
    "bert-small": Preset(BertConfig(width=512, layers=4, heads=8, inner_width=2048), "29.1M"),
    "bert-medium": Preset(BertConfig(width=512, layers=8, heads=8, inner_width=2048), "41.7M"),
    "bert-base-multilingual-cased": Preset(BertConfig(vocabulary_size=119_547), ROUGHLY),
    "bert-base-chinese": Preset(BertConfig(vocabulary_size=21_128), ROUGHLY),
}

# Ours: theirs, below "bert."; the longest match wins.
KEYS = encoder_keys(
    qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
    parts=("attention.output.dense", "attention.output.LayerNorm", *FEED_FORWARD),
) | {"pooler": "pooler"}
NEXT_SENTENCE = TextForm(keys={"output": "cls.seq_relationship"})

FAMILY = encoder_family(
    "bert",
    "Bert",
    title="BERT",
    parent="kinfolk-transformer",
    idea="reads in both directions at once; learns by guessing hidden words and next sentences",
    paper="Devlin et al. 2018",
    config=BertConfig,
    body=Bert,
    presets=PRESETS,
    keys=KEYS,
    masked_lm=masked_keys("cls.predictions", "transform.dense", "transform.LayerNorm", "bias", "decoder"),
    pretraining={"next_sentence": NEXT_SENTENCE.head("BertForNextSentencePrediction")},
)
