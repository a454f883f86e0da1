"""Do our vectors rank sentence pairs as people do, and as sentence-transformers does? The English STS benchmark.

Figure: Spearman's rank correlation (x 100) between the cosine of two sentences' vectors and their gold score.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from common import data_file, start, table, write_result
from scipy.stats import spearmanr

import kinfolk
from kinfolk.checkpoints.find import find_model
from kinfolk.files import read_text

TEST = "glue/STS-B/sts-test.csv"
SCORE, FIRST, SECOND = 4, 5, 6  # columns; some rows have two more, about the licence


def read_pairs(path: Path) -> tuple[list[str], list[str], list[float]]:
    """First sentences, second sentences and gold scores; separated by tabs, without a header, quotes are text."""
    rows = [line.split("\t") for line in read_text(path).splitlines()]
    return [row[FIRST] for row in rows], [row[SECOND] for row in rows], [float(row[SCORE]) for row in rows]


def correlation(vectors: np.ndarray, gold: list[float]) -> float:
    """`vectors` holds the first sentences, then the second ones: (2 x pairs, D)."""
    first, second = np.split(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 2)
    return 100 * float(spearmanr((first * second).sum(axis=1), gold).statistic)


def figures(folder: Path, path: Path) -> tuple[float, float, int]:
    """kinfolk's figure, that of sentence-transformers, and the number of pairs."""
    from sentence_transformers import SentenceTransformer

    first, second, gold = read_pairs(path)
    ours = correlation(kinfolk.load(folder).embed(first + second), gold)
    peer = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return ours, correlation(peer.encode(first + second), gold), len(gold)


def recipe(name: str) -> None:
    path = data_file(TEST)
    folder = find_model(name)
    ours, theirs, pairs = figures(folder, path)
    shown = "all-MiniLM-L6-v2" if name == "demo" else folder.resolve().name
    parts = [
        f"Spearman's rank correlation (x 100) between cosine and gold score, {pairs:,} pairs of the English test set.",
        table(["library", shown], [["kinfolk", f"{ours:.2f}"], ["sentence-transformers", f"{theirs:.2f}"]]),
        f"What it shows: the two libraries differ by {abs(ours - theirs):.4f}. Nothing is random here, so there is no "
        "seed.",
    ]
    packages = ["sentence-transformers", "transformers", "scipy"]
    write_result("sts-benchmark", "sts_benchmark.py", name, "STS benchmark", parts, packages)


if __name__ == "__main__":
    start(recipe, __doc__.partition("\n")[0])
