"""The experiment behind `train_translator`: pairs in; a model evaluated by BLEU out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from kinfolk.api.bleu import mean_loss, measure
from kinfolk.api.decoder_start import DecoderStart
from kinfolk.api.experiment import Experiment, SeedResult, content_hash
from kinfolk.api.loaded import TRAINED, Translator
from kinfolk.api.markdown import escaped, plain, table
from kinfolk.api.pairs import PairSamples, PairSurvey
from kinfolk.api.report import Report, format_settings, run_rows, training_table
from kinfolk.data.pairs import Pair
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Family, Model, init_model, weights_hash
from kinfolk.models.seq2seq import start_decoder_from
from kinfolk.objectives.scheduled_sampling import SamplingSchedule, ScheduledTranslation
from kinfolk.objectives.translation import Translation
from kinfolk.tasks.task import EvalResult
from kinfolk.text.pairs import PairTokenizer
from kinfolk.training.runs import best_entry
from kinfolk.training.settings import TrainSettings

MAX_EVALUATED = 500  # dev pairs that are translated at each evaluation
TIE_BREAK = 1e-6  # what one of loss counts beside one of BLEU: enough to tell equals apart
MAX_SAMPLES, MAX_TEXT = 20, 200
USE = """```python
import kinfolk

model = kinfolk.load("this-folder")
print(model.translate("a text of yours"))
```

Or for a whole file: `kinfolk translate --model this-folder --input texts.txt --output translations.txt`."""


@dataclass(frozen=True)
class TranslationResult(EvalResult):
    """BLEU and its signature, and the dev pairs with their translations."""

    signature: str = ""
    samples: Sequence[tuple[Pair, str]] = ()


@dataclass
class TranslationExperiment(Experiment):
    """Everything that a run depends on."""

    family: Family
    config: TranslationConfig
    tokenizer: PairTokenizer
    train_pairs: PairSamples
    dev: PairSamples
    settings: TrainSettings
    folder: Path
    summary: PairSurvey
    names: tuple[str, str]
    smoothing: float
    sampling: SamplingSchedule
    start: DecoderStart | None
    device: torch.device

    def __post_init__(self) -> None:
        self.samples = self.train_pairs.items

    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        """A new one; its decoder may begin as a language model."""
        model = init_model(self.family, self.config, seed)
        if self.start is not None:
            start_decoder_from(self.start.model, model)
        return model.to(self.device), [name for name, _ in model.named_parameters()]

    def objective(self, model: Model) -> Translation:
        if self.sampling.maximum == 0:
            return Translation(self.config.start_id, self.smoothing)
        return ScheduledTranslation(self.config.start_id, self.smoothing, sampling=self.sampling)

    def translator(self, model: Model) -> Translator:
        """A model with its tokenizer, as it will be saved."""
        return Translator(model, self.tokenizer, {TRAINED: self.train_pairs.longest})

    def text_model(self, result: SeedResult) -> Translator:
        return self.translator(result.model)

    @property
    def evaluated(self) -> list[Pair]:
        """The dev pairs that are translated: all, or some spread evenly over them."""
        pairs = self.dev.pairs
        count = min(MAX_EVALUATED, len(pairs))
        return [pairs[int(index * len(pairs) / count)] for index in range(count)]

    def evaluate(self, model: Model, max_tokens: int | None = None) -> tuple[float, dict[str, float]]:
        """By BLEU of greedy search; of equals the one with less loss is better."""
        if not self.dev.items:
            return 0.0, {}
        translator = self.translator(model)
        greedy = translator.translate_settings(beam=1, max_length=max_tokens)
        metrics = measure(translator, self.evaluated, greedy).metrics
        loss = mean_loss(model, self.dev.items)
        return metrics["bleu"] - TIE_BREAK * loss, {**metrics, "loss": loss}

    def timing_eval(self, model: Model) -> object:
        """An evaluation that writes as much as the references have: an untrained model would not end its texts."""
        lengths = [len(sample.target) for sample in self.dev.items]
        return self.evaluate(model, round(mean(lengths)) if lengths else None)

    def finish(self, model: Model, log: Sequence[dict[str, Any]]) -> tuple[TranslationResult, None]:
        best = best_entry(log)
        if best is None:
            return TranslationResult({}), None
        measured, greedy = measure(self.translator(model), self.evaluated), best["metrics"]
        metrics = {**measured.metrics, "bleu_greedy": greedy["bleu"], "loss": greedy["loss"]}
        samples = list(zip(self.evaluated, measured.texts, strict=True))
        return TranslationResult(metrics, signature=measured.signature, samples=samples), None

    def location(self, example: int) -> str:
        return self.train_pairs.pairs[example].location

    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        tokenizers = [side.to_json() for side in (self.tokenizer.source, self.tokenizer.target)]
        sides = [[(pair.source, pair.target) for pair in side.pairs] for side in (self.train_pairs, self.dev)]
        return {
            "task": {"kind": "translate", "smoothing": self.smoothing, "sampling": dataclasses.asdict(self.sampling)},
            "settings": settings.described(),
            "family": self.family.name,
            "config": dataclasses.asdict(self.config),
            "start": None if self.start is None else weights_hash(self.start.model),
            "vocabulary": {"kind": self.tokenizer.source.kind, "joint": self.tokenizer.joint},
            "tokenizer": content_hash(tokenizers),
            "data": content_hash(sides),
        }

    def report(self, results: dict[int, SeedResult], best: int) -> Report:
        seed, summary = results[best], self.summary
        assert isinstance(seed.result, TranslationResult)
        samples = [(pair.source, pair.target, text) for pair, text in seed.result.samples[:MAX_SAMPLES]]
        shown = table(("source", "reference", "translation"), samples, MAX_TEXT) if samples else ""
        translator = self.text_model(seed)
        return Report(
            name=self.folder.resolve().name,
            header="library_name: kinfolk\npipeline_tag: translation\ntags:\n- kinfolk\n",
            description=f"This {summary.model} of {summary.parameters:,} parameters turns a text into a text, as the "
            f"pairs of {escaped(plain(self.names[0]))} taught it. It was trained with kinfolk.",
            use=USE,
            metrics=self._format_metrics(seed.result, translator),
            training=training_table(self._training_rows(seed, best, translator.device)),
            data=str(summary),
            limits=[
                f"Training saw sources of at most {translator.trained_length:,} tokens. Longer ones are translated "
                "with a warning.",
                "The numbers above hold for texts like those of the dev set. Measure it on pairs of your own: "
                "`kinfolk evaluate --model this-folder --input test.tsv`.",
                "The licence is not stated here: it depends on the data.",
            ],
            logs={best: seed.log},
            details={"Translations": shown},
        )

    def _format_metrics(self, result: TranslationResult, translator: Translator) -> str:
        if not result.metrics:
            return "Not measured: there was no dev set."
        note = (
            f"BLEU of {len(result.samples):,} dev pairs by sacreBLEU, {result.signature}: with a beam of "
            f"{translator.decoding.beams}, and greedy as while training. Exact is the share of translations that are "
            "the reference. The loss is the cross-entropy of a target token, over all dev pairs. The best checkpoint "
            "was selected by its greedy BLEU here, so the numbers are slightly optimistic."
        )
        title, rows = metrics_table(result.metrics, len(result.samples), self.summary.dev_pairs)
        return f"{table((title, 'value'), rows)}\n\n{note}"

    def _training_rows(self, seed: SeedResult, best: int, device: torch.device) -> list[tuple[str, object]]:
        summary, plan = self.summary, self.sampling
        settings = {"label smoothing": f"{self.smoothing:g}"}
        if plan.maximum:
            settings["scheduled sampling"] = f"at most {plan.maximum:g}, {plan.schedule}, {plan.mode}"
        if self.start is not None:
            settings["decoder initialized from"] = self.start.name
        settings |= format_settings(self.settings)
        return [
            ("training data", f"{summary.pairs:,} pairs ({self.names[0]})"),
            ("dev data", f"{summary.dev_pairs:,} pairs ({self.names[1]})" if summary.dev_pairs else "none"),
            ("vocabulary", summary.vocabulary),
            ("model", f"{summary.model}, {summary.parameters:,} parameters"),
            *run_rows({best: seed.log}, best, seed.seconds, settings, device),
        ]


def metrics_table(metrics: Mapping[str, float], measured: int, held: int) -> tuple[str, list[tuple[str, float]]]:
    """The title and the rows of metrics: where only some of the dev pairs were translated, the title says so."""
    if measured == held:
        return "on the dev set", [(name.replace("_", " "), value) for name, value in metrics.items()]
    names = {name: name.replace("_", " ") for name in metrics} | {"loss": "loss on all of them"}
    return f"on {measured:,} of {held:,} dev pairs", [(names[name], value) for name, value in metrics.items()]
