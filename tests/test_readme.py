"""What README and docs/ show is what happens: their Python and their commands run, their links lead somewhere.

Of a page, blocks of `>>>` are doctests, and commands after `$` in a console run as they stand. What takes minutes
stands in blocks of sh, and is run in a few steps; then the page's other Python runs, on what these left.
"""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kinfolk.demo import sentences
from kinfolk.models.family import all_families
from small_pairs import pairs, write_pairs

REPOSITORY = Path(__file__).resolve().parents[1]
README = REPOSITORY / "README.md"
SAVED = REPOSITORY / "tests" / "saved" / "0.1.0"
PAGES = {str(page.relative_to(REPOSITORY)): page for page in [README, *sorted((REPOSITORY / "docs").rglob("*.md"))]}
TEXTS = {name: page.read_text(encoding="utf-8") for name, page in PAGES.items()}
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(?!>>>)(.*?)^```", re.MULTILINE | re.DOTALL)
SHORT = "--steps 2 --evaluations 1"  # instead of minutes
MODELS = {  # what pages call a model: a small random one that an earlier version saved
    "models/bert": "bert-pretraining",
    "models/reviews": "bert-classify",
    "models/entities": "bert-tag",
    "models/questions": "bert-answer",
    "models/choices": "bert-choose",
    "g2p": "translator-seq2seq-gru-separate",
}
TRAINED = {"stars": "bert-regress", "language-model": "recurrent-lm-lstm"}  # where no command trains it first


def commands(blocks: list[str], mark: str) -> list[str]:
    """The commands of blocks that begin with this mark; a line that ends with a backslash goes on."""
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.removeprefix(mark) for line in lines if line.startswith(f"{mark}kinfolk ")]


def pages_with(pattern: re.Pattern[str] | str) -> list[str]:
    return [name for name, text in TEXTS.items() if re.search(pattern, text)]


def takes_long(name: str) -> bool:
    long = commands(SHELL.findall(TEXTS[name]), "") or PYTHON.findall(TEXTS[name])
    return bool(long) and not name.startswith("docs/results/")


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kinfolk.cli.main.prepare_process", lambda: None)
    write_pairs(tmp_path / "train.tsv", 100)
    write_pairs(tmp_path / "test.tsv", 5, seed=1)
    texts = [text for pair in pairs(200) for text in pair]
    documents = ["\n".join([*texts[start : start + 4], ""]) for start in range(0, len(texts), 4)]
    written = {"texts.txt": texts[:3], "articles.txt": documents, "other.txt": documents[:9], "lines.txt": texts[:9]}
    rows = [f"{text},{1 + index % 2}" for index, text in enumerate(texts[:40])]
    written |= {f"{name}.csv": ["text,stars", *rows] for name in ("reviews", "test", "new")}
    for name, lines in written.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, saved in MODELS.items():
        shutil.copytree(SAVED / saved / "model", tmp_path / name)
    return tmp_path


@pytest.mark.usefixtures("minilm", "room")
@pytest.mark.parametrize("name", pages_with(r"(?m)^>>> "))
def test_the_python_of_a_page_gives_what_it_says(name: str) -> None:
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS  # digits that depend on the processor
    outcome = doctest.testfile(str(PAGES[name]), module_relative=False, optionflags=flags, encoding="utf-8")
    assert outcome.attempted > 2
    assert outcome.failed == 0


@pytest.mark.usefixtures("minilm", "room")
@pytest.mark.parametrize("name", pages_with(r"(?m)^\$ kinfolk "))
def test_the_commands_of_a_page_run(name: str) -> None:
    from kinfolk.cli.main import run

    for command in commands(CONSOLE.findall(TEXTS[name]), "$ "):
        assert run(shlex.split(command)[1:]) == 0, command


@pytest.mark.filterwarnings("ignore::UserWarning")  # two steps teach nothing, and our models say so
@pytest.mark.usefixtures("minilm")
@pytest.mark.parametrize("name", filter(takes_long, TEXTS))
def test_what_takes_minutes_runs_in_a_few_steps(name: str, room: Path) -> None:
    import kinfolk
    from kinfolk.cli.main import run

    long = commands(SHELL.findall(TEXTS[name]), "")
    for model, saved in TRAINED.items():
        if not any(f"--output {model}" in command for command in long):
            shutil.copytree(SAVED / saved / "model", room / model)
    for command in long:
        if "completion" not in command:  # which writes into the home
            assert run(shlex.split(re.sub(r"--minutes \d+", SHORT, command))[1:]) == 0, command
    names = {"kinfolk": kinfolk}
    for block in PYTHON.findall(TEXTS[name]):
        exec(re.sub(r"minutes=\d+", "steps=2, evaluations=1", block), names)


@pytest.mark.parametrize("name", [*TEXTS, "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_the_links_of_a_page_lead_somewhere(name: str) -> None:
    page = REPOSITORY / name
    for link in re.findall(r"(?<!!)\[[^]]*\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, heading = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        titles = re.findall(r"(?m)^#+ (.*)$", target.read_text(encoding="utf-8")) if heading else []
        anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not heading or heading in anchors, link


@pytest.mark.parametrize("name", ["README.md", "docs/explanation/families.md"])
def test_a_table_of_the_family_has_every_relative(name: str) -> None:
    rows = [line.split("|")[1].strip() for line in TEXTS[name].splitlines() if line.startswith("| ")]
    assert {record.title for record in all_families()} - set(rows) == set()


def test_every_page_is_in_the_index() -> None:
    index = TEXTS["docs/README.md"]
    listed = {f"docs/{link}" for link in re.findall(r"\]\(([\w/.-]+\.md)\)", index)}
    assert {name for name in TEXTS if name not in ("README.md", "docs/README.md")} - listed == set()


def test_what_is_read_first_is_short() -> None:
    for name in ("README.md", "ARCHITECTURE.md"):
        assert (REPOSITORY / name).read_text(encoding="utf-8").count("\n") <= 150, name


def test_tf_idf_reaches_what_the_page_says() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
    reached = cross_val_score(model, *sentences(), cv=5).mean()
    assert f"TF-IDF with word pairs reaches {reached:.3f}\n" in TEXTS["docs/how-to/embed.md"]


def needed_by(package: str) -> set[str]:
    """A package and all that it needs, without extras."""
    names, waiting = set(), [package]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in names:
            names.add(name)
            needs = [Requirement(line) for line in metadata.requires(name) or []]
            waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return names


def test_what_is_installed_besides_torch_and_numpy_is_as_small_as_the_page_says() -> None:
    beside = needed_by("kinfolk") - {"kinfolk"} - needed_by("torch") - needed_by("numpy")
    assert {"tokenizers", "safetensors"} <= beside
    size = sum(file.size or 0 for name in beside for file in metadata.files(name) or []) / 2**20
    stated = re.search(r"(\d+) MiB are installed", TEXTS["docs/how-to/install.md"])
    assert stated is not None
    assert size == pytest.approx(float(stated[1]), rel=0.1)
    assert size < 50


def test_a_first_user_is_told_how_to_get_the_command() -> None:
    line = ". .venv/bin/activate"
    assert f"$ {line}\n" in TEXTS["README.md"]
    assert line in (REPOSITORY / "scripts" / "quickstart").read_text(encoding="utf-8").splitlines()[-1]
