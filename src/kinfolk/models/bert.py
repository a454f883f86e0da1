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

from dataclasses import dataclass

from torch import Tensor, nn

from kinfolk.models.model import EncoderConfig, Family, Head, Joined, Keys, Preset
from kinfolk.parts.blocks import Block, Stack
from kinfolk.parts.crf import PathHead
from kinfolk.parts.embeddings import SummedEmbeddings
from kinfolk.parts.heads import MaskedHead, Pooler, TextHead, TokenHead
from kinfolk.parts.positions import BucketedBias
from kinfolk.parts.scopes import Full
from kinfolk.parts.tokens import Tokens
from kinfolk.parts.trace import Trace


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """BERT's settings are the family's defaults."""


class Bert(nn.Module):
    """tokens -> (tokens, width), through `build_…` slots that relatives override."""

    def __init__(self, config: EncoderConfig, pooler: bool = True):
        super().__init__()
        self.embeddings = self.build_embeddings(config)
        self.stack = self.build_stack(config)
        self.bias = self.build_bias(config)
        self.pooler = Pooler(config.width) if pooler else None

    def build_embeddings(self, config: EncoderConfig) -> nn.Module:
        return SummedEmbeddings(config, config.width)

    def build_block(self, config: EncoderConfig) -> nn.Module:
        return Block(config)

    def build_stack(self, config: EncoderConfig) -> nn.Module:
        return Stack([self.build_block(config) for _ in range(config.layers)])

    def build_bias(self, config: EncoderConfig) -> BucketedBias | None:
        return None

    @property
    def token_table(self) -> Tensor:
        """The token embedding (vocabulary, table width), which the masked-LM head shares."""
        return self.embeddings.tokens.weight  # type: ignore[union-attr, return-value]

    def forward(self, tokens: Tokens, trace: Trace | None = None, depth: int | None = None) -> Tensor:
        bound = Full().bind(tokens.layout)
        hidden = self.embeddings(tokens)
        if trace is not None:
            trace.begin(tokens.layout)
            trace.add_hidden(hidden)
        bias = None if self.bias is None else self.bias(bound)
        return self.stack(hidden, bound, bias, trace, depth)  # type: ignore[no-any-return]


PRESETS = {
    "bert-base-uncased": Preset(BertConfig(), "110M"),
    "bert-base-cased": Preset(BertConfig(vocabulary_size=28_996), "110M"),
    "bert-large-uncased": Preset(BertConfig(width=1024, layers=24, heads=16, inner_width=4096), "340M"),
    "bert-large-cased": Preset(
        BertConfig(vocabulary_size=28_996, width=1024, layers=24, heads=16, inner_width=4096), "340M"
    ),
    "bert-base-multilingual-cased": Preset(BertConfig(vocabulary_size=119_547), "110M"),
    "bert-base-chinese": Preset(BertConfig(vocabulary_size=21_128), "110M"),
}

THEIR_BLOCK = "encoder.layer.{}"
KEYS: Keys = {  # ours: theirs, below "bert."; the longest match wins
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.segments": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "stack.blocks.{}.attention.qkv": Joined(
        (
            f"{THEIR_BLOCK}.attention.self.query",
            f"{THEIR_BLOCK}.attention.self.key",
            f"{THEIR_BLOCK}.attention.self.value",
        )
    ),
    "stack.blocks.{}.attention.output": f"{THEIR_BLOCK}.attention.output.dense",
    "stack.blocks.{}.attention_norm": f"{THEIR_BLOCK}.attention.output.LayerNorm",
    "stack.blocks.{}.feed_forward.widen": f"{THEIR_BLOCK}.intermediate.dense",
    "stack.blocks.{}.feed_forward.narrow": f"{THEIR_BLOCK}.output.dense",
    "stack.blocks.{}.feed_forward_norm": f"{THEIR_BLOCK}.output.LayerNorm",
    "pooler": "pooler",
}


def masked_head(config: EncoderConfig, labels: int) -> nn.Module:
    """The masked-LM head that all encoders share."""
    return MaskedHead(config.width, config.table_width, config.vocabulary_size, config.activation, config.norm_epsilon)


def pooled_head(config: EncoderConfig, labels: int) -> nn.Module:
    """One linear layer on the pooler's output."""
    return TextHead(config.width, labels, "pooled", config.dropout)


def token_head(config: EncoderConfig, labels: int) -> nn.Module:
    """One linear layer on every token."""
    return TokenHead(config.width, labels, config.dropout)


def path_head(config: EncoderConfig, labels: int) -> nn.Module:
    """One linear layer on every token, and a random field over the tags of neighbours."""
    return PathHead(config.width, labels, config.dropout)


def span_head(config: EncoderConfig, labels: int) -> nn.Module:
    """Start and end scores for every token."""
    return TokenHead(config.width, 2, 0.0)


def choice_head(config: EncoderConfig, labels: int) -> nn.Module:
    """One score for an option, from the pooler's output."""
    return TextHead(config.width, 1, "pooled", config.dropout)


PATH = {"output": "classifier", "crf": "crf"}  # a tagger for everyone, and what only we read
HEADS = {
    "masked_lm": Head(
        masked_head,
        "BertForMaskedLM",
        {
            "transform": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "bias": "cls.predictions.bias",
            "table": "cls.predictions.decoder.weight",
        },
        duplicates={"cls.predictions.decoder.bias": "bias"},
    ),
    "next_sentence": Head(pooled_head, "BertForNextSentencePrediction", {"output": "cls.seq_relationship"}),
    "classify": Head(pooled_head, "BertForSequenceClassification", {"output": "classifier"}),
    "tag": Head(token_head, "BertForTokenClassification", {"output": "classifier"}),
    "tag_crf": Head(path_head, "BertForTokenClassification", PATH),
    "span": Head(span_head, "BertForQuestionAnswering", {"output": "qa_outputs"}),
    "choose": Head(choice_head, "BertForMultipleChoice", {"output": "classifier"}),
}

FAMILY = Family(
    name="bert",
    title="BERT",
    parent="kinfolk-transformer",
    idea="reads in both directions at once; learns by guessing hidden words and next sentences",
    paper="Devlin et al. 2018",
    config=BertConfig,
    body=Bert,
    prefix="bert",
    base_architecture="BertModel",
    pair_architecture="BertForPreTraining",
    presets=PRESETS,
    keys=KEYS,
    heads=HEADS,
)
