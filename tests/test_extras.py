"""What a plain install lacks is reported with the command that works where kinfolk lives: in its folder."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kinfolk.errors import KinfolkError, type_name
from kinfolk.training.metrics import bleu, classification, regression, solve, tagging
from kinfolk.training.pictures import loss_curve

EXTRAS = {  # a module that needs an extra: the package that is missing, and the extra
    "kinfolk.sklearn": ("sklearn.base", "train"),
}


@pytest.mark.parametrize("module", EXTRAS)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(importlib.import_module(module).__file__)
    package, extra = EXTRAS[module]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(KinfolkError, match=rf"\.\[{extra}\]"):
        runpy.run_path(path)


ROWS = np.eye(2)
FUNCTIONS: dict[str, Callable[[], object]] = {  # a package that is missing: what needs it
    "sklearn.linear_model": lambda: solve(ROWS, [0, 1]),
    "sklearn.metrics": lambda: classification(ROWS, np.array([0, 1])),
    "matplotlib.figure": lambda: loss_curve({}, Path("never.png")),
    "scipy.stats": lambda: regression(ROWS, np.array([0.0, 1.0])),
    "seqeval.metrics.sequence_labeling": lambda: tagging([["O"]], [["O"]]),
    "sacrebleu.metrics.bleu": lambda: bleu(["a"], ["a"]),
}


@pytest.mark.parametrize("package", FUNCTIONS)
def test_the_same_where_only_a_function_needs_the_package(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(KinfolkError, match=r"\.\[train\]"):
        FUNCTIONS[package]()


def test_a_kind_is_reported_with_its_article() -> None:
    values = {"an int": 1, "a float": 1.5, "a list": [], "bytes": b"", "a NoneType": None}
    assert [type_name(value) for value in values.values()] == list(values)
