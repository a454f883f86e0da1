"""The folder of a run: what it depends on, how far it got, and how it resumes after a crash.

    run.json     everything that the run depends on, and the format of the folder; a resumed run must agree with it
    plan.json    the number of steps, where the clock decided it: timed once, then kept
    log.jsonl    per step: step, loss (losses by name, where there are several), learning_rate, epoch; where it was
                 evaluated also metrics and selection_score (higher is better)
    step-N/      an immutable checkpoint: weights, optimizer state, counters, a manifest
    last, best   the names of two of them, each a small file that is renamed into place
    lock         held while a process works here

A checkpoint is written to a temporary folder, synced and renamed, and only then does `last` name it. A reader never
sees half of one; a damaged one is noticed by its hashes, and the one before it is used.

Of several processes only the first touches the folder: the others open it in name only, and leave it alone.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import BaseFileLock
from torch import Tensor

from kinfolk.checkpoints.manifest import check_manifest, write_manifest
from kinfolk.checkpoints.weights import SafetensorsFile, tensor_bytes, write_tensors
from kinfolk.errors import FolderError, InputError, KinfolkError, shorten_list
from kinfolk.files import atomic_folder, lock_file, read_object, read_text, write_bytes, write_json, writing
from kinfolk.training.distributed import world

FORMAT = 2  # of the folder; an unfinished run of another format is refused
KEPT = 2  # newest checkpoints, besides the best
Entries = Sequence[Mapping[str, Any]]  # of log.jsonl
DIGESTS = {"data": "other examples", "start": "other weights to start from", "tokenizer": "another tokenizer"}


@dataclass(frozen=True)
class Snapshot:
    """The state of a run after `step` steps: named groups of tensors, and counters."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    counters: Mapping[str, Any]

    @property
    def size(self) -> int:
        """How many bytes its tensors take."""
        return sum(tensor_bytes(tensor) for tensors in self.tensors.values() for tensor in tensors.values())


class Run:
    """A run folder, locked by this process while the object is open."""

    def __init__(self, folder: Path, lock: BaseFileLock | None = None):
        self.folder = folder
        self._lock = lock

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
            run._agree(description)
        except BaseException:
            run.close()
            raise
        return run

    def _agree(self, description: Mapping[str, Any]) -> None:
        path = self.folder / "run.json"
        if not path.exists():
            write_json(path, {"format": FORMAT, **description})
            return
        stored = read_object(path)
        if stored.pop("format", None) != FORMAT:
            raise FolderError(f"{path}: the run was begun by another version of kinfolk; choose a new folder")
        changes = _changes(stored, description)
        if changes:
            raise FolderError(f"{self.folder}: the run there differs: {shorten_list(changes, 3)}; choose a new folder")

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.release()

    def plan(self) -> int | None:
        """The number of steps that was planned before the first, if one was."""
        path = self.folder / "plan.json"
        total = read_object(path).get("total") if path.exists() else None
        return total if type(total) is int and total > 0 else None

    def keep_plan(self, total: int) -> None:
        """Remember the number of steps: a run that is killed before its first checkpoint must not plan another."""
        write_json(self.folder / "plan.json", {"total": total})

    def save(self, snapshot: Snapshot, best: bool = False) -> None:
        """Write a checkpoint, then point to it, then clear old ones away."""
        name = f"step-{snapshot.step}"
        path = self.folder / name
        if not path.exists():
            with atomic_folder(path, snapshot.size) as temporary:
                _write(temporary, snapshot)
        if best:
            write_bytes(self.folder / "best", name.encode())
        write_bytes(self.folder / "last", name.encode())
        steps = self.steps()
        kept = {f"step-{step}" for step in steps[-KEPT:]} | {self._pointed("best"), name}
        for step in steps:
            if f"step-{step}" not in kept:
                _remove(self.folder / f"step-{step}")

    def seconds_to_save(self, snapshot: Snapshot) -> float:
        """How long a checkpoint takes; what is written for that is thrown away."""
        path, start = self.folder / ".step-timed.part", time.perf_counter()
        try:
            with writing(path, snapshot.size):
                path.mkdir()
                _write(path, snapshot)
            return time.perf_counter() - start
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def steps(self) -> list[int]:
        """Steps that have a checkpoint."""
        names = [path.name.removeprefix("step-") for path in self.folder.glob("step-*") if path.is_dir()]
        return sorted(int(name) for name in names if name.isdigit())

    def _pointed(self, pointer: str) -> str | None:
        path = self.folder / pointer
        return read_text(path).strip() if path.exists() else None

    def rewind(self, step: int, best: int | None) -> None:
        """Forget what came after `step`, which will be computed again: checkpoints, log; and name the best again."""
        for later in self.steps():
            if later > step:
                _remove(self.folder / f"step-{later}")
        if best is not None and best in self.steps():
            write_bytes(self.folder / "best", f"step-{best}".encode())
        kept = [entry for entry in self.entries() if entry["step"] <= step]
        write_bytes(self.folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in kept).encode())

    def newest(self) -> tuple[Snapshot | None, list[str]]:
        """The newest checkpoint that is whole, and a note on each damaged one that was skipped."""
        return self._first_whole([f"step-{step}" for step in reversed(self.steps())], "the run begins anew")

    def best(self) -> tuple[Snapshot | None, list[str]]:
        """The best checkpoint, if one was marked, else the best whole one beside it; and notes on damaged ones."""
        marked = self._pointed("best")
        if marked is None:
            return None, []
        others = [f"step-{step}" for step in self.steps() if f"step-{step}" != marked]
        scores = {name: score for name in others if (score := self._selection_score(name)) is not None}
        names = [marked, *sorted(scores, key=scores.__getitem__, reverse=True)]
        return self._first_whole(names, "no other that was evaluated is left; choose a new folder")

    def _first_whole(self, names: Sequence[str], otherwise: str) -> tuple[Snapshot | None, list[str]]:
        """The first of some checkpoints that is whole; those before it are damaged."""
        damaged: list[str] = []
        for index, name in enumerate(names):
            try:
                return self.read(name), damaged
            except KinfolkError as error:
                following = names[index + 1 :]
                damaged.append(f"{error}; {f'using {following[0]}' if following else otherwise}")
        return None, damaged

    def _selection_score(self, name: str) -> float | None:
        """Of a checkpoint, where it was evaluated and that can still be read."""
        with contextlib.suppress(KinfolkError):
            score = read_object(self.folder / name / "state.json").get("selection_score")
            return score if isinstance(score, float) else None
        return None

    def drop_checkpoints(self) -> None:
        """For a run whose model is saved: they take several times its space, and nothing goes on from them."""
        for pointer in ("best", "last"):
            (self.folder / pointer).unlink(missing_ok=True)
        for step in self.steps():
            _remove(self.folder / f"step-{step}")

    def read(self, name: str) -> Snapshot:
        """A checkpoint by its folder's name, checked against its manifest."""
        path = self.folder / name
        if not check_manifest(path):
            raise FolderError(f"{path}: no manifest, so it was not written to the end")
        counters = read_object(path / "state.json")
        groups = {file.stem: SafetensorsFile(file) for file in sorted(path.glob("*.safetensors"))}
        tensors = {
            group: {tensor: source.read(tensor).clone() for tensor in source.names()}
            for group, source in groups.items()
        }
        return Snapshot(int(counters.pop("step")), tensors, counters)

    def log(self, entry: Mapping[str, Any]) -> None:
        """Append a line to log.jsonl."""
        path, line = self.folder / "log.jsonl", json.dumps(entry) + "\n"
        with writing(path, len(line)), path.open("a", encoding="utf-8") as stream:
            stream.write(line)

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


def _write(folder: Path, snapshot: Snapshot) -> None:
    for group, tensors in snapshot.tensors.items():
        write_tensors(folder / f"{group}.safetensors", dict(tensors))
    write_json(folder / "state.json", {"step": snapshot.step, **snapshot.counters})
    write_manifest(folder)


def _remove(checkpoint: Path) -> None:
    """Its name goes first: whoever is killed meanwhile leaves nothing that looks like a checkpoint."""
    doomed = checkpoint.with_name(f".{checkpoint.name}.part")
    checkpoint.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _changes(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two descriptions, each as a line: the innermost settings by their dotted names."""
    sides = (json.loads(json.dumps(side)) for side in (stored, wanted))  # a tuple is a list there
    first, second = (dict(_leaves(side)) for side in sides)
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return [DIGESTS.get(name, f"{name} was {_short(first.get(name))}, is {_short(second.get(name))}") for name in names]


def _leaves(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, f"{before}{name}.")
        else:
            yield before + name, inner


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "…"
