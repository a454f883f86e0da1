"""A decoder that begins as a language model, which then decides its shape and, where it lies in a folder, its words.

The source has a vocabulary of its own then: a language model need not have read a word of it.

Ramachandran et al. 2017, "Unsupervised Pretraining for Sequence to Sequence Learning".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from kinfolk.api.loaded import load_encoder
from kinfolk.errors import InputError
from kinfolk.models.config import TranslationConfig
from kinfolk.models.family import Model
from kinfolk.models.recurrent_lm import RecurrentLmConfig
from kinfolk.models.seq2seq import Seq2SeqConfig
from kinfolk.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class DecoderStart:
    """A language model, what a card calls it, and its own vocabulary where it lies in a folder."""

    model: Model
    name: str
    words: Tokenizer | None

    @classmethod
    def of(cls, given: str | Path | nn.Module, preset: TranslationConfig) -> DecoderStart:
        """From a folder or a model, for a decoder of the preset's kind."""
        folder = given if isinstance(given, str | Path) else None
        model, words = (given, None) if folder is None else _read(folder)
        known = isinstance(model, Model) and isinstance(model.config, RecurrentLmConfig)
        if not isinstance(preset, Seq2SeqConfig) or not isinstance(model, Model) or not known:
            raise InputError(
                "init_decoder: only a recurrent language model can start a decoder, and only a recurrent one"
            )
        return cls(model, "a language model" if folder is None else Path(folder).resolve().name, words)

    @property
    def weights(self) -> int:
        """How many weights the decoder takes from it."""
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def shape(self) -> dict[str, Any]:
        """The settings of a decoder that can begin as this model."""
        own = self.model.config
        return {"kind": own.kind, "width": own.width, "hidden": own.width, "layers": own.layers, "tied": own.tied}


def _read(folder: str | Path) -> tuple[Model, Tokenizer]:
    found = load_encoder(folder, "cpu")
    if "next_token" not in found.model.heads:
        title = found.model.family.title
        raise InputError(f"{folder}: this {title} does not guess the next token; a decoder cannot start from it")
    return found.model, found.tokenizer
