"""An LSTM language model on the Penn Treebank beside n-grams, and what its weights are worth to a classifier.

`python recipes/language_model.py` trains what is not trained yet below runs/language-model (a run that was stopped goes
on), notes the figures in docs/results/language-model.json and writes docs/results/language-model.md. `--steps` shortens
the run for a try, `--minutes` lets the clock of an idle machine decide.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from common import REPOSITORY, RESULTS, data_file, processor, table, write_result
from controls import tfidf
from kneser_ney import KneserNey, sentences_of

import kinfolk
from kinfolk.cli.progress import training
from kinfolk.errors import KinfolkError, StopSignalError
from kinfolk.files import read_object, write_json
from kinfolk.jobs.loaded import Encoder, load_encoder
from kinfolk.jobs.pretrain import PretrainWatcher
from kinfolk.jobs.reading import Columns, read_for
from kinfolk.machine import tune
from kinfolk.models.recurrent_lm import RecurrentLmConfig
from kinfolk.models.recurrent_writer import fresh_reader
from kinfolk.training.entries import best_entry

RUNS = REPOSITORY / "runs" / "language-model"
NOTED = RESULTS / "language-model.json"
WORDS = 10_001  # the 9,999 of the training text, of which <unk> is one, and the tokens </s> and <pad>
MODEL: dict[str, Any] = {"width": 320, "layers": 2, "dropout": 0.4, "tied": True}
TRAINING: dict[str, Any] = {"rate": 4e-3, "lanes": 32, "length": 35, "average": 0.1}
LABELS, SEEDS = 200, 5
CLASSIFIER: dict[str, Any] = {"epochs": 15, "batch_size": 16, "rate": 2e-3, "evaluations": 5}
SENTENCES = Columns(header=["text", "label"])


def command(extra: str) -> str:
    settings = ",".join(f"{name}={str(value).lower()}" for name, value in MODEL.items())
    options = " ".join(f"--{name} {value:g}" for name, value in TRAINING.items())
    files = "--corpus $KINFOLK_DATA/ptb/ptb.train.txt --dev $KINFOLK_DATA/ptb/ptb.valid.txt"
    return (
        f"kinfolk pretrain lstm {files} --vocabulary-kind words --vocabulary {WORDS} --set {settings} {options} "
        f"{extra} --output runs/language-model/lstm"
    )


def train(length: dict[str, Any]) -> None:
    """The language model, if it is not there already, and its perplexity on the test text."""
    folder = RUNS / "lstm"
    if (folder / "model").exists():
        return
    extra = " ".join(f"--{name} {value:g}" for name, value in length.items())
    print(command(extra), file=sys.stderr)
    start = time.monotonic()
    with training() as step:
        found = kinfolk.pretrain(
            "lstm",
            data_file("ptb/ptb.train.txt"),
            folder,
            data_file("ptb/ptb.valid.txt"),
            changes=MODEL,
            vocabulary=WORDS,
            vocabulary_kind="words",
            device="cpu",
            watcher=PretrainWatcher(lambda corpus: print(corpus, file=sys.stderr), step),
            **TRAINING,
            **length,
        )
    minutes = (time.monotonic() - start) / 60
    model = load_encoder(folder, "cpu")
    entries = [best_entry([entry]) for entry in _log(folder)]
    note(
        "lstm",
        {
            "command": command(extra),
            "parameters": found.corpus.parameters,
            "dev": found.metrics["perplexity"],
            "test": model.perplexity(lines("ptb/ptb.test.txt")),
            "steps": _log(folder)[-1]["step"],
            "curve": [[entry["step"], entry["metrics"]["perplexity"]] for entry in entries if entry],
            "minutes": round(minutes, 1),
        },
    )


def _log(folder: Path) -> list[dict[str, Any]]:
    from kinfolk.files import parse_json, read_text

    return [parse_json(line, "log") for line in read_text(folder / "log.jsonl").splitlines()]


def lines(relative: str) -> list[str]:
    return data_file(relative).read_text(encoding="utf-8").splitlines()


def count() -> None:
    """The controls: unigrams and Kneser-Ney's five-grams."""
    if "controls" in noted():
        return
    train_sentences, test_sentences = (
        list(sentences_of(data_file(f"ptb/ptb.{part}.txt"))) for part in ("train", "test")
    )
    grams = {
        title: KneserNey.learn(train_sentences, order).perplexity(test_sentences)
        for title, order in {"unigrams": 1, "5-grams, modified Kneser-Ney": 5}.items()
    }
    note("controls", grams)


def transfer() -> None:
    """A classifier of sentences from few labels: from the language model, and from random weights of the same shape."""
    if "transfer" in noted():
        return
    learned = read_for("classify", data_file("sst2/train.tsv"), SENTENCES).examples[:LABELS]
    held = read_for("classify", data_file("sst2/dev.tsv"), SENTENCES).examples
    encoder = load_encoder(RUNS / "lstm", "cpu")
    assert isinstance(encoder.model.config, RecurrentLmConfig)
    found = {}
    for title in ("from the language model", "from random weights"):
        scores = []
        for seed in range(SEEDS):
            start = (
                encoder
                if "random" not in title
                else Encoder(fresh_reader(encoder.model.config, seed), encoder.tokenizer)
            )
            place = RUNS / "transfer" / f"{title.replace(' ', '-')}-{seed}"
            if not (place / "model").exists():
                kinfolk.finetune(start, learned, place, held, device="cpu", seed=seed, report=False, **CLASSIFIER)
            best = best_entry(_log(place))
            assert best is not None
            scores.append(best["metrics"]["accuracy"])
        found[title] = [mean(scores), stdev(scores)]
    commonest = Counter(str(example.label) for example in held).most_common(1)[0][1] / len(held)
    note("transfer", {"accuracy": found, "TF-IDF": tfidf(learned, held)["accuracy"], "commonest class": commonest})


def note(name: str, found: dict[str, Any]) -> None:
    facts = {"threads": torch.get_num_threads(), "machine": processor(), "date": datetime.date.today().isoformat()}
    write_json(NOTED, noted() | {name: found | facts})


def noted() -> dict[str, Any]:
    return read_object(NOTED) if NOTED.exists() else {}


def write() -> None:
    """The page, from the figures that are noted."""
    found = noted()
    lstm, controls, carried = found["lstm"], found["controls"], found["transfer"]
    grams = {title: value for title, value in controls.items() if isinstance(value, float)}
    rows = [[title, "", f"{value:.1f}"] for title, value in grams.items()]
    shape = f"LSTM, {MODEL['layers']} layers of {MODEL['width']}, tied, {lstm['parameters']:,} weights"
    rows.append([shape, f"{lstm['dev']:.1f}", f"{lstm['test']:.1f}"])
    best = min(grams.values())
    won, lost = (carried["accuracy"][title] for title in ("from the language model", "from random weights"))
    gap = 100 * (won[0] - lost[0])
    parts = [
        "Word-level Penn Treebank in Mikolov's version, one `</s>` a line counted as a word; perplexity is exp of the "
        "mean -log p of a word, each scored once, given all before it in the text (n-grams: in its sentence).",
        table(["model", "dev", "test"], rows),
        f"The LSTM took {lstm['steps']:,} steps, {lstm['minutes']:g} minutes on {lstm['threads']} thread(s), and ends "
        f"{'below' if lstm['test'] < best else 'above'} the best n-grams by a factor of {best / lstm['test']:.2f}.",
        table(["step", "dev perplexity (16 lanes)"], [[f"{step:,}", f"{value:.1f}"] for step, value in lstm["curve"]]),
        f"## What its weights are worth\n\nThe same LSTM under a classifier's head, trained on the first {LABELS} "
        f"sentences of SST-2 and judged on its dev set; mean ± deviation of {SEEDS} seeds, best of "
        f"{CLASSIFIER['evaluations']} evaluations.",
        table(
            ["start", "accuracy"],
            [
                *(
                    [title, f"{100 * score:.1f} ± {100 * spread:.1f}"]
                    for title, (score, spread) in carried["accuracy"].items()
                ),
                ["TF-IDF", f"{100 * carried['TF-IDF']:.1f}"],
                ["commonest class", f"{100 * carried['commonest class']:.1f}"],
            ],
        ),
        f"Starting from the language model is {'worth' if gap > 0 else 'a loss of'} {abs(gap):.1f} points here, "
        f"{'more' if abs(gap) > 100 * max(won[1], lost[1]) else 'less'} than the deviation between seeds: news text of "
        "1989 tells something about sentences, and little about films.",
        f"```sh\n{lstm['command']}\n```",
    ]
    write_result("language-model", "language_model.py", "demo", "A language model and what it is worth", parts, [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, help="so many steps, instead of 45 minutes")
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--only-write", action="store_true", help="train nothing, write what is noted")
    given = parser.parse_args()
    tune()
    try:
        if not given.only_write:
            train({"steps": given.steps} if given.steps else {"minutes": given.minutes})
            count()
            transfer()
        write()
    except (KinfolkError, StopSignalError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
