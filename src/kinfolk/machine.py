"""Settings of the process that make computing faster: for our own commands, and for users who call `tune()`.

glibc hands every large freed block back to the system, which zeroes it anew when a model asks for the same again.
oneDNN keeps a thousand compiled kernels, 0.6 MB each, one for each shape; the batches of a file hardly share any.
A thread of OpenMP that waits for the others stays awake for milliseconds; where other programs want the cores, it keeps
one busy that those others need to go on, and a step takes ten times as long.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

# mallopt's numbers for its parameters, from glibc's malloc.h
TRIM_THRESHOLD, MMAP_MAX = -1, -4
KEPT_BYTES = 2**30
MAX_OVERHEAD = 1.5  # times what a step needs may be held
ENVIRONMENT = {
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "1",  # of torch, before oneDNN's
    "GOMP_SPINCOUNT": "3000",  # rounds that a thread waits awake, of 300,000
}


def tune() -> None:
    """Keep freed memory (up to a gigabyte) for the next batch, and flush denormal numbers to zero.

    It changes the whole process, so a library must not do it unasked. Without glibc only the second part applies.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(MMAP_MAX, 0)
            ctypes.CDLL(None).mallopt(TRIM_THRESHOLD, KEPT_BYTES)
    import torch

    torch.set_flush_denormal(True)


def set_environment() -> None:
    """For processes that compute many batches: must be called before torch is imported. The user's own settings win."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def trim_memory() -> None:
    """Hand free memory back to the system: once per chunk of a long job it costs nothing and stops slow growth."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


class HeapTrimmer:
    """Lets freed memory stay for the next step of a long run, but not pile up. Batches differ in size, and a hole that
    one of them left may fit none of the next. What a step needs is seen after memory was handed back; when half as much
    again is held, it is handed back once more."""

    def __init__(self) -> None:
        self._needed, self._trimmed = 0, True

    def step(self) -> None:
        resident = resident_memory()
        if self._trimmed:
            self._needed, self._trimmed = max(self._needed, resident), False
        elif resident > MAX_OVERHEAD * self._needed:
            trim_memory()
            self._trimmed = True


def resident_memory() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
