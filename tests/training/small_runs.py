"""A small fine-tuning job that takes a second: a tiny model, and texts whose class is a word in them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from kinfolk.api.experiment import Trained
from kinfolk.api.finetune import finetune
from kinfolk.data.examples import Example
from kinfolk.training.settings import OptimizerSettings, TrainSettings

WORDS = ["water", "bread", "light", "stone", "river", "bird", "paper", "house", "glass", "cloud"]


def examples(count: int, seed: int = 0) -> list[Example]:
    """Texts of two to nine words; those with the word `salt` are "salty", those with `sand` are "sandy"."""
    draw = random.Random(seed)
    rows = []
    for index in range(count):
        words = draw.choices(WORDS, k=draw.randint(1, 8))
        label = draw.choice(["salty", "sandy"])
        words.insert(draw.randrange(len(words) + 1), {"salty": "salt", "sandy": "sand"}[label])
        rows.append(Example(" ".join(words), None, label, f"made:{index + 1}"))
    return rows


def settings(**changes: Any) -> TrainSettings:
    """Few, large steps."""
    usual = {"epochs": 2.0, "batch_size": 8, "evaluations": 4, "optimization": OptimizerSettings(learning_rate=3e-3)}
    return TrainSettings(**(usual | changes))


def train(model: Path, output: Path, count: int = 96, **changes: Any) -> Trained:
    return finetune(
        model, examples(count), output, dev=examples(32, seed=1), settings=settings(**changes), device="cpu"
    )


def weights(folder: Path) -> bytes:
    """What the run in this folder came to."""
    return (folder / "model" / "model.safetensors").read_bytes()
