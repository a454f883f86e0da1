"""The table of layer choices for tagging."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_features import sentences

from kinfolk.api.layers_table import ROWS, LayersRow, LayersTable, TableCallbacks, layers_table, sample
from kinfolk.errors import InputError
from kinfolk.training.optimizer import OptimizerSettings
from kinfolk.training.settings import TrainSettings
from surroundings import Command

SETTINGS = TrainSettings(epochs=0.5, batch_size=16, evaluations=1, optimizer=OptimizerSettings(learning_rate=2e-2))


def test_mean_deviation_and_interval_worked_by_hand() -> None:
    row = LayersRow("last", (90.0, 92.0, 94.0))
    assert (row.mean, row.deviation) == (92.0, 2.0)
    # t of two degrees of freedom at 97.5 %: 4.3027; divided by the root of three seeds
    assert row.margin == pytest.approx(4.3027 * 2 / 3**0.5, abs=1e-3)
    assert LayersRow("last", (90.0,)).margin is None


def test_the_table_names_every_choice_beside_the_figures_of_the_paper() -> None:
    rows = tuple(LayersRow(layers, (90.0, 91.0)) for layers in ROWS)
    text = LayersTable("demo", "bilstm", "f1", 10, 5, (0, 1), rows, ()).markdown().splitlines()
    assert text[0] == "| layers | f1, mean of 2 seeds | deviation | 95 % interval | BERT base, paper |"
    assert text[2] == "| first layer (embeddings) | 90.5 | 0.71 | 84.1 to 96.9 | 91.0 |"
    assert [line.split(" | ")[-1] for line in text[3:]] == ["94.9 |", "95.5 |", "95.6 |", "95.9 |", "96.1 |", "- |"]


def test_a_share_of_the_sentences_is_always_the_same_and_in_order() -> None:
    given = sentences(100)
    found = sample(given, 0.25)
    assert len(found) == 25
    assert found == sample(given, 0.25)
    assert [given.index(item) for item in found] == sorted(given.index(item) for item in found)
    assert len(sample(given, 1e-9)) == 1
    assert sample(given, 1.0) == given


def test_all_choices_are_measured_on_features_that_are_computed_once(five_layers: Path, tmp_path: Path) -> None:
    done: list[int] = []
    told: list[tuple[str, int]] = []
    callbacks = TableCallbacks(done.append, lambda layers, seed, figure: told.append((layers, seed)))

    def measure() -> LayersTable:
        return layers_table(
            five_layers,
            sentences(60),
            sentences(10, 1),
            share=0.5,
            seeds=2,
            head="linear",
            cache=tmp_path,
            device="cpu",
            settings=SETTINGS,
            callbacks=callbacks,
        )

    found = measure()
    assert (found.train, found.dev, found.metric, found.seeds) == (30, 10, "f1", (0, 1))
    assert [row.layers for row in found.rows] == list(ROWS)
    assert len(found.shares) == 6
    assert sum(found.shares) == pytest.approx(1)
    assert told == [(layers, seed) for layers in ROWS for seed in (0, 1)]
    assert sum(done) == len({item.words for item in [*sample(sentences(60), 0.5), *sentences(10, 1)]})
    again = measure()  # goes on from what is there
    assert again == found
    assert sum(done) == len({item.words for item in [*sample(sentences(60), 0.5), *sentences(10, 1)]})


def test_the_command_prints_the_table_and_writes_it(command: Command, tiny_bert: Path, tmp_path: Path) -> None:
    for name, seed in (("train.txt", 0), ("dev.txt", 1)):
        blocks = (zip(item.words, item.tags or (), strict=True) for item in sentences(12, seed))
        (tmp_path / name).write_text("\n\n".join("\n".join(map(" ".join, block)) for block in blocks) + "\n")
    given = ("--model", tiny_bert, "--train", tmp_path / "train.txt", "--dev", tmp_path / "dev.txt", "--device", "cpu")
    options = ("--head", "linear", "--seeds", "1", "--epochs", "1")
    ended = command("layers-table", *given, *options, "--output", tmp_path / "table.md", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    # a model of two layers has no last four
    assert [row["layers"] for row in found["rows"]] == ["first", "last", "sum_all", "second_to_last", "mix"]
    assert (tmp_path / "table.md").read_text().count("\n") == 7
    assert "mix, seed 0: " in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0.0}, "share above 0"),
        ({"share": 1.5}, "share above 0"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"head": "logistic"}, "head='logistic' is not known"),
        ({"dev": []}, "none to measure on"),
        ({"train": []}, "no sentences to train on"),
    ],
)
def test_wrong_options_are_told(options: dict[str, object], message: str, tiny_bert: Path) -> None:
    with pytest.raises(InputError, match=message):
        layers_table(tiny_bert, **({"train": sentences(4), "dev": sentences(2), "device": "cpu"} | options))
