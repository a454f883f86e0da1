"""What tests import by name: data from outside the repository, and what a command left.

It is a module of its own because each folder may have a conftest.py, and those share one name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[2] / "shared"
RAN: Counter[str] = Counter()  # faults that the tests of this run went through; its closing lines tell them


class OfflineError(RuntimeError):
    """A test tried to leave this machine. Not an OSError, so that no retry or fallback can swallow it."""


@dataclass(frozen=True)
class Ended:
    """What a command left: its exit code and its two streams."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


def faults(variable: str, usual: int) -> int:
    """How many faults a test tries: `usual`, or what the environment says. ./scripts/faults asks for many."""
    return int(os.environ.get(variable) or usual)


def shared_data(relative: str) -> Path:
    """A file or folder below $KINFOLK_DATA; skips the test when it is absent."""
    return _outside("data", relative, "KINFOLK_DATA")


def shared_fixture(relative: str) -> Path:
    """A file or folder below $KINFOLK_FIXTURES; skips the test when it is absent."""
    return _outside("fixtures", relative, "KINFOLK_FIXTURES")


def _outside(room: str, relative: str, variable: str) -> Path:
    path = Path(os.environ.get(variable) or BESIDE / room) / relative
    if not path.exists():
        pytest.skip(f"no {room}/{relative}: set {variable}")
    return path
