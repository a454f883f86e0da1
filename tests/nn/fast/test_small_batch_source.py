"""small_batch.c where there is a compiler: it compiles without a warning, and the installation used it."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kinfolk.nn.fast import inference_cache

SOURCE = Path(inference_cache.__file__).with_name("small_batch.c")


def compiles() -> bool:
    """Is there a compiler with what any program of this kind needs?"""
    if sys.platform != "linux" or platform.machine() != "x86_64" or shutil.which("cc") is None:
        return False
    headers = ["-include", "omp.h", "-include", "immintrin.h", "-include", "math.h"]
    return subprocess.run(["cc", "-fopenmp", *headers, "-E", "-xc", "/dev/null"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not compiles(), reason="no C compiler with OpenMP for Linux on x86-64")


@pytest.mark.parametrize("kind", ["-mavx512f", "-mavx2"])
def test_it_compiles_without_a_warning(kind: str) -> None:
    options = ["-std=gnu11", "-O1", "-fopenmp", "-mfma", kind, "-Wall", "-Wextra", "-Werror", "-o", "/dev/null"]
    ended = subprocess.run(["cc", *options, "-c", SOURCE], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_the_installation_compiled_it() -> None:
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("this processor has no vectors of 256 bits")
    assert inference_cache.library() is not None
