"""What the families of encoders repeat: their record, their heads, and the public names of their tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from kinfolk.models.family import Family, Head, Keys, Source
from kinfolk.nn.crf import CrfHead
from kinfolk.nn.fast.linear import ActivatedLinear, Norm
from kinfolk.nn.heads import Reads, TextHead, VocabularyHead

CLASSIFIER: Keys = {"output": "classifier"}
SPAN: Keys = {"output": "qa_outputs"}

PARTS = ("attention.output", "attention_norm", "feed_forward.up", "feed_forward.down", "feed_forward_norm")
FEED_FORWARD = ("intermediate.dense", "output.dense", "output.LayerNorm")  # BERT's names of the last three


class TextForm(NamedTuple):
    """How a family scores texts or tokens: what the head reads, the activation of a dense layer, its tensors' names."""

    reads: Reads = "pooled"
    activation: str | None = None  # None: no dense layer
    keys: Keys = CLASSIFIER
    dropout: float | None = None  # None: the config's
    bias: bool = True

    def head(self, architecture: str, only: int | None = None) -> Head:
        def build(config: Any, labels: int) -> nn.Module:
            dropout = config.dropout if self.dropout is None else self.dropout
            return TextHead(config.width, only or labels, self.reads, dropout, self.activation, self.bias)

        return Head(build, architecture, self.keys)


POOLED = TextForm()


def masked_head(config: Any, labels: int) -> nn.Module:
    """BERT's: a dense layer, its activation and a norm, then the table of tokens."""
    transform = ActivatedLinear(config.width, config.table_width, config.activation)
    norm = Norm(config.table_width, config.norm_epsilon)
    return VocabularyHead(config.table_width, config.vocabulary_size, transform=transform, norm=norm)


def task_heads(name: str, classify: TextForm = POOLED, choose: TextForm = POOLED) -> dict[str, Head]:
    """Heads for classes, tags and choices. `name` begins the public classes: `BertForTokenClassification`."""
    tagger, with_crf = f"{name}ForTokenClassification", {**CLASSIFIER, "crf": "crf"}  # the field only we read
    return {
        "classify": classify.head(f"{name}ForSequenceClassification"),
        "tag": TextForm("tokens").head(tagger),
        "tag_crf": Head(lambda config, labels: CrfHead(config.width, labels, config.dropout), tagger, with_crf),
        "choose": choose.head(f"{name}ForMultipleChoice", only=1),
    }


def encoder_family(
    name: str,
    public: str,
    masked_lm: Keys,
    pretraining: Mapping[str, Head] | None = None,
    classify: TextForm = POOLED,
    choose: TextForm = POOLED,
    **record: Any,
) -> Family:
    """The record of an encoder: `public` begins its public classes, `pretraining` is a head that it learns with too."""
    table_bias = f"{masked_lm['table']}.bias"  # where the reference stores the bias again, unless it lies there
    duplicates = {} if masked_lm["bias"] == table_bias else {table_bias: "bias"}
    heads = {
        "masked_lm": Head(masked_head, f"{public}ForMaskedLM", masked_lm, duplicates),
        **task_heads(public, classify, choose),
        "span": TextForm("tokens", keys=SPAN, dropout=0.0).head(f"{public}ForQuestionAnswering", only=2),
        **(pretraining or {}),
    }
    if pretraining:
        record |= {"joint_architecture": f"{public}ForPreTraining", "pretraining_heads": ("masked_lm", *pretraining)}
    return Family(
        name=name,
        prefix=name,
        base_architecture=f"{public}Model",
        heads=heads,
        ignored=("embeddings.position_ids", "embeddings.token_type_ids"),
        **record,
    )


def masked_keys(prefix: str, transform: str, norm: str, bias: str, table: str) -> dict[str, str]:
    parts = {"transform": transform, "norm": norm, "bias": bias, "table": table}
    return {part: f"{prefix}.{name}" if prefix else name for part, name in parts.items()}


def encoder_keys(
    qkv: Sequence[str], parts: Sequence[str], layer: str = "encoder.layer.{}", embeddings: str = "embeddings"
) -> dict[str, Any]:
    """The tensors of an encoder whose public embeddings are called as BERT's; the rest as in `block_keys`."""
    return {
        f"{embeddings}.tokens": "embeddings.word_embeddings",
        f"{embeddings}.positions": "embeddings.position_embeddings",
        f"{embeddings}.segments": "embeddings.token_type_embeddings",
        f"{embeddings}.norm": "embeddings.LayerNorm",
        **block_keys("stack.blocks.{}", layer, qkv, parts),
    }


def block_keys(ours: str, theirs: str, qkv: Sequence[str], parts: Sequence[str]) -> dict[str, str | Source]:
    """The tensors of a block: `ours` and `theirs` are its place in a stack, the rest is what they call `PARTS`."""
    keys = {f"{ours}.{part}": f"{theirs}.{name}" for part, name in zip(PARTS, parts, strict=True)}
    return {f"{ours}.attention.qkv": Source(tuple(f"{theirs}.{part}" for part in qkv))} | keys
