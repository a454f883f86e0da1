"""A disk that fills up: the old checkpoint stays, one line says what is missing, and the run goes on later."""

from __future__ import annotations

import csv
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import examples

from kinfolk.cli.main import run
from kinfolk.errors import FolderError
from kinfolk.files import atomic_folder
from kinfolk.training.runs import Run
from surroundings import Command, Ended

LIMIT = 20_000  # bytes of a file: enough for the log, too little for weights


def arguments(model: Path, table: Path, output: Path) -> list[str]:
    files = ("--model", str(model), "--train", str(table), "--output", str(output))
    return ["finetune", *files, "--batch-size", "8", "--evaluations", "20", "--device", "cpu"]


def finetune(model: Path, table: Path, output: Path, prepare: Callable[[], object] = lambda: None) -> Ended:
    """The command in a process of its own, forked so that it starts at once."""
    log = output.parent / "log"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.stderr = log.open("w")
            prepare()
            code = run(arguments(model, table, output))
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), "", log.read_text())


def stop_after_a_checkpoint(output: Path) -> None:
    def wait() -> None:
        while not (output / "last").exists():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def fill_the_disk() -> None:
    """Python ignores the signal that comes with this limit, so that writing fails as it does on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "train.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label"])
        writer.writerows([example.text, example.label] for example in examples(100))
    return path


def test_a_full_disk_is_one_line_and_costs_no_checkpoint(
    command: Command, tiny_bert: Path, table: Path, tmp_path: Path
) -> None:
    whole, filled = tmp_path / "whole", tmp_path / "filled"
    assert command(*arguments(tiny_bert, table, whole)).code == 0
    assert finetune(tiny_bert, table, filled, lambda: stop_after_a_checkpoint(filled)).code == 143
    (before,) = {step.name for step in filled.glob("step-*")} & {(filled / "last").read_text()}
    ended = finetune(tiny_bert, table, filled, fill_the_disk)
    assert ended.code == 2
    message = ended.err.splitlines()[-1]
    assert message.startswith(f"kinfolk: {filled / 'step-'}")
    assert "/weights.safetensors: cannot be written (File too large); " in message
    assert "bytes are needed, the disk is full" in message
    assert (filled / "last").read_text() == before
    Run(filled).read(before)  # checked against its manifest
    assert not list(filled.glob(".*"))
    assert finetune(tiny_bert, table, filled).code == 0
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (whole, filled)]
    assert weights[0] == weights[1]


def test_what_cannot_fit_is_not_begun(tmp_path: Path) -> None:
    with (
        pytest.raises(FolderError, match=r"step-1: .* 1,000,000,000,000,000,000 bytes"),
        atomic_folder(tmp_path / "step-1", needs=10**18),
    ):
        pytest.fail("there is no such disk")
    assert not list(tmp_path.iterdir())
