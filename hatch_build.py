"""Compiles few_tokens.c when kinfolk is installed, where that can be done: Linux on x86-64 with a C compiler.

Elsewhere, and when the compiler fails, the package comes without it and computes the same with torch alone.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = Path(__file__).parent / "src" / "kinfolk" / "parts"
KINDS = {"avx512": ["-mavx512f", "-mfma"], "avx2": ["-mavx2", "-mfma"]}  # what few_tokens.py looks for


class Kernels(BuildHookInterface):  # type: ignore[misc]
    """Called by hatchling before it packs a wheel, or an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        remove()
        if sys.platform != "linux" or platform.machine() != "x86_64":
            return
        try:
            built = [compiled(kind) for kind in KINDS]
        except (OSError, subprocess.CalledProcessError) as fault:
            remove()
            self.app.display_warning(f"few_tokens.c is left out, short texts take longer: {fault}")
            return
        build_data["artifacts"] += [f"/{path.relative_to(self.root)}" for path in built]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def remove() -> None:
    """Take away what an earlier installation compiled."""
    for library in PARTS.glob("few_tokens-*.so"):
        library.unlink()


def compiled(kind: str) -> Path:
    """The library for one kind of processor.

    It is not linked with OpenMP: a second copy of that beside torch's would mean twice the threads. It finds torch's.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    unfinished, library = PARTS / f"few_tokens-{kind}.o", PARTS / f"few_tokens-{kind}.so"
    options = ["-std=gnu11", "-O3", "-fPIC", "-fopenmp", *KINDS[kind]]
    try:
        subprocess.run([*compiler, *options, "-c", PARTS / "few_tokens.c", "-o", unfinished], check=True)
        subprocess.run([*compiler, "-shared", unfinished, "-o", library], check=True)
    finally:
        unfinished.unlink(missing_ok=True)
    return library
