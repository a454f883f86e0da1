"""Fine-tune all-MiniLM-L6-v2 on public tasks, each beside a control that knows no language model.

`python recipes/finetuning.py` trains what is not trained yet, below runs/finetune (a run that was stopped goes on), and
writes docs/results/fine-tuning.md from what is there. Names train just those: `… finetuning.py sst2 mrpc`.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from common import REPOSITORY, data_file, table, write_result
from controls import commonest_tag, frozen, majority, nearest_sentence, tfidf, tfidf_ridge

from kinfolk.cli.finetune import tell_survey
from kinfolk.cli.progress import training
from kinfolk.data.splits import stratified_split
from kinfolk.errors import KinfolkError, StopSignalError
from kinfolk.files import parse_json, read_text
from kinfolk.jobs.finetune import Watcher, finetune
from kinfolk.jobs.reading import Columns, read_for
from kinfolk.machine import tune
from kinfolk.training.entries import best_entry
from kinfolk.training.optimiser import OptimiserSettings
from kinfolk.training.trainer import TrainSettings

RUNS = REPOSITORY / "runs" / "finetune"
Control = Callable[[list[Any], list[Any]], Mapping[str, float]]  # (learned, held) -> metrics under the same names


@dataclass(frozen=True)
class Training:
    """A task, how it is trained, the figure that counts, and what it is compared with."""

    title: str
    train: str
    dev: str | None
    figure: str
    controls: Mapping[str, Control]
    goal: float | None = None
    scale: float = 100.0  # of the figure
    task: str = "classify"
    columns: Columns = field(default_factory=Columns)
    rate: float = 5e-5
    epochs: float = 3.0
    batch_size: int = 32
    evaluations: int = 6
    seeds: int = 1
    crf: bool = False

    def settings(self) -> TrainSettings:
        optimiser = OptimiserSettings(rate=self.rate)
        return TrainSettings(
            epochs=self.epochs, batch_size=self.batch_size, evaluations=self.evaluations, optimiser=optimiser
        )

    def command(self, name: str) -> str:
        """The same from a shell."""
        words = ["kinfolk", "finetune", "--model", "demo", "--output", f"runs/finetune/{name}", "--task", self.task]
        words += ["--train", f"$KINFOLK_DATA/{self.train}"]
        words += ["--dev", f"$KINFOLK_DATA/{self.dev}"] if self.dev else []
        for option in ("text", "pair", "label"):
            value = getattr(self.columns, option)
            words += [f"--{option}", shlex.quote(value)] if value is not None else []
        words += ["--header", ",".join(self.columns.header)] if self.columns.header else []
        words += ["--crf"] * self.crf
        words += ["--rate", f"{self.rate:g}", "--epochs", f"{self.epochs:g}", "--batch-size", str(self.batch_size)]
        words += ["--evaluations", str(self.evaluations)] + (["--seeds", str(self.seeds)] if self.seeds > 1 else [])
        return " ".join(words)


SENTENCES = Columns(header=["text", "label"])
TRAININGS = {
    "sst2-phrases": Training(
        "SST-2, phrases",
        "glue/SST-2/train.tsv",
        "glue/SST-2/dev.tsv",
        "accuracy",
        {"TF-IDF": tfidf},
        90.5,
        rate=7e-5,
        batch_size=64,
        evaluations=12,
    ),
    "sst2": Training(
        "SST-2, the tutorial's 6,920 sentences",
        "sst2/train.tsv",
        "sst2/dev.tsv",
        "accuracy",
        {"TF-IDF": tfidf, "frozen, first 2,000 rows": frozen},
        88,
        columns=SENTENCES,
        seeds=3,
    ),
    "conll": Training(
        "CoNLL-2003 entities",
        "conll2003/train.txt",
        "conll2003/valid.txt",
        "f1",
        {"commonest tag of each word": commonest_tag},
        91.5,
        task="tag",
        rate=1.5e-4,
        epochs=9,
        evaluations=9,
        crf=True,
    ),
    "mrpc": Training(
        "MRPC, paraphrases",
        "glue/MRPC/train.tsv",
        "glue/MRPC/dev.tsv",
        "f1",
        {"always yes": majority},
        86,
        columns=Columns("#1 String", "#2 String", "Quality"),
        epochs=4,
        seeds=3,
    ),
    "stsb": Training(
        "STS-B, similarity 0 to 5 (Pearson)",
        "glue/STS-B/train.tsv",
        "glue/STS-B/dev.tsv",
        "pearson",
        {},
        87,
        task="regress",
        columns=Columns("sentence1", "sentence2", "score"),
        epochs=4,
        seeds=3,
    ),
    "atis-slots": Training(
        "ATIS slots",
        "atis/train",
        "atis/dev",
        "f1",
        {"commonest tag of each word": commonest_tag},
        task="tag",
        rate=1e-4,
        epochs=8,
        seeds=3,
    ),
    "atis-intents": Training(
        "ATIS intents",
        "atis/train",
        "atis/dev",
        "accuracy",
        {"TF-IDF": tfidf},
        rate=1e-4,
        epochs=5,
        seeds=3,
    ),
    "rte": Training(
        "RTE, entailment",
        "glue/RTE/train.tsv",
        "glue/RTE/dev.tsv",
        "accuracy",
        {"commonest class": majority},
        columns=Columns("sentence1", "sentence2", "label"),
        epochs=4,
        seeds=3,
    ),
    "cola": Training(
        "CoLA, acceptability (Matthews)",
        "glue/CoLA/train.tsv",
        "glue/CoLA/dev.tsv",
        "matthews",
        {"TF-IDF": tfidf},
        columns=Columns("sentence", None, "label", ["source", "label", "mark", "sentence"]),
        epochs=4,
        seeds=3,
    ),
    "stars": Training(
        "Review stars 1 to 5 (mean absolute error; lower is better)",
        "reviews/yelp.csv",
        None,
        "mean_absolute_error",
        {"TF-IDF + ridge": tfidf_ridge},
        scale=1.0,
        task="regress",
        rate=1e-4,
    ),
    "squad": Training(
        "SQuAD 1.1 from 11,877 questions (F1)",
        "squad/train-v1.1-sample.json",
        "squad/dev-v1.1.json",
        "f1",
        {"sentence nearest to the question": nearest_sentence},
        task="answer",
        rate=1e-4,
        epochs=2,
        evaluations=2,
    ),
}


def train(name: str, model: str) -> None:
    """Train a recipe to its end, if it is not there already."""
    training_of, folder = TRAININGS[name], RUNS / name
    if (folder / "model").exists():
        return
    print(f"{name}: {training_of.command(name)}", file=sys.stderr)
    columns = dataclasses.asdict(training_of.columns)
    with training() as step:
        finetune(
            model,
            data_place(training_of.train),
            folder,
            dev=None if training_of.dev is None else data_place(training_of.dev),
            task=training_of.task,
            crf=training_of.crf,
            seeds=training_of.seeds,
            device="cpu",
            settings=training_of.settings(),
            watcher=Watcher(tell_survey, step),
            **columns,
        )


def data_place(relative: str) -> Path:
    """A file of the data folder, or a folder of slots in it."""
    return data_file(f"{relative}/seq.in").parent if not Path(relative).suffix else data_file(relative)


def results(name: str) -> list[dict[str, float]]:
    """The metrics of each seed's best evaluation, as its log tells them."""
    seeds, folder = TRAININGS[name].seeds, RUNS / name
    folders = [folder / f"seed-{seed}" for seed in range(seeds)] if seeds > 1 else [folder]
    logs = [[parse_json(line, str(place)) for line in read_text(place / "log.jsonl").splitlines()] for place in folders]
    return [best_entry(log)["metrics"] for log in logs]  # type: ignore[index]


def controls(name: str) -> dict[str, float]:
    """What comes of the same data without a language model."""
    asked = TRAININGS[name]
    learned = read_for(asked.task, data_place(asked.train), asked.columns).examples
    if asked.dev is None:
        learned, held = stratified_split(learned, seed=0)
    else:
        held = read_for(asked.task, data_place(asked.dev), asked.columns).examples
    return {title: asked.scale * control(learned, held)[asked.figure] for title, control in asked.controls.items()}


def write(names: list[str]) -> None:
    """docs/results/fine-tuning.md, from the runs that are finished."""
    rows, commands, details = [], [], []
    for name in names:
        asked, found = TRAININGS[name], results(name)
        values = [asked.scale * metrics[asked.figure] for metrics in found]
        digits = 1 if asked.scale == 100 else 3
        beside = "; ".join(f"{title} {value:.{digits}f}" for title, value in controls(name).items())
        reached = f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")
        rows.append([asked.title, asked.figure, reached, "" if asked.goal is None else f"{asked.goal:g}", beside])
        commands.append(asked.command(name))
        others = {metric: mean(metrics[metric] for metrics in found) for metric in found[0]}
        details.append([asked.title, ", ".join(f"{metric} {value:.4f}" for metric, value in others.items())])
    parts = [
        "all-MiniLM-L6-v2 (22 million weights, lower case) fine-tuned on a CPU, judged on each task's dev set by the "
        "best evaluation of the run; mean ± standard deviation where three seeds (0, 1, 2) were run. Controls learn "
        "from the same rows without any pre-trained model, except where they say so.",
        table(["task", "figure", "reached", "goal", "beside it"], rows),
        table(["task", "all metrics, mean over the seeds"], details),
        "Each line can be run alone, and a run that was stopped goes on:",
        "```sh\n" + "\n".join(commands) + "\n```",
    ]
    write_result("fine-tuning", "finetuning.py", "demo", "Fine-tuning", parts, ["scikit-learn", "seqeval"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *TRAININGS], help="what to train; without names everything")
    parser.add_argument("--only-write", action="store_true", help="train nothing, write what is finished")
    given = parser.parse_args()
    tune()
    try:
        for name in [] if given.only_write else given.names or TRAININGS:
            train(name, "demo")
        write([name for name in TRAININGS if (RUNS / name / "model").exists()])
    except (KinfolkError, StopSignalError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
