"""An LSTM language model on the Penn Treebank beside n-grams, and what its weights are worth to a classifier.

`python recipes/language_model.py` trains what is not trained yet below runs/language-model (a run that was stopped goes
on), notes the figures in docs/results/language-model.json and writes docs/results/language-model.md. `--minutes` lets
the clock of an idle machine decide how long; `--steps 20` is a try: everything below runs/try-20 and nothing in docs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from common import REPOSITORY, RecipePaths, data_file, environment, table, write_result
from controls import tfidf
from kneser_ney import KneserNey, sentences_of
from translation_clock import Clock

import kinfolk
from kinfolk.api.experiment import Callbacks
from kinfolk.api.loaded import Encoder, load_encoder
from kinfolk.cli.output import training_progress
from kinfolk.errors import KinfolkError, StopSignalError
from kinfolk.files import parse_json, read_object, read_text
from kinfolk.machine import tune
from kinfolk.models.family import init_model
from kinfolk.models.recurrent_lm import RecurrentLmConfig
from kinfolk.nn.fast.linear import PRECISIONS
from kinfolk.tasks.task import Columns, read_for
from kinfolk.training.runs import Progress, best_entry

NAME = "language-model"
FOLDER = f"runs/{NAME}"  # as commands show it
WORDS = 10_001  # the 9,999 of the training text, of which <unk> is one, and the tokens </s> and <pad>
MODEL: dict[str, Any] = {"width": 320, "layers": 2, "dropout": 0.4, "tied": True}
TRAINING: dict[str, Any] = {"learning_rate": 4e-3, "batch_size": 32, "bptt_length": 35, "weight_averaging": 0.1}
LABELS, SEEDS = 200, 5
CLASSIFIER: dict[str, Any] = {"epochs": 15, "batch_size": 16, "learning_rate": 2e-3, "evaluations": 5}
SENTENCES = Columns(header=["text", "label"])


def note(paths: RecipePaths, name: str, figures: dict[str, Any]) -> None:
    """Keep figures, with where and when they were found."""
    with paths.noting() as notes:
        notes[name] = environment() | figures


def command(length: dict[str, float], precision: str) -> str:
    """The training from a shell."""
    settings = ",".join(f"{name}={str(value).lower()}" for name, value in MODEL.items())
    options = " ".join(f"--{name} {value:g}" for name, value in TRAINING.items())
    files = "--corpus $KINFOLK_DATA/ptb/ptb.train.txt --dev $KINFOLK_DATA/ptb/ptb.valid.txt"
    length_options = " ".join(f"--{name} {value:g}" for name, value in length.items())
    precision_option = "" if precision == "fp32" else f" --precision {precision}"
    return (
        f"kinfolk pretrain lstm {files} --vocabulary-kind words --vocabulary-size {WORDS} --set {settings} {options} "
        f"{length_options}{precision_option} --output {FOLDER}/lstm"
    )


def train(paths: RecipePaths, length: dict[str, float], precision: str) -> None:
    """The language model, if it is not there already; its figures, if they are not noted."""
    folder = paths.runs / "lstm"
    finished = (folder / "model").exists()
    if not finished:
        print(command(length, precision), file=sys.stderr)
        with Clock(folder / "clock.json") as clock, training_progress() as step:

            def watch(seed: int, progress: Progress) -> None:
                step(seed, progress)
                clock.watch(progress)

            kinfolk.pretrain(
                "lstm",
                data_file("ptb/ptb.train.txt"),
                folder,
                data_file("ptb/ptb.valid.txt"),
                changes=MODEL,
                vocabulary_size=WORDS,
                vocabulary_kind="words",
                device="cpu",
                callbacks=Callbacks(lambda corpus, _: print(corpus, file=sys.stderr), watch),
                precision=precision,
                **TRAINING,
                **length,
            )
    if not finished or "lstm" not in paths.notes:
        note(paths, "lstm", measured(folder))


def measured(folder: Path) -> dict[str, Any]:
    """The figures of a run that came to its end, all of them from its folder."""
    model, clock, log = load_encoder(folder, "cpu"), Clock(folder / "clock.json"), _log(folder)
    precision = read_object(folder / "run.json")["settings"].get("precision", "fp32")
    entries = [best_entry([entry]) for entry in log]
    return {
        "command": command({"steps": log[-1]["step"]}, precision),
        "parameters": sum(weight.numel() for weight in model.model.parameters()),
        "dev": model.perplexity(lines("ptb/ptb.valid.txt")),
        "test": model.perplexity(lines("ptb/ptb.test.txt")),
        "steps": log[-1]["step"],
        "curve": [[entry["step"], entry["metrics"]["perplexity"]] for entry in entries if entry],
        "minutes": round(clock.minutes, 1),
        "threads": clock.threads,
        "precision": precision,
    }


def _log(folder: Path) -> list[dict[str, Any]]:
    return [parse_json(line, "log") for line in read_text(folder / "log.jsonl").splitlines()]


def lines(relative: str) -> list[str]:
    return data_file(relative).read_text(encoding="utf-8").splitlines()


def count(paths: RecipePaths) -> None:
    """The controls: unigrams and Kneser-Ney's five-grams."""
    if "controls" in paths.notes:
        return
    train_set, dev, test = (list(sentences_of(data_file(f"ptb/ptb.{part}.txt"))) for part in ("train", "valid", "test"))
    grams = {}
    for title, order in {"unigrams": 1, "5-grams, modified Kneser-Ney": 5}.items():
        counted = KneserNey.learn(train_set, order)
        grams[title] = [counted.perplexity(dev), counted.perplexity(test)]
    note(paths, "controls", grams)


def transfer(paths: RecipePaths) -> None:
    """A classifier of sentences from few labels: from the language model, and from random weights of the same shape."""
    if "transfer" in paths.notes:
        return
    train_set = read_for("classify", data_file("sst2/train.tsv"), SENTENCES).examples[:LABELS]
    dev_set = read_for("classify", data_file("sst2/dev.tsv"), SENTENCES).examples
    encoder = load_encoder(paths.runs / "lstm", "cpu")
    assert isinstance(encoder.model.config, RecurrentLmConfig)
    results = {}
    for title in ("from the language model", "from random weights"):
        scores = []
        for seed in range(SEEDS):
            start = (
                encoder
                if "random" not in title
                else Encoder(init_model(encoder.model.family, encoder.model.config, seed, heads={}), encoder.tokenizer)
            )
            folder = paths.runs / "transfer" / f"{title.replace(' ', '-')}-{seed}"
            if not (folder / "model").exists():
                kinfolk.finetune(start, train_set, folder, dev_set, device="cpu", seed=seed, report=False, **CLASSIFIER)
            best = best_entry(_log(folder))
            assert best is not None
            scores.append(best["metrics"]["accuracy"])
        results[title] = [mean(scores), stdev(scores)]
    commonest = Counter(str(example.label) for example in dev_set).most_common(1)[0][1] / len(dev_set)
    unknown = share_unknown(encoder, [example.text for example in dev_set])
    controls = {"TF-IDF": tfidf(train_set, dev_set)["accuracy"], "commonest class": commonest}
    note(paths, "transfer", {"accuracy": results, "unknown": unknown, **controls})


def share_unknown(encoder: Encoder, texts: list[str]) -> float:
    """Of the words of these texts, how many the language model never saw."""
    ids = [token for text in texts for token in encoder.tokenizer.encode(text, add_special_tokens=False).ids]
    return ids.count(encoder.tokenizer.unk_id) / len(ids)


def write(paths: RecipePaths) -> None:
    """The page, from the figures that are noted."""
    notes = paths.notes
    missing = [name for name in ("lstm", "controls", "transfer") if name not in notes]
    if missing:
        raise SystemExit(f"not noted yet: {', '.join(missing)}; run it without --only-write")
    lstm, controls, carried = notes["lstm"], notes["controls"], notes["transfer"]
    grams = {title: value for title, value in controls.items() if isinstance(value, list)}
    rows = [[title, *(f"{value:.1f}" for value in both)] for title, both in grams.items()]
    shape = f"LSTM, {MODEL['layers']} layers of {MODEL['width']}, tied, {lstm['parameters']:,} weights"
    rows.append([shape, f"{lstm['dev']:.1f}", f"{lstm['test']:.1f}"])
    best = min(test for _, test in grams.values())
    won, lost = (carried["accuracy"][title] for title in ("from the language model", "from random weights"))
    gap = 100 * (won[0] - lost[0])
    parts = [
        "Word-level Penn Treebank in Mikolov's version, one `</s>` a line counted as a word; perplexity is exp of the "
        "mean -log p of a word, each scored once, given all before it in the text (n-grams: in its sentence).",
        table(["model", "dev", "test"], rows),
        f"The LSTM took {lstm['steps']:,} steps, {lstm['minutes']:g} minutes on {lstm['threads']} thread(s)"
        f"{', products in bfloat16' if lstm.get('precision') == 'bf16' else ''}, and ends "
        f"{'below' if lstm['test'] < best else 'above'} the best n-grams by a factor of {best / lstm['test']:.2f}.",
        table(
            ["step", "dev perplexity (16 streams)"], [[f"{step:,}", f"{value:.1f}"] for step, value in lstm["curve"]]
        ),
        f"## What its weights are worth\n\nThe same LSTM under a classifier's head, trained on the first {LABELS} "
        f"sentences of SST-2 and judged on its dev set; mean ± deviation of {SEEDS} seeds, best of "
        f"{CLASSIFIER['evaluations']} evaluations on that set, which flatters both LSTMs a little and TF-IDF not. Of "
        f"the words of the dev set {carried['unknown']:.0%} are unknown to the language model, but not to TF-IDF.",
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
        f"{'more' if abs(gap) > 100 * max(won[1], lost[1]) else 'less'} than the deviation between seeds.",
        f"```sh\n{lstm['command']}\n```",
    ]
    title = "A language model and what it is worth"
    write_result("language-model", "language_model.py", "demo", title, parts, [], folder=paths.results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, help="a try with so many steps, below runs/try-STEPS")
    parser.add_argument("--minutes", type=float, default=45.0, help="how long the language model learns")
    parser.add_argument("--only-write", action="store_true", help="train nothing, write what is noted")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument(
        "--precision", choices=list(PRECISIONS), default="fp32", help="of products while the language model learns"
    )
    arguments = parser.parse_args()
    tune()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    aside = None if arguments.steps is None else REPOSITORY / "runs" / f"try-{arguments.steps}"
    try:
        run(arguments, RecipePaths.of(NAME, aside))
    except (KinfolkError, StopSignalError) as error:
        raise SystemExit(f"error: {error}") from None


def run(arguments: argparse.Namespace, paths: RecipePaths) -> None:
    """What the command line asks for."""
    if not arguments.only_write:
        length = {"minutes": arguments.minutes} if arguments.steps is None else {"steps": arguments.steps}
        train(paths, length, arguments.precision)
        count(paths)
        transfer(paths)
    write(paths)


if __name__ == "__main__":
    main()
