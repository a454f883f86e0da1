"""Tagged sentences that a tiny model learns in seconds: stones and tunes among plain words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from kinfolk.api.experiment import Trained
from kinfolk.api.finetune import finetune
from kinfolk.api.loaded import Encoder, load
from kinfolk.data.examples import Sentence
from kinfolk.models.family import with_new_head
from kinfolk.tasks.tag import TagTask
from kinfolk.training.settings import OptimizerSettings, TrainSettings

WORDS = ["water", "bread", "light", "stone", "river", "bird", "paper", "house", "glass", "cloud"]
ENTITIES = (  # words and tags; each word begins with a letter of its own, so that its first piece tells it
    (("quartz", "kettle"), ("B-STONE", "I-STONE")),
    (("quartz",), ("B-STONE",)),
    (("violin",), ("B-TUNE",)),
    (("violin", "yarrow"), ("B-TUNE", "I-TUNE")),
)
LABELS = ("O", "B-STONE", "B-TUNE", "I-STONE", "I-TUNE")


def sentences(count: int, seed: int = 0, longest: int = 4) -> list[Sentence]:
    """Up to `longest` plain words before each entity, and one at the end."""
    draw = random.Random(seed)
    tagged = []
    for index in range(count):
        words: list[str] = []
        tags: list[str] = []
        for entity_words, entity_tags in draw.choices(ENTITIES, k=draw.randint(1, 2)):
            plain = draw.choices(WORDS, k=draw.randint(1, longest))
            words += [*plain, *entity_words]
            tags += ["O"] * len(plain) + list(entity_tags)
        words.append("water")
        tags.append("O")
        tagged.append(Sentence(tuple(words), tuple(tags), None, f"made:{index + 1}"))
    return tagged


def train_tagger(model: Path, output: Path, count: int = 240, epochs: float = 4.0, **options: Any) -> Trained:
    settings = TrainSettings(epochs=epochs, batch_size=8, optimization=OptimizerSettings(learning_rate=6e-3))
    return finetune(
        model,
        sentences(count),
        output,
        dev=sentences(40, seed=1),
        task="tag",
        settings=settings,
        device="cpu",
        **options,
    )


def random_tagger(folder: Path, head: str = "tag", labels: tuple[str, ...] = LABELS) -> Encoder:
    """An untrained head whose scores are far apart, so that any tag may follow any other."""
    encoder = load(folder, device="cpu")
    model, _ = with_new_head(encoder.model, head, len(labels), seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.heads.named_parameters():
            weight.copy_((0.02 if "crf" in name else 1.0) * torch.randn(weight.shape, generator=generator))
    return Encoder(model.eval(), encoder.tokenizer, hf_config=TagTask(labels).to_hf())
