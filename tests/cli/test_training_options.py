"""Training options are made of the trainer's settings: help shows true defaults, only what is given is passed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer

from kinfolk.cli.main import grouped
from kinfolk.cli.options import training_options
from kinfolk.cli.train import OWN, finetune, pretrain, train_translator
from kinfolk.training.settings import settings_fields
from small_pairs import pairs, write_pairs
from surroundings import Command

NAMES = {setting.name for setting in settings_fields()}


def options_of(function: Callable[..., None]) -> dict[str, Any]:
    """typer's record of each option that is a setting of the trainer."""
    parameters = inspect.signature(function).parameters.values()
    return {item.name: get_args(item.annotation)[1] for item in parameters if item.name in NAMES}


@pytest.fixture
def arguments(tmp_path: Path, tiny_bert: Path) -> dict[Callable[..., None], list[Any]]:
    """A command line for each training, without any training option but its length."""
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for pair in pairs(60) for text in pair))
    (tmp_path / "table.csv").write_text("text,label\n" + "".join(f"salt {n},a\nsand {n},b\n" for n in range(10)))
    small = ["--vocabulary-size", 40, "--set", "width=8,hidden=8,layers=1"]
    return {
        finetune: ["finetune", "--model", tiny_bert, "--train", tmp_path / "table.csv"],
        pretrain: ["pretrain", "gru", "--corpus", tmp_path / "lines.txt", *small[:2], "--set", "width=8,layers=1"],
        train_translator: [
            *("train-translator", "--kind", "seq2seq", "--pairs", write_pairs(tmp_path / "pairs.tsv", 40), *small)
        ],
    }


@pytest.mark.parametrize("function", [finetune, pretrain, train_translator], ids=lambda each: each.__name__)
def test_help_shows_the_defaults_of_the_run(
    function: Callable[..., None], arguments: dict[Callable[..., None], list[Any]], command: Command, tmp_path: Path
) -> None:
    ended = command(*arguments[function], "--steps", "1", "--device", "cpu", "--output", tmp_path / "run")
    assert ended.code == 0, ended.err
    described = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    described |= described["optimization"]
    for name, option in options_of(function).items():
        own = (name, function) == ("batch_size", pretrain) or option.help.endswith(f"[default: {OWN}]")
        own = own or "; " in option.help.partition("[default: ")[2]  # it depends on the data
        if "[default: " in option.help and not own:
            assert option.help.endswith(f"[default: {described[name]}]"), name


@pytest.mark.parametrize("function", [pretrain, train_translator], ids=lambda each: each.__name__)
def test_options_of_each_training_reach_its_run(
    function: Callable[..., None], arguments: dict[Callable[..., None], list[Any]], command: Command, tmp_path: Path
) -> None:
    changes = {"--lr": 0.5, "--steps": 2, "--schedule": "one_cycle", "--weight-decay": 0.25, "--seed": 5}
    words = [word for pair in changes.items() for word in pair]
    ended = command(*arguments[function], *words, "--device", "cpu", "--output", tmp_path / "run")
    assert ended.code == 0, ended.err
    described = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    described |= described["optimization"]
    assert [described[name] for name in ("learning_rate", "steps", "schedule", "weight_decay", "seed")] == [
        *changes.values()
    ]


def test_only_what_is_given_is_passed_on() -> None:
    passed: list[dict[str, Any]] = []

    @training_options({}, exclude=("freeze",), epochs=7.0)
    def example(training: dict[str, Any], name: Annotated[str, typer.Option()] = "x") -> None:
        passed.append(training)

    app = typer.Typer()
    app.command()(grouped(example))
    app(["--seed", "0", "--lr", "1", "--fsdp"], standalone_mode=False)
    app([], standalone_mode=False)
    assert passed == [{"seed": 0, "learning_rate": 1.0, "fsdp": True}, {}]
    assert "freeze" not in options_of(example)
    assert options_of(example)["epochs"].help.endswith("[default: 7.0]")
