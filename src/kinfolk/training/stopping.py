"""SIGINT and SIGTERM: the first lets the current step end, a second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """The signal that was received, if one was."""

    signal: int = 0


@contextmanager
def stopping() -> Iterator[Stop]:
    """Listen for signals; outside the main thread nobody can, and nothing changes."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.signal:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
        stop.signal = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
