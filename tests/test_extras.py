"""What a plain install lacks is told with the command that works where kinfolk lives: in its folder."""

from __future__ import annotations

import importlib
import runpy
import sys

import numpy as np
import pytest

from kinfolk.errors import KinfolkError, type_name
from kinfolk.training.logistic import solve

EXTRAS = {  # a module that needs an extra: the package that is missing, and the extra
    "kinfolk.sklearn": ("sklearn.base", "train"),
    "kinfolk.training.pictures": ("matplotlib", "train"),
    "kinfolk.training.metrics": ("seqeval.metrics.sequence_labeling", "train"),
    "kinfolk.training.bleu": ("sacrebleu.metrics.bleu", "train"),
    "kinfolk.training.tensorboard": ("torch.utils.tensorboard", "tensorboard"),
}


@pytest.mark.parametrize("module", EXTRAS)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(importlib.import_module(module).__file__)
    package, extra = EXTRAS[module]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(KinfolkError, match=rf'needs? .*; run in the folder of kinfolk: pip install "\.\[{extra}\]"$'):
        runpy.run_path(path)


def test_the_same_where_only_a_function_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(KinfolkError, match=r'scikit-learn .*folder of kinfolk: pip install "\.\[train\]"$'):
        solve(np.eye(2), [0, 1])


def test_a_kind_is_told_with_its_article() -> None:
    told = {"an int": 1, "a float": 1.5, "a list": [], "bytes": b"", "a NoneType": None}
    assert [type_name(value) for value in told.values()] == list(told)
