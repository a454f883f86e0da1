"""The pairs of texts of the translation recipe.

Multi30k is used as it stands. Tatoeba's file is cleaned and divided once, below the runs, so that the same pairs can be
trained on from a shell.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import RecipePaths, data_file

from kinfolk.data.examples import split_pairs
from kinfolk.data.tables import Pair, read_pairs, read_parallel
from kinfolk.files import write_bytes

NAME = "translation"
FOLDER = f"runs/{NAME}"  # as commands show it
PARTS = ("train", "dev", "test")
MULTI30K = dict(zip(PARTS, ("train", "val", "test2016"), strict=True))
TATOEBA = "tatoeba/eng-fra.tsv"
BLANKS = str.maketrans("\u202f\u00a0\u2009", "   ")  # French writes them before ! ? : ;
HELD = 2_000  # pairs of Tatoeba for test, and as many for dev


@dataclass(frozen=True)
class Corpus:
    """English and another language: two files a part from Multi30k, or one a part made of Tatoeba's pairs."""

    title: str
    language: str
    vocabulary: int
    tatoeba: bool = False

    def files(self, part: str, paths: RecipePaths) -> list[Path]:
        """Where a part is: source and target, or both in one."""
        if self.tatoeba:
            return [_divided(paths.runs / "tatoeba-pairs") / f"{part}.tsv"]
        return [data_file(f"multi30k/{MULTI30K[part]}.{side}") for side in ("en", self.language)]

    def pairs(self, part: str, paths: RecipePaths) -> list[Pair]:
        """What stands there."""
        files = self.files(part, paths)
        return (read_pairs(files[0]) if self.tatoeba else read_parallel(files[0], files[1])).examples

    def arguments(self, paths: RecipePaths) -> dict[str, Any]:
        """What `train_translator` wants to know of it."""
        train, dev = (self.files(part, paths) for part in ("train", "dev"))
        if self.tatoeba:
            return {"pairs": train[0], "dev": dev[0]}
        return {"source": train[0], "target": train[1], "dev": (dev[0], dev[1])}

    def words(self) -> list[str]:
        """The same from a shell."""
        if self.tatoeba:
            return [f"--pairs {FOLDER}/tatoeba-pairs/train.tsv", f"--dev {FOLDER}/tatoeba-pairs/dev.tsv"]
        options = {"train": ("--source", "--target"), "dev": ("--dev-source", "--dev-target")}
        return [
            f"{option} $KINFOLK_DATA/multi30k/{MULTI30K[part]}.{side}"
            for part, names in options.items()
            for option, side in zip(names, ("en", self.language), strict=True)
        ]


def _divided(folder: Path) -> Path:
    """The folder of Tatoeba's three parts, which are made if they are not there. No English sentence is in two."""
    if all((folder / f"{part}.tsv").exists() for part in PARTS):
        return folder
    pairs = [
        Pair(pair.source.translate(BLANKS), pair.target.translate(BLANKS), pair.location)
        for pair in read_pairs(data_file(TATOEBA)).examples
    ]
    rest, test = split_pairs(pairs, limit=HELD, seed=0)
    train, dev = split_pairs(rest, limit=HELD, seed=1)
    for part, kept in zip(PARTS, (train, dev, test), strict=True):
        lines = (f"{pair.source}\t{pair.target}\n" for pair in kept)
        write_bytes(folder / f"{part}.tsv", "".join(lines).encode())
    return folder


def option(name: str, value: Any) -> str:
    """An argument of `train_translator` as an option of the command."""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"--{name.replace('_', '-')} {shlex.quote(shown)}"
