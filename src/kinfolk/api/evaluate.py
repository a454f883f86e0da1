"""How good a trained model is, and where it is surest and wrong; of a translator BLEU and the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kinfolk.api.translate import TranslateSettings, TranslationStats, counted_chunks, translate_settings
from kinfolk.checkpoints.folder import TextModel
from kinfolk.data.batching import token_batches
from kinfolk.data.tables import Pair
from kinfolk.errors import InputError, shorten_list, warn
from kinfolk.objectives.objective import Sample
from kinfolk.objectives.translation import Translate
from kinfolk.tasks.task import Columns, Mistake, read_for, saved_task
from kinfolk.training.metrics import bleu

LOSS_TOKENS = 8192  # of a batch, both sides


class UnseenWarning(UserWarning):
    """Examples have labels that the model does not know, and so can never give."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics; for classes also the confusion matrix, (truth, guess), and the most confident errors."""

    examples: int
    bad: int  # rows that were left out
    metrics: Mapping[str, float]
    labels: Sequence[str]
    confusion: list[list[int]] | None
    mistakes: Sequence[Mistake]


def evaluate(
    encoder: TextModel,
    source: str | Path,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    header: Sequence[str] | None = None,
    max_bad_rows: int = 0,
) -> Evaluation:
    task = saved_task(encoder)
    read = read_for(task.kind, source, Columns(text, pair, label, header), max_bad_rows)
    if not read.examples:
        raise InputError(f"{source}: no examples to evaluate on")
    unseen = task.unseen_labels(read.examples)
    if unseen:
        warn(UnseenWarning(f"training did not see {shorten_list(unseen)}: these count as misses"))
    result = task.evaluate(encoder.model, task.dataset(encoder.tokenizer, read.examples, encoder.context))
    return Evaluation(len(read.examples), read.bad, result.metrics, task.labels, result.confusion, result.mistakes)


@dataclass(frozen=True)
class BleuResult:
    """Metrics, sacreBLEU's signature, the translations that were measured, and what there is to say of these.

    `bleu` is from 0 to 100; `exact` is the share of translations that are the reference, letter by letter.
    """

    metrics: Mapping[str, float]
    signature: str
    texts: Sequence[str]
    stats: TranslationStats


def evaluate_bleu(translator: Any, pairs: Sequence[Pair], settings: TranslateSettings | None = None) -> BleuResult:
    """Translate the sources of `pairs`, and compare with their targets as they stand in the user's file."""
    if not pairs:
        raise InputError("there are no pairs to measure translations by")
    stats = TranslationStats(translator)
    sources = (pair.source for pair in pairs)
    chunks = counted_chunks(sources, settings or translate_settings(translator), stats)
    texts = [options[0].text for chunk in chunks for options in chunk]
    score = bleu(texts, [pair.target for pair in pairs])
    exact = sum(text == pair.target for text, pair in zip(texts, pairs, strict=True)) / len(pairs)
    return BleuResult({"bleu": score.score, "exact": exact}, score.signature, texts, stats)


@torch.inference_mode()
def translation_loss(model: Any, samples: Sequence[Sample]) -> float:
    """Cross-entropy per target token, without label smoothing: its exponential is the perplexity."""
    objective, total, count = Translate(model.config.start_id, smoothing=0.0), 0.0, 0.0
    for indices in token_batches([len(sample) for sample in samples], LOSS_TOKENS):
        batch = objective.prepare([samples[index] for index in indices], model.device)
        total += float(objective.losses(model, batch)[objective.head])
        count += batch.counts[objective.head]
    return total / max(count, 1.0)
