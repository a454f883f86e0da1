"""The model card and the report: the hub reads the one, both survive any label, and the card gives nothing away."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard

import kinfolk
from kinfolk.api.experiment import SeedResult, Sides
from kinfolk.api.loaded import Encoder
from kinfolk.api.report import Report, model_card, write_report
from kinfolk.api.supervised import DEMO_NAME, KINDS, SupervisedExperiment, base_model
from kinfolk.data.examples import Example
from kinfolk.tasks.task import FILES, EvalResult, Mistake
from kinfolk.tasks.text import TextTask
from kinfolk.text.windows import TokenCounts
from kinfolk.training.settings import TrainSettings

WEIRD = ("a|b", "line\nbreak", "---", "# *x* `y` <b> $z$", "日本語", "\udcff\0", "", "x" * 5000)
Made = Callable[..., Report]


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> Encoder:
    return kinfolk.load(tiny_bert, device="cpu")


def counts_of(encoder: Encoder, examples: list[Example]) -> TokenCounts:
    counts = TokenCounts(encoder.tokenizer)
    for example in examples:
        counts.add(encoder.tokenizer.encode(example.text), pair=False)
    return counts


@pytest.fixture
def made(encoder: Encoder) -> Made:
    """The report of a run with these labels, other things changed as wished."""

    def make(
        labels: tuple[str, ...] = ("no", "yes"),
        seeds: int = 1,
        base: str = "demo",
        name: str = "stars",
        train: str = "train.csv",
        measured: bool = True,
        seconds: float | None = 90.0,
    ) -> Report:
        examples = [Example(f"text {label}", None, label, f"train.csv:{row}") for row, label in enumerate(labels)]
        counts = [[row + column for column in range(len(labels))] for row in range(len(labels))]
        mistakes = [Mistake("/secret/dev.csv:7", "a | secret\ntext\udcff", labels[0], labels[-1], 0.99)] * 3
        metrics = {"accuracy": 0.75, "macro_f1": 0.5, "mcc": 0.25}
        log = [
            {"step": 1, "loss": 0.5, "learning_rate": 1e-4, "epoch": 0},
            {"step": 2, "loss": 0.4, "metrics": metrics, "selection_score": 0.75},
        ]
        task = TextTask("classify", labels)
        experiment = SupervisedExperiment(
            dataclasses.replace(encoder, name=base),
            task,
            Sides(examples, examples, [], "", (train, "dev.csv")),
            TrainSettings(),
            Path(name),
        )

        def result(seed: int) -> SeedResult:
            own = {name: value - seed / 10 for name, value in metrics.items()}
            evaluated = EvalResult(own, counts, mistakes) if measured else EvalResult({})
            taken = None if seconds is None else seconds / seeds
            return SeedResult(encoder.model, evaluated, [], log if measured else [], taken, task)

        return experiment.report({seed: result(seed) for seed in range(seeds)}, 0)

    return make


def header(card: str) -> dict[str, Any]:
    fields: dict[str, Any] = yaml.safe_load(card.split("\n---\n")[0])
    return fields


def test_the_hub_reads_the_header(made: Made, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(model_card(made()), encoding="utf-8")
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.pipeline_tag == "text-classification"
    assert data.base_model == DEMO_NAME
    assert data.library_name == "transformers"
    assert data.metrics == ["accuracy", "f1", "matthews_correlation"]
    assert data.license is None
    assert {(result.metric_name, result.metric_value) for result in data.eval_results} == {
        ("accuracy", 0.75),
        ("macro f1", 0.5),
        ("mcc", 0.25),
    }
    assert {result.dataset_name for result in data.eval_results} == {"dev.csv"}


def test_it_tells_how_the_model_was_made(made: Made) -> None:
    card = model_card(made(seeds=3))
    for message in (
        "one of 2 labels",
        f"from `{DEMO_NAME}`",
        "| training data | 2 examples (train.csv) |",
        "| steps | 6, 1.5 minutes in all |",
        "| kept | seed 0, step 2 |",
        "| seeds | 0, 1, 2 |",
        "| learning rate | 5e-05 |",
        f"torch {torch.__version__}",
        "| accuracy | 0.7500 | 0.6500 | 0.1000 |",
        "| yes | 1 | 2 |",
        "reads 40 tokens at once",
    ):
        assert message in card, message


def test_a_card_quotes_no_text_and_no_path(made: Made, tmp_path: Path) -> None:
    card = model_card(made(base=str(tmp_path / "deep" / "base"), seconds=None))
    assert "secret" not in card
    assert str(tmp_path) not in card
    assert "the model of a folder base" in card
    assert "base_model" not in header(card)
    assert "minutes" not in card


def test_only_hub_names_are_base_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    names = ["bert-base-uncased", "someone/model", "folder", "./x", "/x/y", "", "demo"]
    assert [base_model(name) for name in names] == [*names[:2], None, None, None, None, DEMO_NAME]


def test_a_model_without_a_dev_set_claims_nothing(made: Made) -> None:
    card = model_card(made(measured=False))
    assert "there was no dev set" in card
    assert "model-index" not in header(card)


@pytest.mark.parametrize("kind", FILES)
def test_every_task_can_be_told_and_its_verb_exists(kind: str) -> None:
    verb = KINDS[kind].ask.removeprefix("model.").split("(")[0]
    assert inspect.isfunction(getattr(Encoder, verb))


@pytest.mark.parametrize("repeats", [1, 5], ids=["a matrix", "many labels"])
def test_card_and_report_survive_any_label(made: Made, tmp_path: Path, repeats: int) -> None:
    labels = tuple(f"{label}{index or ''}" for index in range(repeats) for label in WEIRD)
    report = made(labels, train="a: b\n---\n.csv", name="--- x\n")
    card = model_card(report)
    card.encode()
    assert header(card)["model-index"][0]["name"] == "--- x"
    assert write_report(tmp_path, report, ["a note | with\nlines"]) == []
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "a note \\| with lines" in text
    assert max(map(len, card.splitlines())) < 2000
    assert (tmp_path / "confusion.png").exists() == (repeats == 1)


def test_the_report_has_the_pictures_and_the_mistakes(made: Made, tmp_path: Path) -> None:
    report = made(seeds=2)
    assert write_report(tmp_path, report) == []
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "![loss](loss.png)" in text
    assert "![confusion](confusion.png)" in text
    assert "| 0.9900 | no | yes | /secret/dev.csv:7 | a \\| secret text� |" in text
    assert "| 1 | 0.6500 | 0.4000 | 0.1500 |" in text
    rows = [json.loads(line) for line in (tmp_path / "mistakes.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 3
    assert rows[0] == dataclasses.asdict(report.mistakes[0]) | {"text": "a | secret\ntext?"}


def test_without_matplotlib_the_report_has_a_note_instead(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (note,) = write_report(tmp_path, made())
    assert "pip install" in note
    assert "no pictures were drawn" in (tmp_path / "report.md").read_text()
    assert not (tmp_path / "loss.png").exists()


def test_a_card_may_be_edited_and_the_model_still_loads(encoder: Encoder, tmp_path: Path) -> None:
    folder = encoder.save(tmp_path / "model", card="# A card\n")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Another\n")
    kinfolk.load(folder, device="cpu")
    assert not (encoder.save(tmp_path / "plain") / "README.md").exists()
