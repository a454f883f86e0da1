"""From a table to a trained model and back to a table, by commands."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
import transformers

import kinfolk
from surroundings import Command

TRAIN = ("--epochs", "3", "--batch-size", "8", "--learning-rate", "0.003", "--device", "cpu")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "train.csv"
    words = ["water", "bread", "stone", "river", "paper", "cloud"]
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text", "label"])
        for index in range(120):
            taste = ("salt", "sand")[index % 2]
            text = f"{words[index % 6]}, {taste}\n{words[(index // 6) % 6]} {index // 36}"
            writer.writerow([index, text, f"{taste}y"])
    return path


@pytest.fixture(scope="module")
def trained(table: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from kinfolk.cli.main import run

    folder = tmp_path_factory.mktemp("runs") / "tastes"
    code = run(["finetune", "--model", str(tiny_bert), "--train", str(table), "--output", str(folder), *TRAIN])
    assert code == 0
    return folder


def test_predictions_keep_every_column_and_add_label_and_probability(
    command: Command, trained: Path, table: Path, tmp_path: Path
) -> None:
    ended = command(
        "predict", "--model", trained, "--input", table, "--output", tmp_path / "out.csv", "--device", "cpu"
    )
    assert ended.code == 0
    rows, predicted = (list(csv.DictReader(path.open(newline=""))) for path in (table, tmp_path / "out.csv"))
    assert list(predicted[0]) == ["id", "text", "label", "predicted_label", "predicted_probability"]
    assert [{name: row[name] for name in rows[0]} for row in predicted] == rows
    assert {row["predicted_label"] for row in predicted} <= {"salty", "sandy"}
    assert all(0.5 <= float(row["predicted_probability"]) <= 1 for row in predicted)


def test_bad_rows_are_named_or_left_out_with_a_note(command: Command, trained: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "salt"}\n{"text": null}\n{"text": "sand"}\n')
    usual = ("predict", "--model", trained, "--input", source, "--output", tmp_path / "out.csv", "--device", "cpu")
    ended = command(*usual)
    assert ended.code == 2
    assert f'{source}:2: "text" is null' in ended.err
    ended = command(*usual, "--max-bad-rows", "1")
    assert ended.code == 0
    assert "1 bad rows" in ended.err
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


def test_evaluation_counts_what_prediction_says(command: Command, trained: Path, table: Path, tmp_path: Path) -> None:
    ended = command("evaluate", "--model", trained, "--input", table, "--json", "--device", "cpu")
    assert ended.code == 0
    output = json.loads(ended.out)
    command("predict", "--model", trained, "--input", table, "--output", tmp_path / "out.jsonl", "--device", "cpu")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    right = sum(row["label"] == row["predicted_label"] for row in rows)
    assert output["metrics"]["accuracy"] == pytest.approx(right / len(rows))
    assert sum(map(sum, output["confusion"])) == len(rows)
    assert output["labels"] == ["salty", "sandy"]


def test_the_trained_model_loads_in_transformers_with_equal_scores_and_names(trained: Path) -> None:
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(trained / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained / "model")
    assert theirs.config.id2label == {0: "salty", 1: "sandy"}
    ours = kinfolk.load(trained, device="cpu")
    from kinfolk.tasks.text import score_texts

    texts = ["water and salt", "a river of sand", "nothing"]
    with torch.no_grad():
        expected = theirs(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    actual = torch.from_numpy(next(score_texts(ours, texts)))
    assert (actual - expected).abs().max() < 1e-5


def test_python_says_what_the_command_says(command: Command, trained: Path, table: Path, tmp_path: Path) -> None:
    command("predict", "--model", trained, "--input", table, "--output", tmp_path / "out.jsonl", "--device", "cpu")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    model = kinfolk.load(trained, device="cpu")
    predictions = model.classify(row["text"] for row in rows)
    assert [guess.label for guess in predictions] == [row["predicted_label"] for row in rows]
    assert all(abs(sum(guess.probabilities.values()) - 1) < 1e-6 for guess in predictions)
    assert model.classify(rows[0]["text"]).label == rows[0]["predicted_label"]


def test_wrong_labels_columns_and_options_are_one_line(
    command: Command, tiny_bert: Path, table: Path, tmp_path: Path
) -> None:
    one_class = tmp_path / "one.csv"
    one_class.write_text("text,label\na,x\nb,x\n")
    usual = ("--model", tiny_bert, "--output", tmp_path / "run", "--device", "cpu")
    cases = {
        "one class": ("--train", one_class),
        "lable": ("--train", table, "--label", "lable"),
        "linaer": ("--train", table, "--schedule", "linaer"),
        "sweet": ("--train", table, "--class-weights", "sweet=2"),
        ":2": ("--train", table, "--task", "regress"),
    }
    for reason, options in cases.items():
        ended = command("finetune", *usual, *options)
        assert ended.code == 2, reason
        assert reason in ended.err
        assert not (tmp_path / "run" / "model").exists()


def test_a_model_without_a_classifier_says_so(command: Command, tiny_bert: Path, table: Path, tmp_path: Path) -> None:
    ended = command(
        "predict", "--model", tiny_bert, "--input", table, "--output", tmp_path / "out.csv", "--device", "cpu"
    )
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()
