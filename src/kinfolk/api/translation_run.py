"""One run of training a translator: the model, what it learns from, how it is judged on the way, what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from kinfolk.api.bleu import Measured, mean_loss, measure
from kinfolk.api.decoder_start import DecoderStart
from kinfolk.api.experiment import content_hash
from kinfolk.api.loaded import TRAINED, Translator
from kinfolk.api.pairs import PairSamples
from kinfolk.data.pairs import Pair
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Family, Model, init_model, weights_hash
from kinfolk.models.seq2seq import start_decoder_from
from kinfolk.objectives.scheduled_sampling import SamplingSchedule, ScheduledTranslation
from kinfolk.objectives.translation import Translation
from kinfolk.text.pairs import PairTokenizer
from kinfolk.training.runs import Run, best_entry
from kinfolk.training.settings import TrainSettings
from kinfolk.training.trainer import Progress, Trained, Trainer

MEASURED = 500  # dev pairs, at most, that are translated at each evaluation
A_LITTLE = 1e-6  # what one of loss counts beside one of BLEU: enough to tell equals apart


@dataclass(frozen=True)
class TranslationResult:
    """The best model, how good it is, and how it came about."""

    translator: Translator
    metrics: Mapping[str, float]
    signature: str
    samples: Sequence[tuple[Pair, str]]  # dev pairs with what the model writes
    trained: Trained


@dataclass(frozen=True)
class TranslationRun:
    """Everything that a run depends on."""

    family: Family
    config: TranslationConfig
    tokenizer: PairTokenizer
    learned: PairSamples
    held: PairSamples
    settings: TrainSettings
    smoothing: float
    sampling: SamplingSchedule
    start: DecoderStart | None
    device: torch.device

    def model(self) -> Model:
        """A fresh one; its decoder may begin as a language model."""
        model = init_model(self.family, self.config, self.settings.seed)
        if self.start is not None:
            start_decoder_from(self.start.model, model)
        return model.to(self.device)

    @property
    def objective(self) -> Translation:
        if self.sampling.maximum == 0:
            return Translation(self.config.start_id, self.smoothing)
        return ScheduledTranslation(self.config.start_id, self.smoothing, sampling=self.sampling)

    def train(self, folder: Path, watch: Callable[[int, Progress], None]) -> TranslationResult:
        """Run to the end, or on from where it stopped."""
        model, seed, objective = self.model(), self.settings.seed, self.objective
        run = Run.open(folder, self.description())
        try:
            places = [pair.location for pair in self.learned.pairs]
            trainer = Trainer(
                model,
                objective,
                self.learned.items,
                self.settings,
                run,
                self.evaluate,
                partial(watch, seed),
                places.__getitem__,
                timing_eval=self.timing_eval,
            )
            found = trainer.complete()
        finally:
            run.close()
        return self._result(model, found)

    def _result(self, model: Any, trained: Trained) -> TranslationResult:
        translator, best = self.translator(model), best_entry(trained.log)
        if best is None:
            return TranslationResult(translator, {}, "", [], trained)
        told = best["metrics"]
        found = measure(translator, self.judges)
        metrics = {**found.metrics, "bleu_greedy": told["bleu"], "loss": told["loss"]}
        samples = list(zip(self.judges, found.texts, strict=True))
        return TranslationResult(translator, metrics, found.signature, samples, trained)

    @property
    def judges(self) -> list[Pair]:
        """The dev pairs that are translated: all, or some spread evenly over them."""
        pairs = self.held.pairs
        step = len(pairs) / min(MEASURED, len(pairs)) if pairs else 1
        return [pairs[int(number * step)] for number in range(min(MEASURED, len(pairs)))]

    def translator(self, model: Any) -> Translator:
        """A model with its tokenizer, as it will be saved."""
        return Translator(model, self.tokenizer, {TRAINED: self.learned.longest})

    def evaluate(self, model: Any, longest: int | None = None) -> tuple[float, dict[str, float]]:
        """By BLEU of the likeliest token each time; of equals the one with less loss is better."""
        if not self.held.items:
            return 0.0, {}
        translator = self.translator(model)
        found: Measured = measure(translator, self.judges, translator.translate_settings(beam=1, max_length=longest))
        loss = mean_loss(model, self.held.items)
        return found.metrics["bleu"] - A_LITTLE * loss, {**found.metrics, "loss": loss}

    def timing_eval(self, model: Any) -> None:
        """An evaluation that writes as much as the references have: a fresh model would not end its texts."""
        lengths = [len(item.target) for item in self.held.items]
        self.evaluate(model, round(mean(lengths)) if lengths else None)

    def description(self) -> dict[str, Any]:
        """All that the weights depend on: a run goes on only if this is the same."""
        words = [side.to_json() for side in (self.tokenizer.source, self.tokenizer.target)]
        sides = [[(pair.source, pair.target) for pair in side.pairs] for side in (self.learned, self.held)]
        return {
            "task": {"kind": "translate", "smoothing": self.smoothing, "sampling": dataclasses.asdict(self.sampling)},
            "settings": self.settings.described(),
            "family": self.family.name,
            "config": dataclasses.asdict(self.config),
            "start": None if self.start is None else weights_hash(self.start.model),
            "vocabulary": {"kind": self.tokenizer.source.kind, "joint": self.tokenizer.joint},
            "tokenizer": content_hash(words),
            "data": content_hash(sides),
        }
