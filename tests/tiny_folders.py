"""Model folders that the reference library wrote, with a tokenizer learned here: both libraries can open them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from kinfolk.api.loaded import Encoder
from kinfolk.checkpoints.sentence import SentenceRecipe
from kinfolk.demo import passages, sentences
from kinfolk.models.family import Model, init_normal
from kinfolk.models.registry import family
from kinfolk.text.train import train_tokenizer
from tiny import their_model


def write_folder(
    folder: Path, case: str = "bert", suffix: str = "ForPreTraining", kind: str = "wordpiece", **changes: Any
) -> Path:
    """A random model of five layers that reads 60 tokens, with a vocabulary of 320 pieces."""
    settings = {"vocab_size": 320, "num_hidden_layers": 5, "max_position_embeddings": 60} | changes
    their_model(case, suffix, **settings).save_pretrained(folder)
    train_tokenizer(kind, passages(), 320).save(folder)
    return folder


def write_sentence_encoder(folder: Path, relative: str = "bert", seed: int = 0) -> Path:
    """A random model of ours with a head, whose pooling configuration is not the default one."""
    byte_level = relative in ("roberta", "mpnet")
    tokenizer = train_tokenizer("byte_bpe" if byte_level else "wordpiece", sentences()[0][:24], 300)
    settings = {"vocabulary_size": 300, "width": 16, "layers": 5, "heads": 2, "inner_width": 32, "positions": 64}
    made = family(relative)
    model = Model(made, made.config.make(**settings), {"masked_lm": 0}, pooler=relative == "bert")
    init_normal(model, seed, std=0.5)
    return Encoder(model.eval(), tokenizer, recipe=SentenceRecipe("max", normalize=True, max_length=32)).save(folder)


def change_config(folder: Path, **settings: Any) -> None:
    """Set some of the public settings."""
    found = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(found))


def change_weights(folder: Path, changes: dict[str, Any]) -> None:
    """Add or replace tensors; None removes one."""
    tensors = load_file(folder / "model.safetensors") | changes
    kept = {name: tensor.clone() for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors")
