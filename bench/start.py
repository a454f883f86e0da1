"""How long until something happens: importing, asking for help, the first vector of a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.embed import folder
from bench.harness import GOAL_HEADER, ROOT, goal_cells, table, write_result

ROUNDS = 7
THIRD = 0.333  # the most of the peer's time that our first vector may take
KINFOLK = "import kinfolk; kinfolk.load({folder!r}, device='cpu').embed('A cat sits on the mat.')"
PEER = (
    "from sentence_transformers import SentenceTransformer; "
    "SentenceTransformer({folder!r}, device='cpu').encode('A cat sits on the mat.')"
)


def commands() -> dict[str, list[str]]:
    python, model = sys.executable, str(folder())
    return {
        "python, nothing else": [python, "-c", "pass"],
        "import kinfolk": [python, "-c", "import kinfolk"],
        "kinfolk --help": [str(Path(python).parent / "kinfolk"), "--help"],
        "import torch": [python, "-c", "import torch"],
        "first vector, kinfolk": [python, "-c", KINFOLK.format(folder=model)],
        "first vector, sentence-transformers": [python, "-c", PEER.format(folder=model)],
    }


def main() -> None:
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, command in commands().items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=os.environ)
            best[name] = min(best.get(name, 1e9), time.perf_counter() - start)
    rows = [[name, f"{seconds:.2f}"] for name, seconds in best.items()]
    note = f"Whole processes, best of {ROUNDS} interleaved rounds."
    write_result("start", "Starting up", "\n\n".join([note, goal_table(best), table(["", "seconds"], rows)]))


def goal_table(best: dict[str, float]) -> str:
    """Is our share of the peer's time small enough?"""
    share = best["first vector, kinfolk"] / best["first vector, sentence-transformers"]
    row = ["first vector, share of sentence-transformers' time", *goal_cells(share, THIRD, at_most=True)[:3]]
    return table(["", "measured", "at most", GOAL_HEADER[1]], [row])
