"""What the families of encoders repeat: their heads, and the public names of a block's tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from kinfolk.models.family import Head, Joined, Keys
from kinfolk.nn.fast.linear import ActivatedLinear, Norm
from kinfolk.nn.heads import CrfHead, TextHead, TokenHead, VocabularyHead

IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids")  # public tensors that hold no weights
CLASSIFIER: Keys = {"output": "classifier"}

Build = Callable[[Any, int], nn.Module]


def masked_head(config: Any, labels: int) -> nn.Module:
    """BERT's: a dense layer, its activation and a norm, then the table of tokens."""
    transform = ActivatedLinear(config.width, config.table_width, config.activation)
    norm = Norm(config.table_width, config.norm_epsilon)
    return VocabularyHead(config.table_width, config.vocabulary_size, transform=transform, norm=norm)


def pooled_head(config: Any, labels: int) -> nn.Module:
    """One linear layer on the pooler's output."""
    return TextHead(config.width, labels, "pooled", config.dropout)


def dense_head(config: Any, labels: int) -> nn.Module:
    """A dense tanh layer and a linear one, on the first token."""
    return TextHead(config.width, labels, "first", config.dropout, activation="tanh")


def last_head(config: Any, labels: int) -> nn.Module:
    """One linear layer on what has read the whole text."""
    return TextHead(config.width, labels, "last", config.dropout)


def task_heads(
    name: str,
    classify: Build = pooled_head,
    choose: Build = pooled_head,
    classify_keys: Keys = CLASSIFIER,
    choose_keys: Keys = CLASSIFIER,
) -> dict[str, Head]:
    """Heads for classes, tags and choices. `name` begins the public classes: `BertForTokenClassification`."""
    return {
        "classify": Head(classify, f"{name}ForSequenceClassification", classify_keys),
        "tag": Head(
            lambda config, labels: TokenHead(config.width, labels, config.dropout),
            f"{name}ForTokenClassification",
            CLASSIFIER,
        ),
        "tag_crf": Head(
            lambda config, labels: CrfHead(config.width, labels, config.dropout),
            f"{name}ForTokenClassification",
            {**CLASSIFIER, "crf": "crf"},  # a tagger for everyone, and what only we read
        ),
        "choose": Head(lambda config, labels: choose(config, 1), f"{name}ForMultipleChoice", choose_keys),
    }


def encoder_heads(name: str, masked_lm: Keys, **tasks: Any) -> dict[str, Head]:
    """The heads of every encoder; `masked_lm` says where the tensors of that one lie, `tasks` is as in `task_heads`."""
    table_bias = f"{masked_lm['table']}.bias"  # where the reference stores the bias again, unless it lies there
    duplicates = {} if masked_lm["bias"] == table_bias else {table_bias: "bias"}
    return {
        "masked_lm": Head(masked_head, f"{name}ForMaskedLM", masked_lm, duplicates),
        **task_heads(name, **tasks),
        "span": Head(
            lambda config, labels: TokenHead(config.width, 2, 0.0),
            f"{name}ForQuestionAnswering",
            {"output": "qa_outputs"},
        ),
    }


def block_keys(
    ours: str, theirs: str, qkv: tuple[str, ...], output: str, attention_norm: str, up: str, down: str, norm: str
) -> dict[str, str | Joined]:
    """The tensors of a block: `ours` and `theirs` are its place in a stack, the rest is what they call its parts."""
    return {
        f"{ours}.attention.qkv": Joined(tuple(f"{theirs}.{part}" for part in qkv)),
        f"{ours}.attention.output": f"{theirs}.{output}",
        f"{ours}.attention_norm": f"{theirs}.{attention_norm}",
        f"{ours}.feed_forward.up": f"{theirs}.{up}",
        f"{ours}.feed_forward.down": f"{theirs}.{down}",
        f"{ours}.feed_forward_norm": f"{theirs}.{norm}",
    }
