"""Train translators on Multi30k and Tatoeba: a bottleneck, three kinds of attention, Transformers; measure them.

Most entries have the usual settings and some minutes of the clock. Of the others `… translation.py --time`, on an idle
machine, fixes how many steps fit into their minutes. Then `python recipes/translation.py` trains what is not trained
yet, below runs/translation (a run that was stopped goes on), notes each one's figures in docs/results/translation.json
as it ends, and writes docs/results/translation.md from all that are noted there. Names train just those:
`… translation.py seq2seq attention-additive`; several of these may run at a time, if none goes by the clock.
`--steps 20` is a try: so many steps for each, everything below runs/try-20 and nothing in docs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import REPOSITORY, Course, RecipePaths, processor
from sacrebleu.metrics.bleu import BLEU
from translation_clock import THREADS, Clock, steps_in
from translation_data import FOLDER, NAME, PARTS, Corpus, option
from translation_page import BUSY, GROUPS, SAMPLE_WORDS, write

from kinfolk.api.evaluate import evaluate_bleu
from kinfolk.api.experiment import Callbacks
from kinfolk.api.loaded import Translator, load_translator
from kinfolk.api.train_translator import USUAL, train_translator
from kinfolk.api.translation import pair_samples
from kinfolk.cli.output import log_line, training_progress
from kinfolk.data.batching import BatchSampler
from kinfolk.data.tables import Pair
from kinfolk.errors import KinfolkError, StopSignalError
from kinfolk.files import read_object
from kinfolk.machine import tune
from kinfolk.nn.fast.linear import PRECISIONS
from kinfolk.training.metrics import bleu, tokenization
from kinfolk.training.runs import Progress

GERMAN = Corpus("Multi30k English-German", "de", vocabulary=6_000)
FRENCH = Corpus("Multi30k English-French", "fr", vocabulary=6_000)
TATOEBA = Corpus("Tatoeba English-French", "fr", vocabulary=8_000, tatoeba=True)

TRANSFORMER = {
    "width": 256, "encoder_layers": 3, "decoder_layers": 3, "heads": 4, "inner_width": 512, "dropout": 0.3,
    "attention_dropout": 0.1, "norm": "pre",
}  # fmt: skip
WARM = {
    "learning_rate": 2e-3, "schedule": "inverse_sqrt", "warmup": 0.12, "weight_averaging": 0.15, "batch_tokens": 4096,
    "evaluations": 10, "label_smoothing": 0.1,
}  # fmt: skip
TIMINGS = 3  # plans of a run; the middle one holds
RANDOM_SAMPLES, EXTREME_SAMPLES = 10, 5


@dataclass(frozen=True)
class Entry:
    """A translator: its pairs, its settings where they differ from the usual ones, and its minutes.

    With `by_clock` the clock ends it, else after steps that were fixed for these minutes on an idle machine.
    """

    title: str
    kind: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    minutes: float = 15.0
    corpus: Corpus = GERMAN
    goal: float | None = None  # BLEU on the test set
    by_clock: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """What `train_translator` is given, besides files and length."""
        own = {"kind": self.kind, "changes": dict(self.changes), **self.training, **self.sampling}
        return own if self.by_clock else own | {"vocabulary_size": self.corpus.vocabulary}

    def length(self, steps: int | None) -> dict[str, Any]:
        """How long it trains: so many steps, or its minutes."""
        return {"minutes": self.minutes} if steps is None else {"steps": steps}

    def of(self, precision: str) -> Entry:
        """The same, with the precision named; the usual one is not mentioned."""
        return self if precision == "fp32" else replace(self, training={**self.training, "precision": precision})

    @property
    def evaluations(self) -> int:
        return int(self.training.get("evaluations", USUAL["evaluations"]))

    def command(self, name: str, steps: int | None) -> str:
        """The same from a shell."""
        options = {key: value for key, value in self.arguments.items() if key != "changes"} | self.length(steps)
        sizes = ",".join(
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in self.changes.items()
        )
        words = ["kinfolk train-translator", f"--output {FOLDER}/{name}", *self.corpus.words()]
        words += [f"--set {sizes}"] if sizes else []
        return " ".join(words + [option(key, value) for key, value in options.items()])


FREE: dict[str, Any] = {"scheduled_sampling": 1.0, "sampling_schedule": "constant", "sampling_mode": "step-wise"}
QUARTER: dict[str, Any] = {"scheduled_sampling": 0.25, "sampling_schedule": "linear"}
BILINEAR = {"score": "bilinear"}
ENTRIES = {
    "seq2seq": Entry("Seq2Seq, no attention", "seq2seq", by_clock=True),
    "attention-dot": Entry("attention, dot", "attention", {"score": "dot"}, by_clock=True),
    "attention-bilinear": Entry("attention, bilinear", "attention", BILINEAR, by_clock=True),
    "attention-additive": Entry("attention, additive", "attention", {"score": "additive"}, by_clock=True),
    "transformer-15": Entry("Transformer", "transformer", by_clock=True),
    "transformer-60": Entry("Transformer, longer", "transformer", TRANSFORMER, WARM, 60, goal=35),
    "french-45": Entry("Transformer", "transformer", TRANSFORMER, WARM, 45, FRENCH, goal=52),
    "tatoeba-45": Entry("Transformer", "transformer", {**TRANSFORMER, "dropout": 0.1}, WARM, 45, TATOEBA),
    "tatoeba-20": Entry("Transformer", "transformer", {}, {}, 20, TATOEBA, by_clock=True),
    "scheduled-sampling": Entry(
        "attention, bilinear; own guesses up to a quarter", "attention", BILINEAR, by_clock=True, sampling=QUARTER
    ),
    "free-running": Entry("attention, bilinear; own guesses only", "attention", BILINEAR, by_clock=True, sampling=FREE),
}


def time_steps(name: str, paths: RecipePaths) -> None:
    """Note how many steps fit into an entry's minutes: the median of what some runs plan."""
    asked, load = ENTRIES[name], round(os.getloadavg()[0], 2)
    tries = [steps_in(asked.minutes, asked.corpus.arguments(paths) | asked.arguments) for _ in range(TIMINGS)]
    timed = {"steps": round(median(tries)), "tries": tries, "minutes": asked.minutes, "threads": THREADS}
    timed |= {"load_before": load, "machine": processor(), "date": datetime.date.today().isoformat()}
    with paths.noting() as notes:
        notes.setdefault("timed", {})[name] = timed
    log_line(f"{name}: {timed['steps']:,} steps take {asked.minutes:g} minutes on {THREADS} threads (of {tries})")


def planned(name: str, paths: RecipePaths) -> int:
    """The steps that were fixed for an entry."""
    found = paths.notes.get("timed", {}).get(name)
    if found is None:
        raise SystemExit(f"{name} has no steps yet; on an idle machine run: python recipes/translation.py --time")
    return int(found["steps"])


def train(name: str, paths: RecipePaths, steps: int | None = None, precision: str = "fp32") -> bool:
    """Train an entry to its end and note its figures; False if both is done already."""
    folder = paths.runs / name
    finished = (folder / "model").exists()
    if finished:
        precision = read_object(folder / "run.json")["settings"].get("precision", "fp32")
    asked = ENTRIES[name].of(precision)
    if steps is not None:  # a try, and evaluations of a model that knows nothing take long
        asked = replace(asked, training={**asked.training, "evaluations": min(asked.evaluations, 1 + steps // 100)})
    if not finished:
        if steps is None and not asked.by_clock:
            steps = planned(name, paths)
        log_line(f"{name}: {asked.command(name, steps)}")
        with Clock(folder / "clock.json") as clock, training_progress() as step:

            def watch(seed: int, progress: Progress) -> None:
                step(seed, progress)
                clock.watch(progress)

            files, callbacks = (
                asked.corpus.arguments(paths),
                Callbacks(lambda summary, _: log_line(str(summary)), watch),
            )
            options = asked.arguments | asked.length(steps)
            train_translator(folder, **files, **options, device="cpu", callbacks=callbacks)
    if finished and name in paths.notes.get("runs", {}):
        return False
    note(name, asked, paths)
    return True


def note(name: str, asked: Entry, paths: RecipePaths) -> None:
    """Measure a finished run on dev and test set with the search of `translate`, and keep its figures."""
    folder = paths.runs / name
    translator, clock = load_translator(folder, "cpu"), Clock(folder / "clock.json")
    course, steps = Course.of(folder), read_object(folder / "run.json")["settings"]["steps"]
    pairs = {part: asked.corpus.pairs(part, paths) for part in PARTS}
    dev, test = (evaluate_bleu(translator, pairs[part]) for part in ("dev", "test"))
    tokens = clock.steps_per_second * tokens_of_a_step(course, translator, pairs["train"])
    figures = {
        "command": asked.command(name, steps),
        "settings": {key: value for key, value in asked.arguments.items() if key != "kind"} | {"kind": asked.kind},
        "parameters": translator.info().parameters,
        "steps": course.steps,
        "minutes": round(clock.minutes, 1),
        "threads": clock.threads,
        "tokens_per_second": round(tokens),
        "pairs": {part: len(kept) for part, kept in pairs.items()},
        "dev": round(dev.metrics["bleu"], 2),
        "test": round(test.metrics["bleu"], 2),
        "exact": round(test.metrics["exact"], 4),
        "signature": test.signature,
        "beam": translator.decoding.beams,
        "groups": by_length(pairs["test"], test.texts),
        "machine": processor(),
        "date": datetime.date.today().isoformat(),
    }
    if asked.corpus.tatoeba:  # the only pairs whose licence lets us show some
        figures["samples"] = samples(pairs["test"], test.texts)
    with paths.noting() as notes:
        notes.setdefault("runs", {})[name] = figures


def tokens_of_a_step(course: Course, translator: Translator, pairs: Sequence[Pair]) -> float:
    """Of both sides, on average over an epoch."""
    items = pair_samples(pairs, translator.tokenizer, translator.model.config.context).items  # type: ignore[arg-type]
    sizes = [len(item) for item in items]
    return sum(sizes) / BatchSampler(sizes, 0, course.batch_size, course.batch_tokens).steps(1)


def by_length(pairs: Sequence[Pair], texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """BLEU of those translations whose sources have so many words; a group without any is left out."""
    groups: dict[str, dict[str, float]] = {}
    for title, words in GROUPS.items():
        kept = [
            (text, pair.target) for text, pair in zip(texts, pairs, strict=True) if len(pair.source.split()) in words
        ]
        if kept:
            written, wanted = zip(*kept, strict=True)
            groups[title] = {"sentences": len(kept), "bleu": round(bleu(written, wanted).score, 2)}
    return groups


def samples(pairs: Sequence[Pair], texts: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Translations to show: some at random; of longer sources, by the BLEU of the sentence, the best and the worst.

    Those that are the reference letter by letter teach nothing, so they are not among the best. A source that has two
    references stands there once.
    """
    metric = BLEU(tokenize=tokenization([pair.target for pair in pairs]), effective_order=True)
    rows: list[dict[str, Any]] = [
        {"source": pair.source, "reference": pair.target, "text": text}
        | {"bleu": round(metric.sentence_score(text, [pair.target]).score, 1)}
        for pair, text in zip(pairs, texts, strict=True)
    ]
    rows = list({row["source"]: row for row in sorted(rows, key=lambda row: row["bleu"])}.values())  # the better one
    drawn = random.Random(0).sample(rows, min(RANDOM_SAMPLES, len(rows)))
    rest = [row for row in rows if row not in drawn and len(row["source"].split()) > SAMPLE_WORDS]
    ordered = sorted((row for row in rest if row["text"] != row["reference"]), key=lambda row: -row["bleu"])
    best = ordered[:EXTREME_SAMPLES]
    return {"random": drawn, "best": best, "worst": ordered[len(best) :][-EXTREME_SAMPLES:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *ENTRIES], help="which entries; without names all")
    parser.add_argument("--time", action="store_true", help="fix the steps of those named, or of all that have none")
    parser.add_argument("--only-write", action="store_true", help="train nothing, write what is noted")
    parser.add_argument("--steps", type=int, help="a try with so many steps, below runs/try-STEPS")
    parser.add_argument("--threads", type=int, help="of torch, for training")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="fp32", help="of products while learning")
    parser.add_argument("--output", type=Path, help="write runs, figures and page below this folder")
    arguments = parser.parse_args()
    aside = arguments.output or (None if arguments.steps is None else REPOSITORY / "runs" / f"try-{arguments.steps}")
    paths = RecipePaths.of(NAME, aside)
    tune()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    try:
        run(arguments, paths)
    except (KinfolkError, StopSignalError) as error:
        raise SystemExit(f"error: {error}") from None


def run(arguments: argparse.Namespace, paths: RecipePaths) -> None:
    """What the command line asks for."""
    if arguments.time:
        load = os.getloadavg()[0]
        if load > BUSY:
            log_line(f"warning: this machine is not idle (load {load:.1f}), so runs will get too few steps")
        known = paths.notes.get("timed", {})
        for name in arguments.names or [
            name for name, asked in ENTRIES.items() if not asked.by_clock and name not in known
        ]:
            if ENTRIES[name].by_clock:
                raise SystemExit(f"{name} goes by the clock: it has no steps to fix")
            time_steps(name, paths)
        return
    for name in [] if arguments.only_write else arguments.names or ENTRIES:
        if train(name, paths, arguments.steps, arguments.precision):
            with redirect_stdout(None):  # it shall be true at any time, but shown once
                write(paths, ENTRIES)
    write(paths, ENTRIES)


if __name__ == "__main__":
    main()
