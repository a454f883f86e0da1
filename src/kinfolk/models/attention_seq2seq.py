"""Attention in sequence to sequence: while it writes, the decoder looks back at every state of the encoder.

Idea: one state cannot hold a long sentence; let each step of the decoder choose what to look at.
Departure from Seq2Seq: after each step the decoder's vector is scored against every vector of the encoder (dot product,
bilinear form or additive); the softmax of the scores mixes them into a context vector, and the prediction is made from
both, tanh(W [h; c]) (nn/scores.py). That vector is not fed to the next step, so under teacher forcing the
decoder runs over the whole target at once.
Papers: Bahdanau et al. 2014, "Neural Machine Translation by Jointly Learning to Align and Translate"; Luong et al.
2015, "Effective Approaches to Attention-based Neural Machine Translation", whose drawing this is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kinfolk.errors import ConfigError
from kinfolk.models import seq2seq
from kinfolk.models.family import Preset
from kinfolk.models.seq2seq import Seq2Seq, Seq2SeqConfig
from kinfolk.nn.scores import SCORES, LuongAttention, build_score


@dataclass(frozen=True)
class AttentionConfig(Seq2SeqConfig):
    """`score_width` is the inner width of the additive score; 0: as wide as the decoder."""

    score: str = "bilinear"
    score_width: int = 0

    choices: ClassVar = Seq2SeqConfig.choices | {"score": tuple(SCORES)}
    # Folders say "perceptron" for the additive score, as 0.1.0 did.
    hf_values: ClassVar = Seq2SeqConfig.hf_values | {
        "score": {"dot": "dot", "bilinear": "bilinear", "perceptron": "additive"}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score == "dot" and self.source_width != self.hidden:
            raise ConfigError(
                f"score dot: vectors of width {self.hidden} and {self.source_width} have no product; "
                "choose bilinear, or bidirectional=false"
            )


class AttentionSeq2Seq(Seq2Seq):
    """As Seq2Seq, with a look back at the source."""

    def build_look_back(self, config: Any) -> LuongAttention:
        width, source_width = config.hidden, config.source_width
        score = build_score(config.score, width, source_width, config.score_width or width)
        return LuongAttention(score, width, source_width)


LUONG = AttentionConfig(
    vocabulary_size=50_000, width=1000, hidden=1000, layers=4, bidirectional=False, shared_tables=False, tied=False
)
FAMILY = replace(
    seq2seq.FAMILY,
    name="kinfolk-attention",
    title="Attention Seq2Seq",
    parent="kinfolk-seq2seq",
    idea="the decoder looks back at every state of the encoder",
    paper="Luong et al. 2015",
    config=AttentionConfig,
    body=AttentionSeq2Seq,
    heads={"next_token": replace(seq2seq.NEXT_TOKEN, architecture="AttentionSeq2Seq")},
    presets={
        "attention-small": Preset(AttentionConfig(vocabulary_size=8_000), ""),
        "attention-base": Preset(LUONG, ""),
    },
)
