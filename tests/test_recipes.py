"""The recipes behind docs/results: what they say when data is missing, and the figures that must not move."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kinfolk
from kinfolk.data.examples import Sentence
from support.tiny import write_folder, write_sentence_encoder
from surroundings import shared_data

RECIPES = Path(__file__).resolve().parents[1] / "recipes"


@pytest.fixture(autouse=True)
def recipes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))


def test_missing_data_ends_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from common import data_file

    monkeypatch.setenv("KINFOLK_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"sst2/train\.tsv .*KINFOLK_DATA"):
        data_file("sst2/train.tsv")


def test_a_wrong_model_ends_in_one_line() -> None:
    shared_data("glue/STS-B/sts-test.csv")
    command = [sys.executable, str(RECIPES / "sts_benchmark.py"), "--model", "./absent"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: './absent': ")


def test_cosine_that_follows_the_gold_scores_correlates_perfectly() -> None:
    from sts_benchmark import correlation

    angles = np.array([0.1, 0.7, 0.4])
    first = np.array([[2.0, 0.0]] * 3)
    second = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert correlation(np.concatenate([first, second]), [5.0, 1.0, 3.0]) == pytest.approx(100)


def test_quotes_and_licence_columns_do_not_disturb_the_pairs(tmp_path: Path) -> None:
    from sts_benchmark import read_pairs

    rows = ['g\tf\t2012\t1\t2.5\tHe said "no.\tShe said so.\tL\tM', "g\tf\t2012\t2\t0\tOne\tTwo"]
    (tmp_path / "test.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert read_pairs(tmp_path / "test.csv") == (['He said "no.', "One"], ["She said so.", "Two"], [2.5, 0.0])


@pytest.mark.parametrize("pool", ["first", "mean", "max"])
def test_one_pass_gives_the_vectors_of_every_layer_choice(pool: str, tmp_path: Path) -> None:
    from layer_choices import LAYERS, all_vectors

    model, texts = kinfolk.load(write_sentence_encoder(tmp_path / "model")), ["A short text.", "word " * 100]
    result = dict(all_vectors(model, texts, pool))
    assert list(result) == list(LAYERS)
    for name, vectors in result.items():
        np.testing.assert_allclose(vectors, model.embed(texts, name, pool), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_sts_figure_is_that_of_sentence_transformers(minilm: Path) -> None:
    from sts_benchmark import TEST, figures

    ours, theirs, pairs = figures(minilm, shared_data(TEST))
    assert pairs == 1_379
    assert ours == pytest.approx(theirs, abs=0.05)
    assert ours == pytest.approx(82.03, abs=0.05)


def test_every_choice_of_layers_is_measured_once(tmp_path: Path) -> None:
    from layers_table import FROZEN, ROWS, layers_table, measure, sample

    model = write_folder(tmp_path / "model")
    made = [Sentence(("salt", "water"), ("B-FOOD", "O"), None, f"made:{index}") for index in range(60)]
    train, dev = sample(made, 0.5), made[:10]
    assert len(train) == 30
    assert train == sample(made, 0.5)
    settings = FROZEN.but(epochs=0.5, evaluations=1, learning_rate=2e-2)
    rows, shares = measure(model, train, dev, tmp_path / "runs", (0, 1), "linear", settings)
    assert [row.layers for row in rows] == list(ROWS)
    assert all(len(row.scores) == 2 for row in rows)
    assert len(shares) == 6
    assert sum(shares) == pytest.approx(1)
    assert measure(model, train, dev, tmp_path / "runs", (0, 1), "linear", settings) == (rows, shares)
    assert layers_table(rows).count("\n") == len(ROWS) + 1


def test_the_verdict_on_layers_names_the_best_the_worst_and_the_order() -> None:
    from layers_table import ROWS, Row, verdict

    assert Row("last", (90.0, 92.0, 94.0)).margin == pytest.approx(4.3027 * 2 / 3**0.5, abs=1e-3)  # t of two degrees
    text = verdict([Row(layers, (published or 97.0,)) for layers, (_, published) in ROWS.items()])
    assert "the best choice is the learned mix of all (97.0), the worst the first layer (embeddings) (91.0)" in text
    assert "is 1.00 (1 is the same order)" in text
