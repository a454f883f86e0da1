"""Every task and option of `kinfolk finetune`, through the command."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kinfolk
from kinfolk.cli import train as commands
from kinfolk.training.settings import OptimizerSettings, TrainSettings
from surroundings import Command, Ended

WORDS = ["water", "bread", "light", "stone", "river", "bird", "paper", "house"]
FAST = ("--steps", "8", "--batch-size", "8", "--lr", "0.003", "--evaluations", "2", "--device", "cpu", "--json")


def rows(count: int = 120) -> list[dict[str, Any]]:
    """Texts that hold salt, sand, both or neither."""
    draw, results = random.Random(0), []
    for _ in range(count):
        labels = [word for word in ("salt", "sand") if draw.random() < 0.5]
        words = [*draw.choices(WORDS, k=draw.randint(2, 5)), *labels]
        draw.shuffle(words)
        results.append({"text": " ".join(words), "labels": labels})
    return results


def write_jsonl(path: Path, table: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in table))
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each form; its task is guessed by it."""
    folder = tmp_path_factory.mktemp("forms")
    classes = [{"text": row["text"], "label": "salty" if "salt" in row["labels"] else "plain"} for row in rows()]
    semicolons = "text;label\n" + "".join(f"{row['text']};{row['label']}\n" for row in classes)
    tagged = [[(word, "B-X" if word == "salt" else "O") for word in row["text"].split()] for row in rows()]
    conll = "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in tagged)
    choices = [
        {
            "context": "bird",
            "options": ["salt water", "paper light"][:: 1 if index % 2 else -1],
            "answer": 1 - index % 2,
        }
        for index in range(60)
    ]
    asked = [
        {
            "context": row["text"] + " salt",
            "qas": [
                {
                    "id": str(index),
                    "question": "Where?",
                    "answers": [{"text": "salt", "answer_start": len(row["text"]) + 1}],
                }
            ],
        }
        for index, row in enumerate(rows(40))
    ]
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": asked}]}
    paths = {
        "classify": write_jsonl(folder / "classes.jsonl", classes),
        "multilabel": write_jsonl(folder / "labels.jsonl", rows()),
        "choose": write_jsonl(folder / "choices.jsonl", choices),
        "tag": folder / "tags.txt",
        "answer": folder / "squad.json",
        "spreadsheet": folder / "sheet.csv",
    }
    paths["tag"].write_text(conll)
    paths["answer"].write_text(json.dumps(squad))
    paths["spreadsheet"].write_text(semicolons)
    return paths


@pytest.mark.parametrize(
    ("form", "metric", "ending"),
    [
        ("classify", "accuracy", ".csv"),
        ("spreadsheet", "accuracy", ".csv"),
        ("multilabel", "micro_f1", ".csv"),
        ("tag", "f1", ".txt"),
        ("choose", "accuracy", ".jsonl"),
        ("answer", "exact", ".json"),
    ],
)
def test_a_file_of_any_form_is_trained_on_evaluated_and_predicted(
    form: str, metric: str, ending: str, tables: dict[str, Path], tiny_bert: Path, command: Command, tmp_path: Path
) -> None:
    source, output, predicted = tables[form], tmp_path / "run", tmp_path / f"predicted{ending}"
    ended = command("finetune", "--model", tiny_bert, "--train", source, "--dev", source, "--output", output, *FAST)
    assert ended.code == 0, ended.err
    metrics = json.loads(ended.out)["metrics"]
    assert (output / "report.md").exists()
    assert not list(output.glob("step-*"))
    log = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == [*range(1, 9)]
    assert [entry["step"] for entry in log if "metrics" in entry] == [4, 8]
    ended = command("evaluate", "--model", output, "--input", source, "--json", "--device", "cpu")
    assert json.loads(ended.out)["metrics"][metric] == pytest.approx(metrics[metric], abs=1e-6)
    ended = command("predict", "--model", output, "--input", source, "--output", predicted, "--device", "cpu")
    assert ended.code == 0, ended.err
    if metric == "accuracy" and ending == ".csv":
        with predicted.open() as stream:
            right = [row["label"] == row["predicted_label"] for row in csv.DictReader(stream)]
        assert sum(right) / len(right) == pytest.approx(metrics[metric])
    else:
        assert predicted.read_text().count("\n") >= (1 if ending == ".json" else len(source.read_text().splitlines()))


def test_labels_come_with_their_probabilities_and_tuned_thresholds_are_kept(
    tables: dict[str, Path], tiny_bert: Path, command: Command, tmp_path: Path
) -> None:
    output, predicted = tmp_path / "run", tmp_path / "predicted.jsonl"
    options = ("--train", tables["multilabel"], "--dev", tables["multilabel"], "--class-weights", "balanced")
    assert command("finetune", "--model", tiny_bert, "--output", output, *options, *FAST).code == 0
    limits = json.loads((output / "model" / "config.json").read_text())["thresholds"]
    assert len(limits) == 2
    assert all(0 < limit < 1 for limit in limits)
    usual = ("--model", output, "--input", tables["multilabel"], "--device", "cpu")
    report = json.loads(command("evaluate", *usual, "--json").out)
    assert bool(report["mistakes"]) == (report["metrics"]["subset_accuracy"] < 1)
    command("predict", *usual, "--output", predicted)
    model = kinfolk.load(output, device="cpu")
    for line in predicted.read_text().splitlines()[:20]:
        row = json.loads(line)
        said = model.classify(row["text"])
        assert said.labels == tuple(row["predicted_labels"].split("|") if row["predicted_labels"] else ())
        chances = [float(chance) for chance in row["predicted_probabilities"].split("|") if chance]
        assert chances == pytest.approx([said.probabilities[label] for label in said.labels], rel=1e-4)
        limit = dict(zip(("salt", "sand"), limits, strict=True))
        assert all(chance >= limit[label] - 1e-6 for label, chance in zip(said.labels, chances, strict=True))


def test_what_is_read_and_what_is_not_is_reported(tiny_bert: Path, command: Command, tmp_path: Path) -> None:
    source = tmp_path / "asked.csv"
    lines = [f"{index},how {index},so {index},{'ab'[index % 2]}" for index in range(20)]
    source.write_text("id,question,answer,label\n" + "\n".join(lines) + "\n")
    run = ("--model", tiny_bert, "--train", source, "--steps", "1", "--seeds", "2", "--device", "cpu", "--json")
    ended = command("finetune", *run, "--output", tmp_path / "run")
    assert ended.code == 0, ended.err
    columns = 'task classify: text "question", pair "answer", label "label"; not read: id'
    assert f"read        {columns}\n" in ended.err
    assert columns in (tmp_path / "run" / "report.md").read_text()
    output = json.loads(ended.out)
    scores = [seed["accuracy"] for seed in output["by_seed"].values()]
    assert output["mean"]["accuracy"] == pytest.approx(sum(scores) / 2)
    assert output["deviation"].keys() == output["metrics"].keys()


@pytest.fixture
def run(tables: dict[str, Path], tiny_bert: Path, command: Command, tmp_path: Path) -> Callable[..., Ended]:
    """`kinfolk finetune` on classes, with these options."""
    source = tables["classify"]
    start = ("finetune", "--model", tiny_bert, "--train", source, "--dev", source, "--output", tmp_path / "run")
    return lambda *options: command(*start, "--device", "cpu", "--json", *options)


@pytest.mark.parametrize(
    "changes",
    [
        {
            "steps": 2,
            "learning_rate": 1e-3,
            "batch_size": 4,
            "batch_tokens": 100,
            "gradient_accumulation": 2,
            "schedule": "cosine",
            "warmup": 0.5,
            "max_grad_norm": 2.0,
            "weight_decay": 0.0,
            "layer_decay": 0.9,
            "freeze": 1,
            "gradual_unfreezing": 0.5,
            "weight_averaging": 0.3,
            "patience": 3,
            "evaluations": 1,
            "seed": 3,
        },
        {"epochs": 0.5, "evaluate_every": 1},
        {"minutes": 0.05, "max_grad_norm": 0.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_training_options_reach_the_run(changes: dict[str, Any], run: Callable[..., Ended], tmp_path: Path) -> None:
    options = [word for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", value)]
    ended = run(*options)
    assert ended.code == 0, ended.err
    described = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    usual = {"learning_rate": 1e-4} | ({} if "batch_size" in changes else {"min_steps": 150})  # of a narrow model
    assert described == json.loads(json.dumps(TrainSettings().but(**usual | changes).described()))


def test_steps_between_evaluations_are_counted_and_tensorboard_follows(
    run: Callable[..., Ended], tmp_path: Path
) -> None:
    assert run("--steps", "5", "--evaluate-every", "2", "--tensorboard", "--dropout", "0").code == 0
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log if "metrics" in entry] == [2, 4, 5]
    assert len(log) == 5
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert (config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]) == (0, 0)


@pytest.mark.parametrize(
    ("options", "head"),
    [
        (("--frozen", "linear", "--steps", "2"), ([0, 1, 2], "mix", 0)),
        (("--frozen", "linear", "--steps", "2", "--layers", "last"), ([2], "concat", 0)),
        (("--frozen", "bilstm", "--steps", "2", "--layers", "0,2"), ([0, 2], "concat", 2)),
        (("--frozen", "logistic"), ([2], "concat", 0)),
    ],
)
def test_a_frozen_encoder_gets_the_head_that_is_named(
    options: tuple[str, ...], head: tuple[list[int], str, int], run: Callable[..., Ended], tmp_path: Path
) -> None:
    ended = run(*options)
    assert ended.code == 0, ended.err
    saved = json.loads((tmp_path / "run" / "model" / "head.json").read_text())
    assert (saved["layers"], saved["join"], saved["recurrent"]) == head


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--layers", "last"), "layers"),
        (("--frozen", "logistic", "--epochs", "3"), "epochs"),
        (("--frozen", "logistic", "--layers", "mix"), "mix"),
        (("--frozen", "linear", "--gradual-unfreezing", "0.5"), "gradual_unfreezing"),
        (("--frozen", "linear", "--crf"), "crf"),
        (("--dropout", "1.5"), "dropout=1.5"),
        (("--frozen", "linear", "--dropout", "0"), "dropout"),
        (("--window", "0"), "--window=0"),
        (("--batch-tokens", "0"), "--batch-tokens=0"),
        (("--class-weights", "salty=-1"), "salty=-1.0"),
        (("--class-weights", "salty=nan"), "salty=nan"),
        (("--class-weights", "salty=x"), "--class-weights"),
        (("--max-grad-norm", "-1"), "--max-grad-norm=-1.0"),
        (("--seed", str(2**64)), f"seed={2**64}"),
        (("--learning-rate", "inf"), "--learning-rate=inf"),
        (("--lr", "inf"), "--learning-rate=inf"),
        (("--weight-decay", "inf"), "--weight-decay=inf"),
        (("--epochs", "3", "--steps", "3"), "epochs and steps"),
        (("--epochs", "3", "--minutes", "1"), "epochs and minutes"),
        (("--stride", "-1"), "--stride=-1"),
        (("--task", "tagg"), "tagg"),
        (("--fsdp",), "fsdp"),
    ],
)
def test_options_without_a_meaning_are_one_line(
    options: tuple[str, ...], named: str, run: Callable[..., Ended], tmp_path: Path
) -> None:
    ended = run(*options)
    assert (ended.code, ended.out) == (2, "")
    (line,) = [line for line in ended.err.splitlines() if line.startswith("kinfolk: ")]
    assert named in line
    assert not (tmp_path / "run" / "model").exists()


def test_labels_that_training_never_saw_are_reported_and_count_as_misses(
    tables: dict[str, Path], tiny_bert: Path, command: Command, tmp_path: Path
) -> None:
    dev = tmp_path / "dev.csv"
    dev.write_text("text,label\na,sour\nb,sweet\n")
    usual = ("--model", tiny_bert, "--train", tables["classify"], "--dev", dev, "--output", tmp_path / "run")
    ended = command("finetune", *usual, "--device", "cpu", "--steps", "1", "--json")
    assert ended.code == 0, ended.err
    assert ": sour, sweet" in ended.err
    assert json.loads(ended.out)["metrics"]["accuracy"] == 0
    ended = command("evaluate", "--model", tmp_path / "run", "--input", dev, "--json")
    assert ended.code == 0, ended.err
    assert " sour, sweet: " in ended.err
    assert json.loads(ended.out)["metrics"]["macro_f1"] == 0


def test_unseen_labels_among_several_count_as_misses(
    tables: dict[str, Path], tiny_bert: Path, command: Command, tmp_path: Path
) -> None:
    usual = ("--model", tiny_bert, "--train", tables["multilabel"], "--output", tmp_path / "run", "--device", "cpu")
    assert command("finetune", *usual, "--steps", "1").code == 0
    for labels in ([["sugar"], ["sugar", "lime"]], [["sugar"], []]):
        rows = [{"text": "a river", "labels": row} for row in labels]
        source = write_jsonl(tmp_path / "new.jsonl", rows)
        ended = command("evaluate", "--model", tmp_path / "run", "--input", source, "--json")
        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["metrics"]["micro_f1"] == 0


def test_seeds_and_a_single_run_do_not_share_a_folder(
    tables: dict[str, Path], tiny_bert: Path, command: Command, tmp_path: Path
) -> None:
    """A run that was stopped keeps its checkpoints, whatever is asked for in its folder."""
    usual = ("--model", tiny_bert, "--train", tables["classify"], "--device", "cpu", "--steps", "4")
    for first, second in (((), ("--seeds", "2")), (("--seeds", "2"), ())):
        output = tmp_path / f"run-{len(first)}"
        assert command("finetune", *usual, *first, "--output", output).code == 0
        shutil.rmtree(output / "model")
        ended = command("finetune", *usual, *second, "--output", output)
        assert ended.code == 2
        assert "differs: " in ended.err


def test_numbers_that_are_learned_as_classes_are_reported(tiny_bert: Path, command: Command, tmp_path: Path) -> None:
    source = tmp_path / "stars.csv"
    source.write_text("text,label\n" + "".join(f"text {index},{index / 7:.3f}\n" for index in range(30)))
    usual = ("--model", tiny_bert, "--train", source, "--dev", source, "--output", tmp_path / "run", "--steps", "1")
    assert "regress" in command("finetune", *usual).err


def test_the_command_and_the_function_have_the_same_options() -> None:
    """What one can say, the other can; only where they speak do they differ."""
    function = set(inspect.signature(kinfolk.finetune).parameters) - {"settings", "callbacks", "report", "training"}
    trainer = {item.name for kind in (TrainSettings, OptimizerSettings) for item in dataclasses.fields(kind)}
    trainer -= {"optimization", "betas", "epsilon"}
    command = set(inspect.signature(commands.finetune).parameters) - {"json"}
    assert command == function | trainer
