"""A model folder that the reference library wrote, with a tokenizer learned here: both libraries can open it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinfolk.demo import passages
from kinfolk.jobs.loaded import Encoder, load
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


@pytest.fixture(scope="session")
def five_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random BERT with five layers and both pre-training heads."""
    return write_folder(tmp_path_factory.mktemp("models") / "five-layers")


@pytest.fixture(scope="session")
def encoder(five_layers: Path) -> Encoder:
    return load(five_layers, device="cpu")
