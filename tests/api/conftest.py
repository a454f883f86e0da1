"""One model for all tests of the verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinfolk.api.experiment import Trained
from kinfolk.api.loaded import Encoder, load
from small_tags import train_tagger
from support.tiny import write_folder


@pytest.fixture(scope="session")
def five_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random BERT with five layers and both pre-training heads."""
    return write_folder(tmp_path_factory.mktemp("models") / "five-layers")


@pytest.fixture(scope="session")
def encoder(five_layers: Path) -> Encoder:
    return load(five_layers, device="cpu")


@pytest.fixture(scope="session", params=["words", "paths"])
def taggers(request: pytest.FixtureRequest, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A small model trained to tag words one by one, and another to tag them as paths."""
    return train_tagger(tiny_bert, tmp_path_factory.mktemp("taggers") / "run", crf=request.param == "paths")
