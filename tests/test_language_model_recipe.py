"""The recipe behind docs/results/language-model.md, on made-up texts: from training to the page, and after a death."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinfolk.files import read_object, write_json

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
CHAIN = ("red", "blue", "green", "gold", "grey")  # after each colour comes the next one
Run = Callable[..., None]


@pytest.fixture(autouse=True)
def recipes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))


def colours(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    starts = [draw.randrange(5) for _ in range(count)]
    return [" ".join(CHAIN[(start + index) % 5] for index in range(draw.randint(2, 6))) for start in starts]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The recipe with a tiny model and tiny files, below a folder of its own."""
    import language_model

    monkeypatch.setenv("KINFOLK_DATA", str(tmp_path / "data"))
    for room, parts in {"ptb": ("train", "valid", "test"), "sst2": ("train", "dev")}.items():
        (tmp_path / "data" / room).mkdir(parents=True)
        for index, part in enumerate(parts):
            lines = colours(200 if part == "train" else 20, index)
            if room == "sst2":
                lines = [f"{line}\t{int('red' in line)}" for line in lines]
            name = f"ptb.{part}.txt" if room == "ptb" else f"{part}.tsv"
            (tmp_path / "data" / room / name).write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(language_model, "WORDS", 8)
    monkeypatch.setattr(language_model, "MODEL", {"width": 16, "layers": 1, "tied": True})
    monkeypatch.setattr(language_model, "TRAINING", {"learning_rate": 1e-2, "batch_size": 4, "bptt_length": 10})
    monkeypatch.setattr(language_model, "LABELS", 40)
    monkeypatch.setattr(language_model, "SEEDS", 2)
    monkeypatch.setattr(language_model, "CLASSIFIER", {"epochs": 1, "learning_rate": 1e-2, "evaluations": 1})

    def started(only_write: bool = False, steps: int = 8) -> None:
        arguments = argparse.Namespace(steps=steps, minutes=45.0, only_write=only_write, precision="fp32")
        language_model.run(arguments, language_model.RecipePaths.of("language-model", tmp_path / "output"))

    return started


def test_from_texts_to_the_page_and_not_twice(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import language_model

    run()
    output = tmp_path / "output"
    notes = read_object(output / "language-model.json")
    assert notes["lstm"]["steps"] == 8
    assert notes["lstm"]["command"].endswith("--steps 8 --output runs/language-model/lstm")
    assert 1 < notes["lstm"]["test"] < 10
    assert notes["lstm"]["dev"] == pytest.approx(notes["lstm"]["curve"][-1][1], rel=0.2)  # the curve has more streams
    assert notes["transfer"]["accuracy"].keys() == {"from the language model", "from random weights"}
    page = (output / "language-model.md").read_text(encoding="utf-8")
    assert "| 5-grams, modified Kneser-Ney |" in page
    assert "The LSTM took 8 steps, " in page
    assert str(tmp_path) not in page
    assert capsys.readouterr().out == page + "\n"

    monkeypatch.setattr(language_model.kinfolk, "pretrain", lambda *arguments, **named: pytest.fail("trained again"))
    monkeypatch.setattr(language_model, "measured", lambda folder: pytest.fail("measured again"))
    run()
    run(only_write=True)


def test_a_finished_run_that_was_not_noted_is_measured_with_the_time_of_all_processes(run: Run, tmp_path: Path) -> None:
    run()
    folder, notes = (
        tmp_path / "output" / "runs" / "language-model" / "lstm",
        tmp_path / "output" / "language-model.json",
    )
    first = read_object(notes)
    write_json(folder / "clock.json", read_object(folder / "clock.json") | {"seconds": 600.0})
    write_json(notes, {name: result for name, result in first.items() if name == "controls"})
    run()
    again = read_object(notes)
    assert again["lstm"] == first["lstm"] | {"minutes": 10.0}
    assert again["transfer"] == first["transfer"]


def test_a_page_cannot_be_written_of_nothing(run: Run) -> None:
    with pytest.raises(SystemExit, match=r": lstm, controls, transfer; .*--only-write"):
        run(only_write=True)


@pytest.mark.parametrize(("options", "aside"), [(["--steps", "7"], True), ([], False)])
def test_a_try_stays_away_from_the_results(options: list[str], aside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import language_model

    calls: list[Any] = []
    threads = ["--threads", "1", "--precision", "bf16"]
    monkeypatch.setattr(sys, "argv", ["language_model.py", *options, *threads])
    monkeypatch.setattr(language_model, "run", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(language_model, "tune", lambda: None)
    language_model.main()
    ((arguments, paths),) = calls
    assert (arguments.precision, language_model.torch.get_num_threads()) == ("bf16", 1)
    assert (paths.results.name == "try-7", paths == language_model.RecipePaths.of("language-model")) == (
        aside,
        not aside,
    )
    assert paths.results in paths.runs.parents or not aside
