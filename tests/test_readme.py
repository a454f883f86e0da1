"""What the README shows is what happens: its Python is a doctest, its commands run."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("minilm")
def test_the_python_of_the_readme_gives_what_it_says() -> None:
    found = doctest.testfile(str(README), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 15
    assert found.failed == 0


@pytest.mark.usefixtures("minilm")
def test_the_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kinfolk.cli.main import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("A cat sleeps.\nShares fell.\nThe dog dozes.\n")
    (tmp_path / "reviews.csv").write_text('text,stars\n"Good, really.",5\nDull.,1\n')
    blocks = CONSOLE.findall(README.read_text(encoding="utf-8"))
    commands = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ kin")]
    assert len(commands) >= 8
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, command
