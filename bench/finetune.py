"""Examples per second and the loss of fine-tuning: kinfolk beside the Hugging Face Trainer, same data and settings."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from bench.harness import DATA, GOAL_HEADER, Run, Worker, goal_cells, table, write_result

ROWS, BATCH, RATE, WARMUP, DECAY = 6_400, 32, 5e-5, 0.1, 0.01
SEEDS = (0, 1, 2)
LAST = 40  # steps whose mean is the final training loss
MARKS = (0.25, 0.5, 0.75, 1.0)  # shares of the epoch

Train = Callable[[int], np.ndarray]  # a seed -> the loss of every step
Evaluate = Callable[[], np.ndarray]  # -> loss and accuracy on the dev set


@cache
def rows(name: str) -> tuple[list[str], list[int]]:
    """Phrases of SST-2 and their labels."""
    with (DATA / "glue" / "SST-2" / f"{name}.tsv").open(encoding="utf-8", newline="") as stream:
        table = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))[1 : ROWS + 1]
    return [text for text, _ in table], [int(label) for _, label in table]


def contestant(train: Train, evaluate: Evaluate) -> Run:
    """Tasks are "train SEED" and "evaluate SEED" (of the model that was trained last)."""
    return lambda task: train(int(task.split()[1])) if task.startswith("train") else evaluate()


def run_kinfolk() -> Run:
    import kinfolk
    from kinfolk.data.examples import Example
    from kinfolk.machine import tune
    from kinfolk.models.family import with_new_head
    from kinfolk.tasks.task import TaskOptions
    from kinfolk.tasks.text import TextTask
    from kinfolk.training.runs import Callbacks
    from kinfolk.training.runs import Run as Folder
    from kinfolk.training.settings import OptimizerSettings, TrainSettings
    from kinfolk.training.trainer import Trainer

    tune()
    encoder = kinfolk.load("demo", device="cpu")
    sides = [
        [Example(text, None, str(label), name) for text, label in zip(*rows(name), strict=True)]
        for name in ("train", "dev")
    ]
    task = TextTask.of("classify", sides[0], TaskOptions())
    train_set, dev_set = (task.dataset(encoder.tokenizer, side, encoder.context) for side in sides)
    trained: list[Any] = []

    def train(seed: int) -> np.ndarray:
        model, _ = with_new_head(encoder.model, "classify", 2, seed)
        trained[:] = [model]
        optimizer = OptimizerSettings(learning_rate=RATE, weight_decay=DECAY)
        settings = TrainSettings(
            seed=seed, epochs=1, batch_size=BATCH, warmup=WARMUP, evaluations=1, optimization=optimizer
        )
        losses: list[float] = []
        with tempfile.TemporaryDirectory() as scratch:
            folder = Folder.open(Path(scratch) / "run", {})
            Trainer(
                model,
                task.objective(model),
                train_set.samples,
                settings,
                folder,
                lambda model: (0.0, {}),
                Callbacks(step=lambda seed, progress: losses.append(progress.loss)),
            ).train()
            folder.close()
        return np.array(losses)

    def evaluate() -> np.ndarray:
        model = trained[0].eval()
        return measured(task.text_scores(model, dev_set))

    return contestant(train, evaluate)


def run_trainer(sampling: str) -> Run:
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        PrinterCallback,
        Trainer,
        TrainingArguments,
        logging,
    )

    from kinfolk.checkpoints.find import demo_model

    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(demo_model())

    def encoded(name: str) -> list[dict[str, Any]]:
        texts, labels = rows(name)
        tokens = tokenizer(texts)
        return [
            {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": label}
            for ids, label in zip(tokens["input_ids"], labels, strict=True)
        ]

    train_set, dev_set = encoded("train"), encoded("dev")
    collate = DataCollatorWithPadding(tokenizer)
    trained: list[Any] = []

    def train(seed: int) -> np.ndarray:
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(demo_model(), num_labels=2)
        trained[:] = [model]
        with tempfile.TemporaryDirectory() as scratch:
            arguments = TrainingArguments(
                output_dir=scratch,
                seed=seed,
                num_train_epochs=1,
                per_device_train_batch_size=BATCH,
                learning_rate=RATE,
                warmup_steps=WARMUP,
                weight_decay=DECAY,
                lr_scheduler_type="linear",
                optim="adamw_torch_fused",
                train_sampling_strategy=sampling,
                use_cpu=True,
                logging_steps=1,
                save_strategy="epoch",  # as kinfolk does
                report_to="none",
                disable_tqdm=True,
            )
            trainer = Trainer(model=model, args=arguments, train_dataset=train_set, data_collator=collate)
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        return np.array([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])

    def evaluate() -> np.ndarray:
        model = trained[0].eval()
        with torch.inference_mode():
            batches = [collate(dev_set[start : start + BATCH]) for start in range(0, len(dev_set), BATCH)]
            scores = [
                model(**{name: batch[name] for name in ("input_ids", "attention_mask")}).logits for batch in batches
            ]
        return measured(torch.cat(scores).numpy())

    return contestant(train, evaluate)


def measured(scores: np.ndarray) -> np.ndarray:
    """Mean cross-entropy and accuracy on the dev set, from scores (texts, 2)."""
    truth = np.array(rows("dev")[1])
    logs = scores - np.logaddexp(scores[:, :1], scores[:, 1:])
    return np.array([-logs[np.arange(len(truth)), truth].mean(), (scores.argmax(1) == truth).mean()])


CONTESTANTS = {
    "kinfolk": run_kinfolk,
    "Trainer": lambda: run_trainer("random"),
    "Trainer, grouped by length": lambda: run_trainer("group_by_length"),
}
FLOORS = {"Trainer": 2.0, "Trainer, grouped by length": 1.3}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    curves: dict[str, list[np.ndarray]] = {name: [] for name in CONTESTANTS}
    dev: dict[str, list[np.ndarray]] = {name: [] for name in CONTESTANTS}
    for name, task, took, output in compete_in_turns(list(CONTESTANTS)):
        if task.startswith("train"):
            seconds[name].append(took)
            curves[name].append(output)
        else:
            dev[name].append(output)
    body = [
        f"all-MiniLM-L6-v2 fine-tuned for one epoch on the first {ROWS:,} phrases of SST-2 (2 to 60 tokens), batches "
        f"of {BATCH}, AdamW (fused) at {RATE:g} with linear decay and {WARMUP:.0%} warm-up, weight decay {DECAY}, "
        f"clipping at 1, dropout 0.1, float32; seeds {', '.join(map(str, SEEDS))}; contestants in turns, each in its "
        "own process; texts tokenised before the clock starts, a checkpoint at the end. The allocator of kinfolk's "
        "process is set as its commands set it (`kinfolk.machine.tune`), that of the Trainer's is as it comes.",
        verdict(seconds),
        speed_table(seconds),
        f"Training loss (mean of the {LAST} steps before that share of the epoch) and the dev set at its end, mean ± "
        "deviation over the seeds:",
        loss_table(curves, dev),
    ]
    write_result("finetune", "Fine-tuning speed", "\n\n".join(body))


def verdict(seconds: dict[str, list[float]]) -> str:
    """How many times as fast as each way of the Trainer, and whether that is enough."""
    ours = min(seconds["kinfolk"])
    rows = [[name, *goal_cells(min(seconds[name]) / ours, floor)] for name, floor in FLOORS.items()]
    return table(["kinfolk's speed over that of", "times", *GOAL_HEADER], rows)


def speed_table(seconds: dict[str, list[float]]) -> str:
    best = {name: min(times) for name, times in seconds.items()}
    rows = [
        [name, f"{ROWS / best[name]:.0f}", f"{best[name] / best['kinfolk']:.2f}", *(f"{took:.1f}" for took in times)]
        for name, times in seconds.items()
    ]
    return table(["", "examples/s (best)", "kinfolk is faster by", *(f"seed {seed}, s" for seed in SEEDS)], rows)


def loss_table(curves: dict[str, list[np.ndarray]], dev: dict[str, list[np.ndarray]]) -> str:
    def before(curve: np.ndarray, mark: float) -> float:
        end = round(mark * len(curve))
        return float(curve[max(0, end - LAST) : end].mean())

    rows = [
        [
            name,
            *(spread([before(curve, mark) for curve in curves[name]]) for mark in MARKS),
            spread([float(measures[0]) for measures in dev[name]]),
            spread([100 * float(measures[1]) for measures in dev[name]], 1),
        ]
        for name in CONTESTANTS
    ]
    return table(["", *(f"{mark:.0%}" for mark in MARKS), "dev loss", "dev accuracy"], rows)


def compete_in_turns(names: list[str]) -> Any:
    """(name, task, seconds, output) of every seed and contestant, evaluated right after training."""
    workers = [Worker("bench.finetune", name) for name in names]
    for seed in SEEDS:
        for worker in workers:
            for task in (f"train {seed}", f"evaluate {seed}"):
                yield worker.name, task, *worker.run(task)
    for worker in workers:
        worker.close()


def spread(values: list[float], digits: int = 3) -> str:
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"
