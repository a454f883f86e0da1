"""Memory: flat over the number of lines, and no leak over many calls."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import ROOT, table, write_result

SHORT, LONG = 10_000, 100_000
CALLS, EARLY = 10_000, 500
LINES = "import resource, sys; from kinfolk.cli.main import main; sys.argv = sys.argv[1:]\ntry: main()\nfinally: "
SIZES = LINES + (
    "print('kB', int(open('/proc/self/statm').read().split()[1]) * 4,"
    " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
)
LEAK = """
from dataclasses import replace
import kinfolk
from kinfolk.jobs.demo import demo_model
from kinfolk.models.model import with_fresh_head

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4

model = kinfolk.load(demo_model(), device="cpu")
if "{verb}" == "fill":  # the demo model has no masked-LM head: a random one fills as fast
    model = replace(model, model=with_fresh_head(model.model, "masked_lm", 0)[0].eval())
for call in range({calls}):
    model.{verb}(f"the {{call}}th call reads a [MASK] of {{'some ' * (call % 20)}} words")
    if call == {early}:
        before = resident()
print(before, resident())
"""


def sizes_of(lines: int) -> tuple[int, int]:
    """Resident kB of `kinfolk embed` after so many short lines, and at the worst moment; the output is on disk."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "lines.txt"
        # Numbers repeat, so that longer files have the same lines, not longer ones.
        source.write_text("".join(f"line {number % SHORT} is short\n" for number in range(lines)))
        command = [sys.executable, "-c", SIZES, "kinfolk", "embed", "--model", "demo", "--device", "cpu"]
        command += ["--input", str(source), "--output", str(Path(place) / "vectors.npy")]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        found = re.search(r"kB (\d+) (\d+)", ended.stderr)
        assert found is not None, ended.stderr
        return int(found[1]), int(found[2])


def leak_of(verb: str) -> tuple[int, int]:
    """Resident kB early and late in a long row of calls."""
    program = LEAK.format(verb=verb, calls=CALLS, early=EARLY)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = map(int, ended.stdout.split())
    return before, after


def main() -> None:
    rows = []
    for what, short, long in zip(("resident", "peak"), sizes_of(SHORT), sizes_of(LONG), strict=True):
        rows.append([f"`kinfolk embed`, {what} at {SHORT:,} lines", f"{short / 1024:.0f}", ""])
        growth = f"{100 * (long / short - 1):+.1f} %"
        rows.append([f"`kinfolk embed`, {what} at {LONG:,} lines", f"{long / 1024:.0f}", growth])
    for verb in ("embed", "fill"):
        before, after = leak_of(verb)
        change = f"{(after - before) / 1024:+.1f} MB"
        rows.append([f"`model.{verb}`, resident after {EARLY:,} calls", f"{before / 1024:.0f}", ""])
        rows.append([f"`model.{verb}`, resident after {CALLS:,} calls", f"{after / 1024:.0f}", change])
    write_result("memory", "Memory", table(["", "MB", "change"], rows))
