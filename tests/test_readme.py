"""What the README shows is what happens: its Python is a doctest, its commands run."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from small_pairs import pairs, write_pairs

README = Path(__file__).resolve().parents[1] / "README.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(?!>>>)(.*?)^```", re.MULTILINE | re.DOTALL)
SHORT = "--steps 2 --evaluations 1 --vocabulary 45"  # instead of minutes


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


@pytest.mark.filterwarnings("ignore::kinfolk.jobs.translate.TranslationWarning")  # two steps teach nothing
@pytest.mark.parametrize(("title", "count"), [("From text to text", 5), ("A language model of your own", 4)])
def test_what_takes_minutes_runs_in_a_few_steps(
    title: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kinfolk
    from kinfolk.cli.main import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kinfolk.cli.main.prepare_process", lambda: None)
    write_pairs(tmp_path / "train.tsv", 100)
    write_pairs(tmp_path / "test.tsv", 5, seed=1)
    texts = [text for pair in pairs(200) for text in pair]
    for name, lines in {"texts.txt": texts[:3], "articles.txt": texts, "other.txt": texts[:9]}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    rows = [f"{text},{1 + number % 2}" for number, text in enumerate(texts[:40])]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,stars", *rows]) + "\n")
    section = README.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    commands = [line for block in SHELL.findall(section) for line in block.splitlines()]
    assert len(commands) == count
    for command in commands:
        assert run(shlex.split(command.replace("--minutes 45", SHORT))[1:]) == 0, command
    for block in PYTHON.findall(section):
        exec(block, {"kinfolk": kinfolk})
