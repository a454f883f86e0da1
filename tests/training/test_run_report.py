"""What fine-tuning leaves for people: a model with its card, and a report beside it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from small_runs import examples, settings

import kinfolk
from kinfolk.api.finetune import finetune


def test_a_run_ends_with_a_card_and_a_report(tiny_bert: Path, tmp_path: Path) -> None:
    table, output = tmp_path / "tastes.csv", tmp_path / "run"
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows([("text", "label"), *((item.text, item.label) for item in examples(80))])
    trained = finetune(tiny_bert, table, output, settings=settings(epochs=1.0), device="cpu")
    assert not (output / "tensorboard").exists()
    card = (output / "model" / "README.md").read_text()
    assert "72 examples (tastes.csv)" in card
    assert "8 examples (held out of tastes.csv)" in card
    assert str(tmp_path) not in card
    assert str(tiny_bert.parent) not in card
    assert f"| accuracy | {trained.metrics['accuracy']:.4f} |" in card
    report = (output / "report.md").read_text()
    assert str(trained.data).splitlines()[0] in report
    assert {path.name for path in output.glob("*.png")} == {"loss.png", "confusion.png"}
    mistakes = output / "mistakes.jsonl"
    listed = [json.loads(line) for line in mistakes.read_text().splitlines()] if mistakes.exists() else []
    assert [row["location"] for row in listed] == [item.location for item in trained.result.mistakes]
    assert kinfolk.load(output, device="cpu").classify("salt").label in ("salty", "sandy")
