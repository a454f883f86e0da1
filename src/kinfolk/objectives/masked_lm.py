"""BERT's pre-training: guess hidden tokens, and whether the second text follows the first.

Masked LM: of the ordinary tokens, 15 % are chosen, each for itself and anew whenever a sample is read; of these 80 %
are replaced by [MASK], 10 % by a random ordinary token and 10 % kept. The loss, -log p(the token that stood there),
is computed at the chosen places alone. Next sentence: -log p(follows or not), from the first token. Devlin et al.
2018, section 3.1 and appendix A.2.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kinfolk.data.batching import chunks
from kinfolk.errors import InputError
from kinfolk.nn.packed import Layout, Tokens
from kinfolk.objectives.objective import Batch, Objective, Sample, pack_samples
from kinfolk.objectives.pretraining import Pretraining, PretrainingTask
from kinfolk.objectives.sentence_pairs import SentencePairs
from kinfolk.text.families import BERT_ROLES
from kinfolk.text.tokenizer import Tokenizer

RATE, MASKED, RANDOM = 0.15, 0.8, 0.1  # chosen; of these replaced by the mask, and by another token
EVAL_SAMPLES = 512, 2_048  # of the dev text, while training (fewer tell little of next sentences) and at the end


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """`targets` are what stood at the chosen `rows`; `labels` (sequences,): 0 where the second text follows."""

    rows: Tensor
    labels: Tensor


class MaskedLm(Objective):
    """Both losses, by the names of their heads: masked_lm and next_sentence."""

    def __init__(self, tokenizer: Tokenizer, segments: int, rate: float = RATE):
        if tokenizer.mask_id is None:
            raise InputError("the tokenizer has no mask token, so no token can be hidden")
        self.mask_id, self.segments, self.rate = tokenizer.mask_id, segments, rate
        self.ordinary = torch.ones(tokenizer.vocabulary_size, dtype=torch.bool)
        self.ordinary[sorted(tokenizer.special_ids)] = False
        self.candidates = self.ordinary.nonzero().squeeze(1)

    def mask(self, ids: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """(tokens,) -> what the model sees (tokens,), and which places were chosen."""
        chance = torch.rand(len(ids), generator=generator)
        rows = ((chance < self.rate) & self.ordinary[ids]).nonzero().squeeze(1)
        part = chance[rows] / self.rate  # uniform again, as it was below the rate
        drawn = self.candidates[torch.randint(len(self.candidates), (len(rows),), generator=generator)]
        seen = torch.where(part < MASKED, self.mask_id, torch.where(part < MASKED + RANDOM, drawn, ids[rows]))
        return ids.index_copy(0, rows, seen), rows

    def prepare(
        self, samples: Sequence[Sample], device: torch.device, generator: torch.Generator | None = None
    ) -> MaskedBatch:
        """Pack samples and hide some of their tokens; without a generator, torch's own says which."""
        tokens = pack_samples(samples, self.segments, torch.device("cpu"))
        ids, rows = self.mask(tokens.ids, generator)
        segments = None if tokens.segments is None else tokens.segments.to(device)
        packed = Tokens(ids.to(device), Layout(tokens.layout.lengths, device), segments)
        labels = torch.tensor([int(not sample.target) for sample in samples])
        counts = {"masked_lm": float(len(rows)), "next_sentence": float(len(samples))}
        return MaskedBatch(packed, tokens.ids[rows].to(device), counts, rows.to(device), labels.to(device))

    def losses(self, model: Any, batch: Batch) -> dict[str, Tensor]:
        assert isinstance(batch, MaskedBatch)
        hidden = model(batch.tokens)
        follows = model.scores("next_sentence", batch.tokens, hidden)
        return {
            "masked_lm": model.vocabulary_loss(hidden[batch.rows], batch.targets),
            "next_sentence": F.cross_entropy(follows, batch.labels, reduction="sum"),
        }


class BertTask(PretrainingTask):
    by_sentence = True
    least_documents = 2
    note = (
        "Of the dev text: the mean losses of hidden tokens and of next sentences, in nats, and how often the likeliest "
        "token and answer are right. Which tokens are hidden is drawn once, the same for every evaluation."
    )

    def __post_init__(self) -> None:
        make = (self.tokenizer, self.length, self.batch_size, self.seed)
        self.samples, self.held_out = SentencePairs(self.train, *make), SentencePairs(self.dev, *make)
        self.objective: MaskedLm = MaskedLm(self.tokenizer, self.config.segments)

    @torch.no_grad()
    def evaluate(self, model: Any, thorough: bool = False) -> dict[str, float]:
        sums, counts = defaultdict[str, float](float), defaultdict[str, float](float)
        generator = torch.Generator().manual_seed(self.seed)
        every = math.ceil(len(self.held_out) / EVAL_SAMPLES[thorough])
        for some in chunks(range(0, len(self.held_out), every), self.batch_size):
            samples = [self.held_out[index] for index in some]
            batch = self.objective.prepare(samples, model.device, generator)
            hidden = model(batch.tokens)
            scores = {
                "masked_lm": (model.vocabulary_scores(hidden[batch.rows]), batch.targets),
                "next_sentence": (model.scores("next_sentence", batch.tokens, hidden), batch.labels),
            }
            for name, (predicted, target) in scores.items():
                sums[f"{name}_accuracy"] += float((predicted.argmax(-1) == target).sum())
                sums[f"{name}_loss"] += float(F.cross_entropy(predicted.float(), target, reduction="sum"))
                counts[name] += len(target)
        means = {name: total / max(1.0, counts[name.rsplit("_", 1)[0]]) for name, total in sums.items()}
        return {"loss": means["masked_lm_loss"] + means["next_sentence_loss"], **dict(sorted(means.items()))}

    def evaluated_tokens(self, thorough: bool = False) -> float:
        return float(self.length * min(len(self.held_out), EVAL_SAMPLES[thorough]))

    def baselines(self) -> dict[str, float]:
        return {
            "masked_lm_loss": self.unigram_entropy,
            "masked_lm_accuracy": self.commonest_share,
            "next_sentence_accuracy": 0.5,
        }


PRETRAINING = {
    "bert": Pretraining(
        family="bert",
        preset="bert",
        size="mini",
        task=BertTask,
        heads={"masked_lm": 0, "next_sentence": 2},
        tokenizer="wordpiece",
        roles=BERT_ROLES,
        lowercase=True,
        batch_size=16,
        length=128,
        effect="predicts hidden tokens of a text",
        pipeline="fill-mask",
        example='print(model.fill("a [MASK] of yours"))\nprint(model.next_sentence("a text of yours", "and another"))',
        # AdamW stays near what the frequencies of tokens give for much longer (docs/results/pretraining.md).
        settings={
            "optimizer": "muon",
            "learning_rate": 1e-3,
            "schedule": "linear",
            "warmup": 0.1,
            "betas": (0.9, 0.98),
        },
    )
}
