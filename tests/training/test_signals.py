"""Ctrl-C and SIGTERM while the command trains: a checkpoint, the exit code that shells expect, and it goes on."""

from __future__ import annotations

import csv
import os
import signal
import time
from pathlib import Path

import pytest
from small_runs import examples, weights

TRAIN = ("--epochs", "3", "--batch-size", "4", "--learning-rate", "0.003", "--evaluations", "3", "--device", "cpu")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "train.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("text", "label"), *((item.text, item.label) for item in examples(200))])
    return path


def start(model: Path, table: Path, output: Path) -> int:
    """A process that runs the command and ends with its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            from kinfolk.cli.main import run

            code = run(["finetune", "--model", str(model), "--train", str(table), "--output", str(output), *TRAIN])
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    return child


def reached(output: Path, steps: int) -> None:
    """Wait until so many steps are done."""
    log, patience = output / "log.jsonl", time.monotonic() + 60
    while time.monotonic() < patience and not (log.exists() and len(log.read_text().splitlines()) >= steps):
        time.sleep(0.002)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_and_the_command_goes_on_to_the_same_weights(
    number: signal.Signals, code: int, tiny_bert: Path, table: Path, tmp_path: Path
) -> None:
    assert ended(start(tiny_bert, table, tmp_path / "whole")) == 0
    child = start(tiny_bert, table, tmp_path / "stopped")
    reached(tmp_path / "stopped", 5)
    os.kill(child, number)
    assert ended(child) == code
    assert list((tmp_path / "stopped").glob("step-*"))
    assert ended(start(tiny_bert, table, tmp_path / "stopped")) == 0
    assert weights(tmp_path / "whole") == weights(tmp_path / "stopped")


def test_a_second_one_stops_at_once_without_harm(tiny_bert: Path, table: Path, tmp_path: Path) -> None:
    assert ended(start(tiny_bert, table, tmp_path / "whole")) == 0
    child = start(tiny_bert, table, tmp_path / "stopped")
    reached(tmp_path / "stopped", 5)
    os.kill(child, signal.SIGINT)
    os.kill(child, signal.SIGINT)
    assert ended(child) == 130
    assert ended(start(tiny_bert, table, tmp_path / "stopped")) == 0
    assert weights(tmp_path / "whole") == weights(tmp_path / "stopped")
