"""Model folders that the reference library wrote, with a tokenizer learned here: both libraries can open them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kinfolk.demo import passages
from kinfolk.text.learn import learn
from tiny import their_model


def write_folder(
    folder: Path, case: str = "bert", suffix: str = "ForPreTraining", kind: str = "wordpiece", **changes: Any
) -> Path:
    """A random model of five layers that reads 60 tokens, with a vocabulary of 320 pieces."""
    settings = {"vocab_size": 320, "num_hidden_layers": 5, "max_position_embeddings": 60} | changes
    their_model(case, suffix, **settings).save_pretrained(folder)
    learn(kind, passages(), 320).save(folder)
    return folder
