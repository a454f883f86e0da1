"""Every command explains itself; a fault is one line and exit code 2."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from kinfolk import __version__
from kinfolk.cli import main
from surroundings import Command

COMMANDS = (
    *("embed", "search", "fill-mask", "generate", "finetune", "predict", "evaluate", "pretrain", "train-translator"),
    *("translate", "align", "tokenize", "info", "convert"),
)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example(command: Command, name: str) -> None:
    ended = command(name, "--help")
    assert ended.code == 0
    assert f"    kinfolk {name} " in ended.out.partition("\n  Example")[2]
    assert f"  {name} " in command("--help").out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_an_example_exist(command: Command, name: str) -> None:
    help_text, _, examples = command(name, "--help").out.partition("\n  Example")
    lines = [line for line in examples.splitlines() if line.startswith(f"    kinfolk {name} ")]
    assert [word for line in lines for word in line.split() if word.startswith("--") and word not in help_text] == []


def test_help_of_a_command_imports_nothing_heavy() -> None:
    heavy = ["torch", "numpy", "tokenizers", "safetensors", "huggingface_hub", "rich"]
    code = f"""
import sys
from kinfolk.cli.main import run
for command in {COMMANDS}:
    assert run([command, "--help"]) == 0
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert finished.stderr.strip() == "[]"


@pytest.mark.parametrize("arguments", [["embed", "--help"], ["embed", "--model", "demo", "--input", "absent.txt"]])
def test_a_command_loads_no_other(arguments: list[str], tmp_path: Path) -> None:
    code = """
import sys
from kinfolk.cli.main import run
run(sys.argv[1:])
names = [name for name in sys.modules if name.startswith(("kinfolk.cli.", "kinfolk.training."))]
print(*sorted(names), file=sys.stderr)
"""
    output = ["--output", str(tmp_path / "v.npy")]
    finished = subprocess.run([sys.executable, "-c", code, *arguments, *output], capture_output=True, text=True)
    commands = ("embed", "main", "options", "output")
    assert finished.stderr.splitlines()[-1].split() == [f"kinfolk.cli.{name}" for name in commands]


def test_the_version_is_reported(command: Command) -> None:
    assert command("--version").out == f"kinfolk {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [("embd",), ("embed",), ("info", "--jsn"), ("search", "--model", "demo", "--index", "i", "q", "--top", "0")],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_two(command: Command, arguments: tuple[str, ...]) -> None:
    ended = command(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("kinfolk: ")
    assert ended.err.count("\n") == 1


def test_a_fault_of_the_user_is_one_line(command: Command, tmp_path: Path) -> None:
    ended = command("tokenize", "--model", tmp_path / "no/such/folder", "a")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("kinfolk: ")
    assert ended.err.count("\n") == 1


def test_an_interrupt_is_exit_code_130(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kinfolk.checkpoints.find.find_model", interrupt)
    assert command("tokenize", "--model", "demo", "a").code == 130


def test_a_reader_that_leaves_early_is_no_fault(minilm: Path) -> None:
    line = [sys.executable, "-m", "kinfolk", "tokenize", "--model", str(minilm), "word " * 20_000]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("token")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == main.BROKEN_PIPE


def test_warnings_of_libraries_stay_away_and_ours_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kinfolk.text.windows import CutWarning

    def warn(**arguments: object) -> int:
        warnings.warn("a library's", FutureWarning, stacklevel=1)
        warnings.warn(CutWarning(1, 2, 3), stacklevel=1)
        return 0

    monkeypatch.setattr(main, "app", warn)
    monkeypatch.setattr(sys, "warnoptions", [])
    assert main.run([]) == 0
    assert capsys.readouterr().err == "kinfolk: 1 text was cut: 2 of its tokens kept, 3 dropped\n"


@pytest.mark.parametrize(
    ("command_line", "code"),
    [
        ("info bert >&-", 0),
        ("info bert >/dev/full", 2),
        ("info nope 2>/dev/full", 2),
        ("embed --model demo --input - --output v.npy <&-", 2),
    ],
)
def test_closed_and_full_streams_are_no_traceback(command_line: str, code: int, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    kinfolk = Path(sys.executable).parent / "kinfolk"
    ended = subprocess.run(["sh", "-c", f"{kinfolk} {command_line}"], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []
