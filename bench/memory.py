"""Memory: flat over the number of lines, and no leak over many calls."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import ROOT, goal_cells, table, write_result

SHORT, LONG, LONGEST = 10_000, 100_000, 300_000
CALLS, EARLY = 10_000, 500
MOST, MOST_MB = 5, 20  # per cent that memory may grow over a file, and MB over many calls
LINES = "import resource, sys; from kinfolk.cli.main import main; sys.argv = sys.argv[1:]\ntry: main()\nfinally: "
SIZES = LINES + (
    "print('kB', int(open('/proc/self/statm').read().split()[1]) * 4,"
    " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
)
RESIDENT = """
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4
"""
STREAM = (
    RESIDENT
    + """
from kinfolk.machine import set_environment

set_environment()
import kinfolk

model = kinfolk.load("demo", device="cpu")
model.embed(f"line {{number % {short}}} is short" for number in range({lines}))
print(resident())
"""
)
LEAK = (
    RESIDENT
    + """
import sys, tempfile
from dataclasses import replace
import kinfolk
from kinfolk.demo import passages
from kinfolk.models.family import with_new_head

verb = "{verb}"
if verb == "translate":
    sys.path.append("recipes")
    import g2p
    model = g2p.translator()
elif verb == "generate":
    with tempfile.TemporaryDirectory() as folder:
        kinfolk.pretrain("lstm", passages(), folder + "/run", vocabulary_size=500, steps=1, device="cpu")
        model = kinfolk.load(folder + "/run", device="cpu")
else:
    model = kinfolk.load("demo", device="cpu")
if verb == "fill":  # the demo model has no masked-LM head: a random one fills as fast
    model = replace(model, model=with_new_head(model.model, "masked_lm", 0)[0].eval())
for call in range({calls}):
    text = f"the {{call}}th call reads a [MASK] of {{'some ' * (call % 20)}} words"
    if verb == "translate":
        model.translate(text[: 5 + call % 20])
    elif verb == "generate":
        model.generate(text, max_tokens=5)
    else:
        getattr(model, verb)(text)
    if call == {early}:
        before = resident()
print(before, resident())
"""
)


def sizes_of(lines: int, words: list[str], header: str = "", name: str = "out.npy") -> tuple[int, int]:
    """Resident kB of a command after so many short lines, and at the worst moment; the output is on disk."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / ("rows.csv" if header else "lines.txt")
        # Numbers repeat, so that longer files have the same lines, not longer ones.
        source.write_text(header + "".join(f"line {index % SHORT} is short\n" for index in range(lines)))
        command = [sys.executable, "-c", SIZES, "kinfolk", *words, "--device", "cpu"]
        command += ["--input", str(source), "--output", str(Path(folder) / name)]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        match = re.search(r"kB (\d+) (\d+)", ended.stderr)
        assert match is not None, ended.stderr
        return int(match[1]), int(match[2])


def classifier(folder: Path) -> str:
    """A model that has learned for one step, which predicts as fast as any other."""
    rows = folder.with_suffix(".csv")
    rows.write_text("text,label\n" + "".join(f"text {index},{index % 2}\n" for index in range(20)))
    train = f"import kinfolk; kinfolk.finetune('demo', {str(rows)!r}, {str(folder)!r}, steps=1, device='cpu')"
    subprocess.run([sys.executable, "-c", train], capture_output=True, cwd=ROOT, check=True)
    return str(folder)


def numbers_of(program: str) -> list[int]:
    """What a program prints that runs in a process of its own."""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    return [int(number) for number in ended.stdout.split()]


def rows_of(what: str, marks: tuple[int, int], sizes: tuple[int, int], verdict: list[str]) -> list[list[str]]:
    """A row for each of two moments: `what` with its mark, its kB, and whether the growth is within the limit."""
    return [
        [what.format(mark), f"{size / 1024:.0f}", *cells]
        for mark, size, cells in zip(marks, sizes, (["", "", ""], verdict), strict=True)
    ]


def within_share(sizes: tuple[int, int]) -> list[str]:
    """Growth in per cent, its limit, and whether it holds."""
    growth, most, holds = goal_cells(100 * (sizes[1] / sizes[0] - 1), MOST, at_most=True)[:3]
    return [f"{growth} %", f"{most} %", holds]


def within_size(sizes: tuple[int, int]) -> list[str]:
    """The same in MB."""
    growth, most, holds = goal_cells((sizes[1] - sizes[0]) / 1024, MOST_MB, at_most=True)[:3]
    return [f"{growth} MB", f"{most} MB", holds]


def main() -> None:
    rows: list[list[str]] = []
    lines = SHORT, LONG
    with tempfile.TemporaryDirectory() as folder:
        predicting = ["predict", "--model", classifier(Path(folder) / "model")]
        for verb, *arguments in (
            ("embed", ["embed", "--model", "demo"]),
            ("predict", predicting, "text\n", "out.csv"),
        ):
            (small, first), (large, second), (_, third) = (sizes_of(count, *arguments) for count in (*lines, LONGEST))
            title = f"`kinfolk {verb}`, {{}} at {{{{:,}}}} lines"
            rows += rows_of(title.format("resident"), lines, (small, large), within_share((small, large)))
            settled = rows_of(title.format("peak"), (LONG, LONGEST), (second, third), within_share((second, third)))
            rows += [[title.format("peak").format(SHORT), f"{first / 1024:.0f}", "", "", ""], *settled]
    streamed = tuple(numbers_of(STREAM.format(short=SHORT, lines=count))[0] for count in lines)
    title = "`model.embed` after `set_environment()`, resident at {:,} lines of a generator"
    rows += rows_of(title, lines, streamed, within_share(streamed))
    for verb in ("embed", "fill", "generate", "translate"):
        before, after = numbers_of(LEAK.format(verb=verb, calls=CALLS, early=EARLY))
        title = f"`model.{verb}`, resident after {{:,}} calls"
        rows += rows_of(title, (EARLY, CALLS), (before, after), within_size((before, after)))
    note = (
        "The vectors that `model.embed` returned are given up before memory is measured. Resident memory is what is "
        "left after a chunk of lines; a peak is the worst moment of all batches, so that it is higher where there are "
        "more of them, until it has seen them all."
    )
    header = ["", "MB", "growth", "at most", "holds"]
    write_result("memory", "Memory", f"{table(header, rows)}\n\n{note}")
