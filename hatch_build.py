"""Compiles small_batch.c when kinfolk is installed, where that can be done: Linux on x86-64 with a C compiler.

Elsewhere, and when the compiler fails, the package comes without it and computes the same with torch alone.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FAST = Path("src", "kinfolk", "nn", "fast")
KINDS = {"avx512": ["-mavx512f", "-mfma"], "avx2": ["-mavx2", "-mfma"]}  # what inference_cache.py looks for
OPTIONS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fPIC", "-fopenmp"]


class Kernels(BuildHookInterface):  # type: ignore[misc]
    """Called by hatchling before and after it packs a wheel, or an editable one."""

    workshop: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or sys.platform != "linux" or platform.machine() != "x86_64":
            return
        parts, self.workshop = Path(self.root) / FAST, Path(tempfile.mkdtemp())
        for kind in KINDS:
            name = f"small_batch-{kind}.so"
            try:
                if version == "editable":  # an older one must not outlive a compiler that fails
                    (parts / name).unlink(missing_ok=True)
                library = compiled(parts / "small_batch.c", kind, self.workshop / name)
                if version == "editable":  # which is used where it stands
                    replace(library, parts / name)
            except (OSError, ValueError, subprocess.CalledProcessError) as fault:
                self.app.display_warning(f"small_batch.c is left out for {kind}, short texts take longer: {fault}")
                continue
            if version != "editable":
                build_data["force_include"][str(library)] = f"kinfolk/nn/fast/{name}"
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.workshop is not None:
            shutil.rmtree(self.workshop, ignore_errors=True)


def compiled(source: Path, kind: str, library: Path) -> Path:
    """The library for one kind of processor.

    It is not linked with OpenMP: a second copy of that beside torch's would mean twice the threads. It finds torch's.
    """
    compiler = shlex.split(os.environ.get("CC") or "cc")
    unfinished = library.with_suffix(".o")
    subprocess.run([*compiler, *OPTIONS, *KINDS[kind], "-c", source, "-o", unfinished], check=True)
    subprocess.run([*compiler, "-shared", unfinished, "-o", library], check=True)
    library.stat()
    return library


def replace(fresh: Path, place: Path) -> None:
    """In one go: a library that is half there would take a process down."""
    beside = place.with_suffix(".part")
    shutil.copyfile(fresh, beside)
    os.replace(beside, place)
