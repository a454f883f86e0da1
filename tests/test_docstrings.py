"""Examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
MODULES = sorted(
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for file in SOURCE.rglob("*.py")
    if ">>>" in file.read_text(encoding="utf-8")
)
SHOWN_ELSEWHERE = {"kinfolk.sklearn"}  # estimators/test_text_embedder.py runs it, with the demo model


@pytest.mark.parametrize("name", [name for name in MODULES if name not in SHOWN_ELSEWHERE])
def test_examples_do_what_they_say(name: str) -> None:
    outcome = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    )
    assert outcome.attempted > 0
    assert outcome.failed == 0
