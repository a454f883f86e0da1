"""A small translation task that takes seconds: words of two made-up languages, in reverse order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from kinfolk.api.experiment import Trained
from kinfolk.api.train_translator import train_translator

WORDS = {
    "salt": "sel", "sand": "gru", "bird": "vol", "rock": "dur", "leaf": "fol",
    "moon": "lun", "star": "ast", "boat": "nav",
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"width": 32, "heads": 4, "inner_width": 64, "encoder_layers": 2, "decoder_layers": 2},
    "attention": {"width": 48, "hidden": 48, "layers": 1},
    "seq2seq": {"width": 32, "hidden": 32, "layers": 1},
}
VOCABULARY = 70


def translated(source: str) -> str:
    """The truth."""
    return " ".join(WORDS[word] for word in reversed(source.split()))


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences of one to four words."""
    draw = random.Random(seed)
    sources = [" ".join(draw.choices(list(WORDS), k=draw.randint(1, 4))) for _ in range(count)]
    return [(source, translated(source)) for source in sources]


def train(output: Path, kind: str = "attention", count: int = 800, **changes: Any) -> Trained:
    """A short run with large steps."""
    usual: dict[str, Any] = {
        "pairs": pairs(count), "dev": pairs(40, seed=1), "kind": kind, "changes": {"dropout": 0.0, **SIZES[kind]},
        "vocabulary_size": VOCABULARY, "steps": 60, "batch_size": 64, "learning_rate": 1e-2, "evaluations": 2,
        "device": "cpu",
    }  # fmt: skip
    return train_translator(output, **usual | changes)


def weights(folder: Path) -> bytes:
    """What the run in this folder came to."""
    return (folder / "model" / "model.safetensors").read_bytes()


def write_pairs(path: Path, count: int, seed: int = 0) -> Path:
    """A .tsv file."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs(count, seed)), encoding="utf-8")
    return path
