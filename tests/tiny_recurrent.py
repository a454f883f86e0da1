"""Tiny random recurrent models, in float64, for every kind of recurrence and score."""

from __future__ import annotations

from typing import Any

from kinfolk.models.attention_seq2seq import AttentionConfig, AttentionSeq2Seq
from kinfolk.models.recurrent_lm import RecurrentLmConfig
from kinfolk.models.recurrent_writer import RecurrentLm
from kinfolk.models.seq2seq import Seq2Seq, Seq2SeqConfig
from tiny import randomise

SIZES: dict[str, Any] = {"vocabulary_size": 30, "width": 8, "hidden": 8, "layers": 2, "dropout": 0.2, "tied": True}
PLAIN: dict[str, dict[str, Any]] = {
    "rnn, one way": {"kind": "rnn", "bidirectional": False},
    "lstm, both ways": {"kind": "lstm"},
    "gru, both ways, own tables": {
        "kind": "gru", "shared_tables": False, "tied": False, "target_vocabulary_size": 23, "hidden": 6,
    },
    "deck gru, both ways": {"kind": "deck_gru"},
}  # fmt: skip
LOOKING: dict[str, dict[str, Any]] = {
    "dot, lstm, one way": {"score": "dot", "bidirectional": False},
    "bilinear, gru": {"score": "bilinear", "kind": "gru"},
    "perceptron, lstm, own tables": {
        "score": "perceptron", "score_width": 5, "shared_tables": False, "tied": False, "hidden": 6,
    },
}  # fmt: skip
VARIANTS = PLAIN | LOOKING


def our_seq2seq(seed: int = 0, **changes: Any) -> Seq2Seq:
    """A random model; with a `score` it looks back."""
    settings = SIZES | changes
    if "score" in settings:
        model: Seq2Seq = AttentionSeq2Seq(AttentionConfig.make(**settings))
    else:
        model = Seq2Seq(Seq2SeqConfig.make(**settings))
    return randomise(model, seed).double().eval()  # type: ignore[no-any-return]


def our_lm(seed: int = 0, **changes: Any) -> RecurrentLm:
    """A random language model."""
    settings = {name: value for name, value in SIZES.items() if name != "hidden"} | changes
    model = RecurrentLm(RecurrentLmConfig.make(**settings))
    return randomise(model, seed).double().eval()  # type: ignore[no-any-return]
