"""The experiment behind `train_translator`: pairs in; a model evaluated by BLEU out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from kinfolk.api.evaluate import evaluate_bleu, translation_loss
from kinfolk.api.experiment import Experiment, SeedResult, Sides, content_hash
from kinfolk.api.fitting import Fitted
from kinfolk.api.loaded import Translator
from kinfolk.api.report import HEADER, USE, data_rows, escaped, plain, table
from kinfolk.api.translate import TRAINED
from kinfolk.checkpoints.folder import open_encoder
from kinfolk.data.examples import fingerprint
from kinfolk.data.summary import Summary
from kinfolk.data.tables import Pair
from kinfolk.errors import DataError, InputError, shorten_list
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Family, Model, count_parameters, init_model, weights_hash
from kinfolk.models.seq2seq import start_decoder_from
from kinfolk.objectives.translation import PairSample, SamplingSchedule, ScheduledTranslation, Translate, pair_sample
from kinfolk.tasks.task import EvalResult
from kinfolk.text.pairs import PairTokenizer
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.training.runs import best_entry
from kinfolk.training.settings import TrainSettings

SHOWN = 3
MAX_UNKNOWN = 0.05  # of a side's tokens: more unknown ones are warned of
MAX_EVALUATED = 500  # dev pairs that are translated at each evaluation
TIE_BREAK = 1e-6  # what one of loss counts beside one of BLEU: enough to tell equals apart
TOKEN_BY_TOKEN = 4.0  # what a token costs that is written, beside one that is read; and with a beam beside without
BEAM = 2.5
MAX_SAMPLES, MAX_TEXT = 20, 200
NOTE = (
    "BLEU of {:,} dev pairs by sacreBLEU, {}: with a beam of {}, and greedy as while training. Exact is the share of "
    "translations that are the reference. The loss is the cross-entropy of a target token, over all dev pairs. The "
    "best checkpoint was selected here by its greedy BLEU, or by exact translations where their share is higher (as of "
    "single words), so the numbers are slightly optimistic."
)
TRANSLATE = "Or for a whole file: `kinfolk translate --model this-folder --input texts.txt --output translations.txt`."


@dataclass(frozen=True)
class PairSamples:
    """Pairs that fit the model, ready to be packed, and where those stand that do not."""

    items: list[PairSample]
    pairs: list[Pair]
    long: list[str]  # a side has more tokens than the model promises to know
    silent: list[str]  # the vocabulary finds nothing to read in them

    @property
    def longest(self) -> list[int]:
        return [max(len(item.ids) for item in self.items), max(len(item.target) for item in self.items)]


def pair_samples(pairs: Sequence[Pair], tokenizer: PairTokenizer, context: int) -> PairSamples:
    """Pairs with more than `context` tokens on a side are left out, not cut: half a target teaches the wrong end."""
    samples = PairSamples([], [], [], [])
    for pair in pairs:
        source, target = tokenizer.encode_source(pair.source), tokenizer.encode_target(pair.target)
        if not source:
            samples.silent.append(pair.location)
        elif max(len(source), len(target)) > context:
            samples.long.append(pair.location)
        else:
            samples.items.append(pair_sample(source, target, len(samples.pairs)))
            samples.pairs.append(pair)
    return samples


def _left_out(samples: PairSamples, which: str = "") -> list[str]:
    reasons = (samples.long, "longer than the model's limit"), (samples.silent, "nothing to read for the vocabulary")
    return [
        f"{len(locations):,} {which}pairs were left out, {reason}: {shorten_list(locations, SHOWN)}"
        for locations, reason in reasons
        if locations
    ]


@dataclass(frozen=True)
class DecoderStart:
    """A language model that a decoder begins as, what a card calls it, and its vocabulary where it lies in a folder.

    It decides the decoder's shape and, from a folder, the target's vocabulary; the source has one of its own then: a
    language model need not have read a word of it.
    Ramachandran et al. 2017, "Unsupervised Pretraining for Sequence to Sequence Learning".
    """

    model: Model
    name: str
    tokenizer: Tokenizer | None

    @classmethod
    def of(cls, source: str | Path | nn.Module, recurrent: bool) -> DecoderStart:
        """`recurrent`: is the translator?"""
        if isinstance(source, str | Path):
            opened = open_encoder(source, "cpu")
            start = cls(opened.model, Path(source).resolve().name, opened.tokenizer)
            guesses = "next_token" in opened.model.heads
        else:
            start, guesses = cls(source, "a language model", None), isinstance(source, Model)  # type: ignore[arg-type]
        if not (recurrent and guesses and start.model.config.carries_state):
            raise InputError("init_decoder: only a recurrent language model starts a decoder, and only a recurrent one")
        return start

    @property
    def shape(self) -> dict[str, Any]:
        own = self.model.config
        return {"kind": own.kind, "width": own.width, "hidden": own.width, "layers": own.layers, "tied": own.tied}


@dataclass(frozen=True)
class TranslationResult(EvalResult):
    """BLEU and its signature, the dev pairs that were translated, and the number of all dev pairs."""

    signature: str = ""
    samples: Sequence[tuple[Pair, str]] = ()
    dev_pairs: int = 0

    def table(self) -> tuple[str, list[tuple[str, float]]]:
        """The title and the rows of metrics: where only some of the dev pairs were translated, the title says so."""
        title, names = "on the dev set", {name: name.replace("_", " ") for name in self.metrics}
        if len(self.samples) != self.dev_pairs:
            title = f"on {len(self.samples):,} of {self.dev_pairs:,} dev pairs"
            names |= {"loss": "loss on all of them"}
        return title, [(names[name], value) for name, value in self.metrics.items()]


@dataclass
class TranslationExperiment(Experiment):
    family: Family
    config: TranslationConfig
    tokenizer: PairTokenizer
    sides: Sides
    settings: TrainSettings
    folder: Path
    smoothing: float
    sampling: SamplingSchedule
    start: DecoderStart | None
    device: torch.device
    fitted: Fitted

    def __post_init__(self) -> None:
        tokenizer, limit = self.tokenizer, self.config.context
        self.train_pairs, self.dev = (
            pair_samples(side, tokenizer, limit) for side in (self.sides.train, self.sides.dev)
        )
        self.samples = self.train_pairs.items
        self.parameters = count_parameters(self.family, self.config)
        if not self.samples:
            raise DataError("no pair is left to train on: " + "; ".join(_left_out(self.train_pairs)))
        left_out = len(self.dev.long) + len(self.dev.silent)
        if left_out and not self.dev.items:
            raise InputError(
                f"none of the {left_out:,} dev pairs can be evaluated: they are longer than the model's "
                f"{self.config.context:,} tokens or have nothing to read; bring others, or in Python dev=[]"
            )
        self.notes = [*_left_out(self.train_pairs), *_left_out(self.dev, "dev ")]
        self.vocabulary = f"{tokenizer.source.kind}, {tokenizer.source_size:,} pieces"
        self.vocabulary += "" if tokenizer.joint else f" and {tokenizer.target_size:,}"
        self.summary = Summary(self._survey())
        self.location = lambda example: self.train_pairs.pairs[example].location
        model = f"{self.family.title}, {self.parameters:,} parameters"
        data = data_rows("pairs", len(self.samples), len(self.dev.items), self.sides.names)
        self.rows = [*data, ("vocabulary", self.vocabulary), ("model", model)]
        tokenizers = [side.to_json() for side in (tokenizer.source, tokenizer.target)]
        sides = [[(pair.source, pair.target) for pair in side.pairs] for side in (self.train_pairs, self.dev)]
        self.identity = {
            "task": {"kind": "translate", "smoothing": self.smoothing, "sampling": dataclasses.asdict(self.sampling)},
            "family": self.family.name,
            "start": None if self.start is None else weights_hash(self.start.model),
            "vocabulary": {"kind": tokenizer.source.kind, "joint": tokenizer.joint},
            "chosen": dict(self.fitted.reasons),
            "tokenizer": content_hash(tokenizers),
            "data": content_hash(sides),
        }

    def _survey(self) -> list[tuple[str, str]]:
        lengths, unknown, warnings = [], [], []
        for side, token, texts in (
            ("source", self.tokenizer.source_unknown_id, [item.ids for item in self.samples]),
            ("target", self.tokenizer.unknown_id, [item.target for item in self.samples]),
        ):
            counts = [len(ids) for ids in texts]
            share = sum(each == token for ids in texts for each in ids) / sum(counts)
            lengths.append(f"{side} median {int(median(counts)):,}, longest {max(counts):,}")
            unknown.append(f"{share:.2%} of the {side} tokens")
            if share > MAX_UNKNOWN:
                warnings.append(f"{share:.0%} of the {side} is unknown to the vocabulary: it does not fit")
        start = 0 if self.start is None else sum(weight.numel() for weight in self.start.model.parameters())
        new = f"{start:,} of them from a language model" if start else "trained from scratch"
        known = {fingerprint((pair.source,)) for pair in self.train_pairs.pairs}
        shared = sum(fingerprint((pair.source,)) in known for pair in self.dev.pairs)
        if shared:
            warnings.append(f"{shared:,} dev pairs have a source that is trained on too")
        return [
            ("pairs", f"{len(self.samples):,} to train on, {len(self.dev.items):,} for dev"),
            ("vocabulary", f"{self.vocabulary}; unknown are {', '.join(unknown)}"),
            ("tokens", "; ".join(lengths)),
            ("model", f"{self.family.title}, {self.parameters:,} parameters, {new}"),
            *self.fitted.rows,
            *(("warning", warning) for warning in warnings),
            *(("note", note) for note in self.notes),
        ]

    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        model = init_model(self.family, self.config, seed)
        if self.start is not None:
            start_decoder_from(self.start.model, model)
        return model.to(self.device), [name for name, _ in model.named_parameters()]

    def objective(self, model: Model) -> Translate:
        if self.sampling.maximum == 0:
            return Translate(self.config.start_id, self.smoothing)
        return ScheduledTranslation(self.config.start_id, self.smoothing, sampling=self.sampling)

    def text_model(self, model: Model, task: Any = None) -> Translator:
        return Translator(model, self.tokenizer, {TRAINED: self.train_pairs.longest})

    @property
    def evaluated(self) -> list[Pair]:
        """The dev pairs that are translated: all, or some spread evenly over them."""
        pairs = self.dev.pairs
        count = min(MAX_EVALUATED, len(pairs))
        return [pairs[int(index * len(pairs) / count)] for index in range(count)]

    def evaluate(self, model: Model) -> tuple[float, dict[str, float]]:
        """By BLEU of greedy search, or by exact texts where those are more (BLEU counts four words, and a single one is
        always 0); of equals the one with less loss is better."""
        if not self.dev.items:
            return 0.0, {}
        translator = self.text_model(model)
        greedy = translator.translate_settings(beam=1)
        metrics = evaluate_bleu(translator, self.evaluated, greedy).metrics
        loss = translation_loss(model, self.dev.items)
        return max(metrics["bleu"], 100 * metrics["exact"]) - TIE_BREAK * loss, {**metrics, "loss": loss}

    def evaluated_tokens(self) -> tuple[float, float]:
        tokens = float(sum(map(len, self.dev.items)))
        written = TOKEN_BY_TOKEN * tokens * len(self.evaluated) / max(1, len(self.dev.items))
        return tokens + written, BEAM * written

    def finish(self, model: Model, log: Sequence[dict[str, Any]]) -> tuple[TranslationResult, None]:
        best = best_entry(log)
        if best is None:
            return TranslationResult({}), None
        measured, greedy = evaluate_bleu(self.text_model(model), self.evaluated), best["metrics"]
        metrics = {**measured.metrics, "bleu_greedy": greedy["bleu"], "loss": greedy["loss"]}
        samples = list(zip(self.evaluated, measured.texts, strict=True))
        return TranslationResult(metrics, None, (), measured.signature, samples, len(self.dev.pairs)), None

    def reported_settings(self) -> dict[str, str]:
        settings = {"label smoothing": f"{self.smoothing:g}"}
        if self.sampling.maximum:
            probability = f"at most {self.sampling.maximum:g}, {self.sampling.schedule}, {self.sampling.mode}"
            settings["scheduled sampling"] = probability
        if self.start is not None:
            settings["decoder initialized from"] = self.start.name
        return settings | super().reported_settings()

    def content(self, results: dict[int, SeedResult], best: int) -> dict[str, Any]:
        result: Any = results[best].result
        translator, metrics = self.text_model(results[best].model), "Not measured: there was no dev set."
        samples = [(pair.source, pair.target, text) for pair, text in result.samples[:MAX_SAMPLES]]
        if result.metrics:
            title, rows = result.table()
            note = NOTE.format(len(result.samples), result.signature, translator.decoding.beams)
            metrics = f"{table((title, 'value'), rows)}\n\n{note}"
        return {
            "header": HEADER.format("translation"),
            "description": f"This {self.family.title} of {self.parameters:,} parameters turns a text into a text, as "
            f"the pairs of {escaped(plain(self.sides.names[0]))} taught it. It was trained with kinfolk.",
            "use": USE.format('print(model.translate("a text of yours"))', TRANSLATE),
            "metrics": metrics,
            "limits": [
                f"Training saw sources of at most {translator.trained_length:,} tokens. Longer ones are translated "
                "with a warning.",
                "The numbers above hold for texts like those of the dev set. Measure it on pairs of your own: "
                "`kinfolk evaluate --model this-folder --input test.tsv`.",
                "The licence is not stated here: it depends on the data.",
            ],
            "details": {
                "Translations": table(("source", "reference", "translation"), samples, MAX_TEXT) * bool(samples)
            },
        }
