"""A model with its tokenizer, as a folder holds them: what every verb is given.

`api/loaded.py` adds the verbs as methods: Encoder, LanguageModel, Translator.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from kinfolk.checkpoints.folder import Checkpoint, write_checkpoint
from kinfolk.checkpoints.manifest import CARD, write_manifest
from kinfolk.checkpoints.sentence import SentenceRecipe, write_recipe
from kinfolk.errors import InputError, check_choice
from kinfolk.files import atomic_folder, write_bytes
from kinfolk.models.family import Model

DEVICES = ("auto", "cpu", "cuda")


@dataclass
class TextModel:
    """What `kinfolk.load` reads. `name` is what the user called it, for messages."""

    model: Model
    tokenizer: Any
    hf_config: dict[str, Any] = field(default_factory=dict)  # config.json as it was read
    generation_config: dict[str, Any] = field(default_factory=dict)
    recipe: SentenceRecipe | None = None  # of sentence-transformers: pooling, normalization, maximum length
    name: str = ""

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def context(self) -> int:
        """How many tokens the model reads at once, special tokens included."""
        limit: int = self.model.config.context
        return min(limit, getattr(self.tokenizer, "max_length", None) or limit)

    def to(self, device: str) -> Self:
        """The same model on another device ("auto", "cpu", "cuda")."""
        return replace(self, model=self.model.to(pick_device(device)))

    def save(self, folder: str | Path, card: str | None = None) -> Path:
        """Write a folder that kinfolk, transformers and (with a recipe) sentence-transformers can load.

        `card` is the text of its README.md, which may be edited later.
        """
        path = Path(folder)
        with atomic_folder(path) as temporary:
            write_checkpoint(temporary, Checkpoint(self.model, self.hf_config, self.generation_config))
            self.tokenizer.save(temporary)
            if self.recipe is not None:
                write_recipe(temporary, self.recipe, self.model.config.width)
            if card is not None:
                write_bytes(temporary / CARD, card.encode("utf-8", "replace"))
            write_manifest(temporary)
        return path


def pick_device(name: str) -> torch.device:
    """The device that a user means; "auto" takes CUDA where there is one."""
    check_choice("device", name, DEVICES)
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError('device="cuda", but torch finds no CUDA device; use "cpu" or "auto"')
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
