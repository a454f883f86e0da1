"""A write that cannot end well leaves the old file as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kinfolk.checkpoints.weights import open_safetensors, write_tensors
from kinfolk.errors import WeightsError


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(1, dtype=torch.complex64), torch.zeros(2, 2).to_sparse(), torch.zeros(1, device="meta")],
    ids=["complex", "sparse", "meta"],
)
def test_what_the_format_cannot_hold_is_refused_before_writing(tmp_path: Path, tensor: Tensor) -> None:
    with pytest.raises(WeightsError, match="tensor 'odd'"):
        write_tensors(tmp_path / "x", {"good": torch.zeros(1), "odd": tensor})
    assert os.listdir(tmp_path) == []


class Unreachable(Tensor):
    """Stands for a tensor on a device that is lost, or a user who stops the write half way."""

    def cpu(self) -> Tensor:  # type: ignore[override]
        raise KeyboardInterrupt


def test_a_write_that_is_interrupted_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.zeros(3)})
    with pytest.raises(KeyboardInterrupt):
        write_tensors(path, {"a": torch.ones(3), "b": torch.ones(3).as_subclass(Unreachable)})
    assert open_safetensors(path).read("a").tolist() == [0, 0, 0]
    assert os.listdir(tmp_path) == ["model.safetensors"]


DOOMED = """
import os, resource, signal, sys
from pathlib import Path
import torch
from kinfolk.checkpoints.weights import write_tensors
from kinfolk.errors import FolderError

class Deadly(torch.Tensor):
    def cpu(self):
        os.kill(os.getpid(), signal.SIGKILL)

path = Path(sys.argv[1])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
try:
    write_tensors(path, {"a": torch.ones(20_000), "b": torch.ones(20_000)})
except FolderError as error:
    print(error, os.listdir(path.parent), flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
write_tensors(path, {"a": torch.ones(20_000), "b": torch.ones(20_000).as_subclass(Deadly)})
"""


def test_a_full_disk_and_a_kill_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": torch.zeros(3)})
    done = subprocess.run([sys.executable, "-c", DOOMED, path], capture_output=True, text=True)
    assert done.stdout.startswith(f"{path}: cannot be written")
    assert "160,000" in done.stdout  # bytes of data
    assert done.stdout.endswith("['model.safetensors']\n")
    assert done.returncode == -signal.SIGKILL
    assert open_safetensors(path).read("a").tolist() == [0, 0, 0]
