"""Contestants in processes of their own, rounds interleaved, the best time of each, outputs compared.

A worker prepares its contestant, then answers every task it reads with the seconds it took and a file with what came
out. Only one worker computes at a time, so they share the machine fairly, noise included.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("KINFOLK_DATA") or ROOT.parent / "shared" / "data")
THREADS = 2
PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "ctranslate2", "tokenizers", "numpy")

Run = Callable[[str], np.ndarray]  # a task's name -> what came out


class Worker:
    """One contestant in its own process."""

    def __init__(self, module: str, name: str):
        self.name = name
        command = [sys.executable, "-m", "bench.harness", module, name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self._answer()

    def run(self, task: str) -> tuple[float, np.ndarray]:
        assert self.process.stdin is not None
        self.process.stdin.write(task + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        return answer["seconds"], np.load(answer["output"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, float | str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise SystemExit(f"the contestant {self.name} died; see above")


def serve(module: str, name: str) -> None:
    """The worker's side."""
    import torch

    torch.set_num_threads(THREADS)
    run: Run = import_module(module).CONTESTANTS[name]()
    output = Path(tempfile.mkdtemp()) / "output.npy"
    print("answer {}", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        made = run(line.strip())
        seconds = time.perf_counter() - start
        np.save(output, made)
        print("answer " + json.dumps({"seconds": seconds, "output": str(output)}), flush=True)


def compete(
    module: str, names: list[str], tasks: list[str], rounds: int
) -> tuple[dict[tuple[str, str], list[float]], dict[tuple[str, str], float]]:
    """Seconds of each (task, name) in every round, and its outputs' largest difference to the first contestant's."""
    workers = [Worker(module, name) for name in names]
    seconds: dict[tuple[str, str], list[float]] = {}
    differences: dict[tuple[str, str], float] = {}
    for task in tasks:
        for worker in workers:
            worker.run(task)  # warm up, uncounted
        for index in range(rounds):
            first = None
            for worker in workers:
                took, output = worker.run(task)
                first = output if first is None else first
                seconds.setdefault((task, worker.name), []).append(took)
                apart = np.maximum(np.abs(output - first).max(), differences.get((task, worker.name), 0.0))
                differences[task, worker.name] = float(apart)
                print(f"{task}, round {index + 1}: {worker.name} {took:.2f} s", file=sys.stderr)
    for worker in workers:
        worker.close()
    return seconds, differences


def machine() -> str:
    """What the figures were measured on."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    load = os.getloadavg()[0]
    return (
        f"Measured {time.strftime('%Y-%m-%d')} on {cpu} ({capability}), {os.cpu_count()} cores, {THREADS} threads, "
        f"load {load:.1f} at the end; Python {platform.python_version()}, {versions}."
    )


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


GOAL_HEADER = ["floor", "reached", "aim", "reached"]  # the header of what `goal_cells` says of a figure


def goal_cells(value: float, floor: float, aim: float | None = None, at_most: bool = False) -> list[str]:
    """Cells of a table: a figure, then its floor and its aim, each with yes or no.

    With `at_most` both are ceilings. The floor must hold, the aim is hoped for; without one its cells are empty.
    """
    cells = [f"{value:.3f}"]
    for bound in (floor, aim):
        if bound is None:
            cells += ["", ""]
        else:
            holds = value <= bound if at_most else value >= bound
            cells += [f"{bound:g}", "yes" if holds else "no"]
    return cells


def write_result(name: str, title: str, body: str) -> None:
    """docs/results/bench-NAME.md, and the same on the screen."""
    text = f"# {title}\n\nCommand: `./scripts/bench {name}`. {machine()}\n\n{body}\n"
    path = ROOT / "docs" / "results" / f"bench-{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(text)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
