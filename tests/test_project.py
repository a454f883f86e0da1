"""The files around the code agree with each other and with it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kinfolk
from surroundings import Command

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINNED = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in CONSTRAINTS if "==" in line}
CI = (REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def test_the_version_stands_once() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = REPOSITORY / PROJECT["tool"]["hatch"]["version"]["path"]
    assert re.findall(r'(?m)^__version__ = "(.*)"$', source.read_text(encoding="utf-8")) == [kinfolk.__version__]
    assert f"## {kinfolk.__version__}" in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_requirement_has_a_tested_version_in_its_range() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [Requirement(line) for lines in (PROJECT["project"]["dependencies"], *extras) for line in lines]
    others = [need for need in wanted if need.name != "kinfolk"]
    assert {need.name for need in others if canonicalize_name(need.name) not in PINNED} == set()
    assert {need.name for need in others if PINNED[canonicalize_name(need.name)] not in need.specifier} == set()
    assert CONSTRAINTS[2:] == sorted(CONSTRAINTS[2:], key=str.lower)


def test_continuous_integration_tries_what_is_supported() -> None:
    pythons, torches = (re.findall(r'"([\d.]+)"', line) for line in re.findall(r"(?m)^ +(?:python|torch): \[.*$", CI))
    supported = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: 3." in line]
    assert pythons == supported
    assert pythons[0] == PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f"torch>={torches[0]}" in PROJECT["project"]["dependencies"]
    assert PINNED["torch"].startswith(f"{torches[-1]}.")


@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning, UserWarning])
def test_a_warning_that_our_own_code_causes_is_an_error(category: type[Warning]) -> None:
    with pytest.raises(category):
        warnings.warn_explicit("old", category, "file.py", 1, module="kinfolk.nn.blocks")
    warnings.warn_explicit("old", DeprecationWarning, "file.py", 1, module="library.kinfolk")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "kinfolk finetune --learning-"
    asked = {"_KINFOLK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words}
    asked |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "COMP_WORDS": words, "COMP_CWORD": "2"}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    ended = subprocess.run([sys.executable, "-m", "kinfolk"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "--learning-rate" in ended.stdout


def test_completion_is_offered_in_a_line_or_two(command: Command) -> None:
    shown = command("--help").out.partition("Commands:")[0].splitlines()
    assert sum("--install-completion" in line or "--show-completion" in line for line in shown) == 2
    assert len(shown) < 20
