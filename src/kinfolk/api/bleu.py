"""How good translations are: BLEU and exact matches, by the same code in training and in a test; and the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kinfolk.api.loaded import Translator
from kinfolk.api.translate import TranslateSettings, TranslationStats, translate_chunks
from kinfolk.data.batching import token_batches
from kinfolk.data.pairs import Pair
from kinfolk.errors import InputError
from kinfolk.objectives.objective import Sample
from kinfolk.objectives.translation import Translation

LOSS_TOKENS = 8192  # of a batch, both sides


@dataclass(frozen=True)
class Measured:
    """Metrics, sacreBLEU's signature, the translations that were measured, and what there is to say of these.

    `bleu` is from 0 to 100; `exact` is the share of translations that are the reference, letter by letter.
    """

    metrics: Mapping[str, float]
    signature: str
    texts: Sequence[str]
    stats: TranslationStats


def measure(translator: Translator, pairs: Sequence[Pair], settings: TranslateSettings | None = None) -> Measured:
    """Translate the sources of `pairs`, and compare with their targets as they stand in the user's file."""
    from kinfolk.training.bleu import bleu  # an extra

    if not pairs:
        raise InputError("there are no pairs to measure translations by")
    chosen = settings or translator.translate_settings()
    stats = TranslationStats(translator.trained_length)
    found = translate_chunks(translator, (pair.source for pair in pairs), chosen, stats)
    texts = [options[0].text for chunk in found for options in chunk]
    score = bleu(texts, [pair.target for pair in pairs])
    exact = sum(text == pair.target for text, pair in zip(texts, pairs, strict=True)) / len(pairs)
    return Measured({"bleu": score.score, "exact": exact}, score.signature, texts, stats)


@torch.inference_mode()
def mean_loss(model: Any, items: Sequence[Sample]) -> float:
    """Cross-entropy per target token, without label smoothing: its exponential is the perplexity."""
    objective, total, count = Translation(model.config.start_id, smoothing=0.0), 0.0, 0.0
    for batch in token_batches([len(item) for item in items], LOSS_TOKENS):
        prepared = objective.prepare([items[number] for number in batch], model.device)
        total += float(objective.losses(model, prepared)[objective.head])
        count += prepared.counts[objective.head]
    return total / max(count, 1.0)
