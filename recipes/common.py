"""What the recipes share: where the data is, how a recipe is started, and how its result is written down."""

from __future__ import annotations

import argparse
import datetime
import fcntl
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from kinfolk.errors import KinfolkError, StopSignalError
from kinfolk.files import parse_json, read_object, read_text, write_bytes, write_json
from kinfolk.machine import tune

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "docs" / "results"
BATCH = "batch_size", "batch_tokens"


@dataclass(frozen=True)
class RecipePaths:
    """Where a recipe's runs lie and where its figures and page go: runs are not kept for ever, their figures are."""

    name: str
    runs: Path
    results: Path = RESULTS

    @classmethod
    def of(cls, name: str, aside: Path | None = None) -> RecipePaths:
        """Below runs/NAME and docs/results; `aside`, for a try, all of it is elsewhere."""
        return cls(name, (aside or REPOSITORY) / "runs" / name, aside or RESULTS)

    @property
    def notes(self) -> dict[str, Any]:
        """The figures that are noted, by name."""
        path = self.results / f"{self.name}.json"
        return read_object(path) if path.exists() else {}

    @contextmanager
    def noting(self) -> Iterator[dict[str, Any]]:
        """The notes, to be changed; other processes wait meanwhile, and nothing is written if the block fails."""
        self.runs.mkdir(parents=True, exist_ok=True)
        with (self.runs / "notes.lock").open("a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # freed with the file, also when the process dies
            notes = self.notes
            yield notes
            write_json(self.results / f"{self.name}.json", notes)


def environment() -> dict[str, Any]:
    """What belongs to every figure: threads, machine and date."""
    return {"threads": torch.get_num_threads(), "machine": processor(), "date": datetime.date.today().isoformat()}


@dataclass(frozen=True)
class Course:
    """How a run went: its steps, plans of the clock, and how many examples and tokens a batch held at most."""

    steps: int
    plans: int
    batch_size: int
    batch_tokens: int | None

    @classmethod
    def of(cls, folder: Path) -> Course:
        """As the run's folder tells it."""
        settings, path = read_object(folder / "run.json")["settings"], folder / "plan.json"
        plan = read_object(path) if path.exists() else {"plans": [], "share": 1.0}  # its steps were given
        last = parse_json(read_text(folder / "log.jsonl").splitlines()[-1], "log.jsonl")
        size, tokens = (settings[name] and round(plan["share"] * settings[name]) for name in BATCH)
        return cls(last["step"], len(plan["plans"]), size, tokens)


def data_file(relative: str) -> Path:
    """A file below $KINFOLK_DATA (by default ../shared/data beside the repository); its absence ends the recipe."""
    path = Path(os.environ.get("KINFOLK_DATA") or REPOSITORY.parent / "shared" / "data") / relative
    if not path.is_file():
        raise SystemExit(f"no {relative} in the data folder; set KINFOLK_DATA to the folder that holds it")
    return path


def start(recipe: Callable[[str], None], description: str) -> None:
    """Run `recipe(model)` with the model of the command line; a fault ends in one line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="demo", help='a model folder; "demo" is all-MiniLM-L6-v2')
    model = parser.parse_args().model
    try:
        recipe(model)
    except KinfolkError as error:
        raise SystemExit(f"error: {error}") from None


def start_by_minutes(
    description: str,
    recipe: str,
    names: Sequence[str],
    run: Callable[[str, float | None, RecipePaths], None],
    write: Callable[[float | None, RecipePaths], None],
) -> None:
    """Run each of the `names`, or those of the command line, then write the page. With --minutes it is a try, elsewhere
    and with nothing in docs. A fault ends in one line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*", choices=[*names, []], help="which to train; all by default")
    parser.add_argument("--minutes", type=float, help="a try of so many minutes each, below runs/try-MINUTES")
    arguments = parser.parse_args()
    tune()
    minutes = arguments.minutes
    paths = RecipePaths.of(recipe, None if minutes is None else REPOSITORY / "runs" / f"try-{minutes:g}")
    try:
        for name in arguments.names or names:
            run(name, minutes, paths)
        write(minutes, paths)
    except (KinfolkError, StopSignalError) as error:
        raise SystemExit(f"error: {error}") from None


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_result(
    name: str,
    script: str,
    model: str,
    title: str,
    parts: Sequence[str],
    packages: Sequence[str],
    folder: Path = RESULTS,
) -> None:
    """Write docs/results/NAME.md (for another model than the demo NAME-MODEL.md) and print it.

    `parts` are the paragraphs and tables; command, machine, versions and date are added here. Of a model folder only
    its last name is shown. `folder` replaces docs/results, for a try.
    """
    other = "" if model == "demo" else Path(model).resolve().name
    command = f"python recipes/{script}" + (f" --model {other}" if other else "")
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in ("kinfolk", "torch", *packages))
    facts = [
        f"- Command: `{command}`",
        f"- Machine: {processor()}, {os.cpu_count()} cores; Python {platform.python_version()}",
        f"- Versions: {versions}",
        f"- Date: {datetime.date.today().isoformat()}",
    ]
    text = "\n\n".join([f"# {title}", *parts, "\n".join(facts)]) + "\n"
    path = folder / (f"{name}-{other}.md" if other else f"{name}.md")
    write_bytes(path, text.encode())
    print(text)


def processor() -> str:
    """The processor's name as a person knows it."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        for line in listed.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
