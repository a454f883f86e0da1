"""Settings of the process are made in time, and the user's own win."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kinfolk.machine import ENVIRONMENT, set_environment

PERFORMANCE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def test_the_environment_is_set_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = ENVIRONMENT
    monkeypatch.setenv(first, "7")
    monkeypatch.delenv(second, raising=False)
    set_environment()
    assert (os.environ[first], os.environ.pop(second)) == ("7", ENVIRONMENT[second])


def test_they_can_be_asked_for_before_torch_is_there() -> None:
    code = "import sys, kinfolk.machine; kinfolk.machine.set_environment(); print('torch' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert finished.stdout == "False\n"


def test_the_documentation_tells_the_same_settings() -> None:
    assert " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items()) in PERFORMANCE.read_text(encoding="utf-8")


PILE = """
import torch
from kinfolk.machine import HeapTrimmer, resident_memory, tune

def step(megabytes):
    torch.ones(megabytes * 2**18)
    heap.step()
    return resident_memory() >> 20

tune()
heap = HeapTrimmer()
print(step(100), step(900), step(100))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system's allocator is told on Linux only")
def test_freed_memory_does_not_pile_up() -> None:
    finished = subprocess.run([sys.executable, "-c", PILE], capture_output=True, text=True, timeout=120)
    first, after_a_large_one, last = map(int, finished.stdout.split())
    assert after_a_large_one < first + 50
    assert last < first + 50
