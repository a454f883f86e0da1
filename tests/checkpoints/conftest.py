"""A whole model folder for each test to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.tiny import write_folder


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "good", num_hidden_layers=2)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A fresh copy of a random BERT with its pre-training heads and tokenizer."""
    return Path(shutil.copytree(good, tmp_path / "model"))
