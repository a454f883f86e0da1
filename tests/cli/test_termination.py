"""SIGTERM while a command writes: nothing half-written stays, and the exit code is the shell's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def test_a_terminated_command_clears_its_file_away(tiny_bert: Path, tmp_path: Path) -> None:
    words = ["embed", "--model", str(tiny_bert), "--input", "-", "--output", str(tmp_path / "v.npy"), "--device", "cpu"]
    code = "from kinfolk.cli.main import main; main()"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-c", code, *words], stdin=subprocess.PIPE, env=environment) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".v.npy*.part")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
