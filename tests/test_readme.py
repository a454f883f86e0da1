"""What the README shows is what happens: its Python is a doctest, its commands run."""

from __future__ import annotations

import doctest
import re
import shlex
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kinfolk.demo import sentences
from small_pairs import pairs, write_pairs

README = Path(__file__).resolve().parents[1] / "README.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(?!>>>)(.*?)^```", re.MULTILINE | re.DOTALL)
SHORT = "--steps 2 --evaluations 1"  # instead of minutes


@pytest.mark.usefixtures("minilm")
def test_the_python_of_the_readme_gives_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS  # digits that depend on the processor
    found = doctest.testfile(str(README), module_relative=False, optionflags=flags)
    assert found.attempted > 15
    assert found.failed == 0


def test_tf_idf_reaches_what_the_readme_says() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
    reached = cross_val_score(model, *sentences(), cv=5).mean()
    assert f"TF-IDF with word pairs reaches {reached:.3f}\n" in README.read_text(encoding="utf-8")


def needed_by(package: str) -> set[str]:
    """A package and all that it needs, without extras."""
    found, waiting = set(), [package]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            needs = [Requirement(line) for line in metadata.requires(name) or []]
            waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def test_what_is_installed_besides_torch_and_numpy_is_as_small_as_the_readme_says() -> None:
    beside = needed_by("kinfolk") - {"kinfolk"} - needed_by("torch") - needed_by("numpy")
    assert {"tokenizers", "safetensors"} <= beside
    size = sum(file.size or 0 for name in beside for file in metadata.files(name) or []) / 2**20
    told = re.search(r"(\d+) MiB are installed", README.read_text(encoding="utf-8"))
    assert told is not None
    assert size == pytest.approx(float(told[1]), rel=0.1)
    assert size < 50


def test_a_first_user_is_told_how_to_get_the_command() -> None:
    line = ". .venv/bin/activate"
    assert f"$ {line}\n" in README.read_text(encoding="utf-8")
    assert line in (README.parent / "scripts" / "quickstart").read_text(encoding="utf-8").splitlines()[-1]


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


@pytest.mark.filterwarnings("ignore::kinfolk.api.translate.TranslationWarning")  # two steps teach nothing
@pytest.mark.usefixtures("minilm")
@pytest.mark.parametrize(
    ("title", "count"), [("Training", 3), ("From text to text", 5), ("A language model of your own", 4)]
)
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
    for name in ("reviews.csv", "test.csv", "new.csv"):
        (tmp_path / name).write_text("\n".join(["text,stars", *rows]) + "\n")
    section = README.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    commands = [line for block in SHELL.findall(section) for line in block.splitlines()]
    assert len(commands) == count
    for command in commands:
        assert run(shlex.split(re.sub(r"--minutes \d+", SHORT, command))[1:]) == 0, command
    for block in PYTHON.findall(section):
        exec(block, {"kinfolk": kinfolk})
