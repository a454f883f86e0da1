"""Small texts that come with the package, so that the examples run without a download.

All of them were written for this project. `sentences.tsv` holds 600 remarks about films, half of them
positive and half negative; many praise with harsh words or blame with kind ones, so that counting words is not
enough. `passages.txt` holds 60 facts about everyday things, for the search example.
"""

from __future__ import annotations

from importlib import resources


def sentences() -> tuple[list[str], list[str]]:
    """The remarks about films and, in the same order, their labels: "positive" or "negative"."""
    rows = [line.split("\t") for line in _lines("sentences.tsv")[1:]]  # the first line names the columns
    return [text for text, _ in rows], [label for _, label in rows]


def passages() -> list[str]:
    """Facts of one to three sentences each, on mixed topics."""
    return _lines("passages.txt")


def _lines(name: str) -> list[str]:
    content = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    return content.removesuffix("\n").split("\n")
