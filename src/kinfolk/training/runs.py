"""The folder of a run: what it depends on, how far it got, and how it resumes after a crash.

    run.json     everything that the run depends on, and the format of the folder; a resumed run must agree with it
    plan.json    the number of steps from each step on, where the clock decides it, written before it is used
    log.jsonl    per step: step, loss (losses by name, where there are several), learning_rate, epoch; where it was
                 evaluated also metrics and selection_score (higher is better)
    step-N/      an immutable checkpoint: weights, optimizer state, counters, a manifest
    last, best   the names of two of them, each a small file that is renamed into place
    lock         held while a process works here
    tensorboard/ on demand, the log as TensorBoard reads it

A checkpoint is written to a temporary folder, synced and renamed, and only then does `last` name it; a damaged one is
noticed by its hashes, and the one before it is used. Of several processes only the first touches the folder.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from filelock import BaseFileLock
from torch import Tensor

from kinfolk.checkpoints.manifest import check_manifest, write_manifest
from kinfolk.checkpoints.weights import open_safetensors, write_tensors
from kinfolk.errors import FolderError, InputError, KinfolkError, missing_extra, shorten_list
from kinfolk.files import atomic_folder, lock_file, read_object, read_text, write_bytes, write_json, writing
from kinfolk.training.distributed import world

FORMAT = 3  # of the folder; an unfinished run of another format is refused
KEPT = 2  # newest checkpoints, besides the best
Entries = Sequence[Mapping[str, Any]]  # of log.jsonl
DIGESTS = {"data": "other examples", "start": "other weights to start from", "tokenizer": "another tokenizer"}


@dataclass(frozen=True)
class Progress:
    """What a callback gets after each step."""

    step: int
    total: int
    loss: float
    epoch: int
    metrics: Mapping[str, float] | None = None
    learning_rate: float = 0.0  # the highest of all layers
    losses: Mapping[str, float] | None = None  # each by its name, where there are several

    def __str__(self) -> str:
        metrics = "".join(f", dev {name} {value:.4f}" for name, value in (self.metrics or {}).items())
        return f"step {self.step:,} of {self.total:,}, loss {self.loss:.3f}{metrics}"


@dataclass(frozen=True)
class Callbacks:
    """Called before training with its summary and the names of newly initialized parameters, with what was planned by
    the clock before the first step, and after each step with the run's seed."""

    before: Callable[[Any, Sequence[str]], None] = lambda summary, initialized: None
    step: Callable[[int, Progress], None] = lambda seed, progress: None
    plan: Callable[[str], None] = lambda plan: None


NO_CALLBACKS = Callbacks()


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after `step` steps: named groups of tensors, and counters."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    counters: Mapping[str, Any]

    @property
    def size(self) -> int:
        return sum(tensor.nbytes for tensors in self.tensors.values() for tensor in tensors.values())

    def write(self, folder: Path) -> None:
        for group, tensors in self.tensors.items():
            write_tensors(folder / f"{group}.safetensors", tensors)
        write_json(folder / "state.json", {"step": self.step, **self.counters})
        write_manifest(folder)


class Run:
    """A run folder, locked by this process while the object is open."""

    def __init__(self, folder: Path, lock: BaseFileLock | None = None):
        self.folder, self._lock = folder, lock

    @classmethod
    def open(cls, folder: Path, description: Mapping[str, Any]) -> Run:
        """Begin a run, or go on with one that has the same description. All processes of a run must call it."""
        here = world()
        run = here.on_main(lambda: cls._open(folder, description)) or cls(folder)
        changes = _changes(here.broadcast(description), description)
        if changes:
            raise InputError(f"process {here.rank} was given something else than process 0: {shorten_list(changes, 3)}")
        return run

    @classmethod
    def _open(cls, folder: Path, description: Mapping[str, Any]) -> Run:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            run = cls(folder, lock_file(folder / "lock"))
        try:
            for left in folder.glob(".step-*.part"):  # of a process that was killed while it wrote
                shutil.rmtree(left, ignore_errors=True)
            path = folder / "run.json"
            if not path.exists():
                write_json(path, {"format": FORMAT, **description})
            stored = read_object(path)
            if stored.pop("format", None) != FORMAT:
                raise FolderError(f"{path}: the run was begun by another version of kinfolk; choose a new folder")
            changes = _changes(stored, description)
            if changes:
                raise FolderError(f"{folder}: the run there differs: {shorten_list(changes, 3)}; choose a new folder")
        except BaseException:
            run.close()
            raise
        return run

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def plan(self) -> dict[str, Any]:
        """What was planned by the clock and written down, if it was (trainer.py)."""
        path = self.folder / "plan.json"
        return read_object(path) if path.exists() else {}

    def keep_plan(self, plan: Mapping[str, Any]) -> None:
        """To be written before it is used: a run that is killed must not plan anew what it did already."""
        write_json(self.folder / "plan.json", dict(plan))

    def save(self, snapshot: Snapshot, best: bool = False) -> None:
        """Write a checkpoint, then point to it, then clear old ones away."""
        name = f"step-{snapshot.step}"
        if not (self.folder / name).exists():
            with atomic_folder(self.folder / name, snapshot.size) as temporary:
                snapshot.write(temporary)
        if best:
            write_bytes(self.folder / "best", name.encode())
        write_bytes(self.folder / "last", name.encode())
        for step in self.steps()[:-KEPT]:
            if f"step-{step}" not in (name, self._marked_best()):
                self._remove(step)

    def steps(self) -> list[int]:
        names = (path.name.removeprefix("step-") for path in self.folder.glob("step-*") if path.is_dir())
        return sorted(int(name) for name in names if name.isdigit())

    def _marked_best(self) -> str | None:
        path = self.folder / "best"
        return read_text(path).strip() if path.exists() else None

    def rewind(self, step: int, best: int | None) -> None:
        """Forget what came after `step`, which will be computed again: checkpoints, log; and name the best again."""
        for later in self.steps():
            if later > step:
                self._remove(later)
        if best is not None and best in self.steps():
            write_bytes(self.folder / "best", f"step-{best}".encode())
        kept = [entry for entry in self.entries() if entry["step"] <= step]
        write_bytes(self.folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in kept).encode())

    def newest(self) -> tuple[Snapshot | None, list[str]]:
        """The newest checkpoint that is whole, and a note on each damaged one that was skipped."""
        return self._first_whole([f"step-{step}" for step in reversed(self.steps())], "the run begins anew")

    def best(self) -> tuple[Snapshot | None, list[str]]:
        """The best checkpoint, if one was marked, else the best whole one beside it; and notes on damaged ones."""
        marked = self._marked_best()
        if marked is None:
            return None, []
        scores: dict[str, float] = {}  # of those that were evaluated and can be read
        for name in (f"step-{step}" for step in self.steps()):
            with contextlib.suppress(KinfolkError):
                score = read_object(self.folder / name / "state.json").get("selection_score")
                scores |= {name: score} if isinstance(score, float) and name != marked else {}
        names = [marked, *sorted(scores, key=scores.__getitem__, reverse=True)]
        return self._first_whole(names, "no other that was evaluated is left; choose a new folder")

    def _first_whole(self, names: Sequence[str], otherwise: str) -> tuple[Snapshot | None, list[str]]:
        damaged: list[str] = []
        for name, following in zip_longest(names, names[1:]):
            try:
                return self.read(name), damaged
            except KinfolkError as error:
                damaged.append(f"{error}; {f'using {following}' if following else otherwise}")
        return None, damaged

    def drop_checkpoints(self) -> None:
        """For a run whose model is saved: they take several times its space, and nothing goes on from them."""
        for pointer in ("best", "last"):
            (self.folder / pointer).unlink(missing_ok=True)
        for step in self.steps():
            self._remove(step)

    def _remove(self, step: int) -> None:
        """Its name goes first: whoever is killed meanwhile leaves nothing that looks like a checkpoint."""
        doomed = self.folder / f".step-{step}.part"
        (self.folder / f"step-{step}").rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def read(self, name: str) -> Snapshot:
        path = self.folder / name
        if not check_manifest(path):
            raise FolderError(f"{path}: no manifest, so it was not written to the end")
        counters = read_object(path / "state.json")
        tensors = {}
        for file in sorted(path.glob("*.safetensors")):
            source = open_safetensors(file)
            tensors[file.stem] = {name: source.read(name).clone() for name in source.names()}
        return Snapshot(int(counters.pop("step")), tensors, counters)

    def log(self, entry: Mapping[str, Any]) -> None:
        path = self.folder / "log.jsonl"
        with writing(path), path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def entries(self) -> list[dict[str, Any]]:
        """The lines of log.jsonl; a last line that a crash cut short is left out."""
        path, entries = self.folder / "log.jsonl", []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return entries


def best_entry(entries: Entries) -> Mapping[str, Any] | None:
    """The evaluation whose weights are kept: the first with the highest selection score."""
    evaluated = (entry for entry in entries if entry.get("metrics") and "selection_score" in entry)
    return max(evaluated, key=lambda entry: float(entry["selection_score"]), default=None)


@contextlib.contextmanager
def tensorboard_log(folder: Path, callbacks: Callbacks = NO_CALLBACKS, several: bool = False) -> Iterator[Callbacks]:
    """These callbacks, and TensorBoard's files of each step; with `several` seeds, each has a folder of its own. A
    resumed run writes a second file, from where it goes on; TensorBoard drops what the first one says of later
    steps."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing_extra("TensorBoard's files need tensorboard", error, "tensorboard") from None
    writers: dict[int, SummaryWriter] = {}

    def step(seed: int, progress: Progress) -> None:
        callbacks.step(seed, progress)
        scalars = {"loss": progress.loss, "learning_rate": progress.learning_rate}
        scalars |= {f"loss/{name}": value for name, value in (progress.losses or {}).items()}
        scalars |= {f"dev/{name}": value for name, value in (progress.metrics or {}).items()}
        with writing(folder):
            if seed not in writers:
                own = folder / f"seed-{seed}" if several else folder
                writers[seed] = SummaryWriter(str(own), purge_step=progress.step)
            for name, value in scalars.items():
                writers[seed].add_scalar(name, value, progress.step)

    try:
        yield replace(callbacks, step=step)
    finally:
        for writer in writers.values():
            with writing(folder):
                writer.close()


def _changes(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two descriptions, each as a line: the innermost settings by their dotted names."""
    # Tuples become lists. Why a setting was chosen is told; what it is, is compared.
    kept = ({name: value for name, value in side.items() if name != "chosen"} for side in (stored, wanted))
    first, second = (dict(_leaves(json.loads(json.dumps(side)))) for side in kept)
    changed = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    shown = [[f"{json.dumps(side.get(name)):.38}" for side in (first, second)] for name in changed]
    return [DIGESTS.get(name, f"{name} was {was}, is {now}") for name, (was, now) in zip(changed, shown, strict=True)]


def _leaves(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, f"{before}{name}.")
        else:
            yield before + name, inner
