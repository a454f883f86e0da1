"""Cuts over-long words before the library sees them, so that time and memory stay linear.

A run of more than `LONGEST_RUN` characters without a blank is no word. It is cut into runs of that length, each encoded
as if it stood alone: up to a few pieces at every cut differ from what the library would give, and the cut parts count
as words of their own. No character is lost and offsets are those of the uncut text.
"""

from __future__ import annotations

import itertools
import re

LONGEST_RUN = 100_000

RUN = re.compile(r"\S+")


def cuts(text: str, longest: int = LONGEST_RUN) -> list[int]:
    """Where to cut a text; empty for every text that people write."""
    if len(text) <= longest:
        return []
    found: list[int] = []
    for run in RUN.finditer(text):
        found += range(run.start() + longest, run.end(), longest)
    return found


def pieces(text: str, longest: int = LONGEST_RUN) -> list[tuple[int, str]]:
    """The parts of a text with the place where each begins."""
    places = [0, *cuts(text, longest), len(text)]
    return [(start, text[start:end]) for start, end in itertools.pairwise(places)]
