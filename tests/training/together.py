"""Several processes as torchrun would start them, but forked, so that each starts at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path


def together(size: int, folder: Path, work: Callable[[int], object]) -> list[str]:
    """Have `size` processes do the work, given their number; how each ended: "", an error, or the signal's number."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1"}
            os.environ.update({name: str(value) for name, value in variables.items()} | {"MASTER_PORT": str(port)})
            _work(rank, folder / f"ended-{size}-{rank}", work)
        children.append(child)
    return [_ended(child, folder / f"ended-{size}-{rank}") for rank, child in enumerate(children)]


def _work(rank: int, ended: Path, work: Callable[[int], object]) -> None:
    try:
        work(rank)
        ended.write_text("")
    except BaseException as error:
        ended.write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)  # nothing of the test's own process may run twice


def _ended(child: int, ended: Path) -> str:
    _, status = os.waitpid(child, 0)
    return str(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else ended.read_text()
