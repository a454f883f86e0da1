"""Starting is light: nothing heavy is imported before a model is used. And the tests stay on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from surroundings import OfflineError

HEAVY = {"torch", "numpy", "scipy", "pandas", "sklearn", "transformers", "tokenizers", "safetensors", "huggingface_hub"}


def imported_by(*arguments: str) -> set[str]:
    """Top-level names that a fresh interpreter imports when it is run with these arguments."""
    command = [sys.executable, "-X", "importtime", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr[-400:]
    rows = (line for line in finished.stderr.splitlines() if line.startswith("import time:"))
    return {row.rsplit("|", 1)[1].strip().split(".")[0] for row in rows}


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import kinfolk"),
        ("-m", "kinfolk", "--help"),
        ("-c", "from kinfolk.cli.main import main; main()", "--help"),
    ],
    ids=["import", "module", "command"],
)
def test_starting_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    names = imported_by(*arguments)
    assert "kinfolk" in names
    assert names & HEAVY == set()


def test_a_heavy_import_would_be_seen() -> None:
    assert "numpy" in imported_by("-c", "import numpy")


def test_an_encoder_loads_only_what_it_is_made_of() -> None:
    folder = Path(__file__).parent / "saved" / "0.1.0" / "model"
    code = f"import sys, kinfolk; kinfolk.load({str(folder)!r}).embed(['a']); print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr[-400:]
    others = {"nn.recurrent", "models.recurrent_lm", "models.seq2seq", "models.transformer", "models.roberta"}
    assert {f"kinfolk.{name}" for name in others} & {*finished.stdout.split()} == set()


def test_the_tests_cannot_reach_another_machine() -> None:
    with pytest.raises(OfflineError):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with pytest.raises(OfflineError):
        socket.getaddrinfo("example.org", 443)


def test_the_tests_can_reach_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()
