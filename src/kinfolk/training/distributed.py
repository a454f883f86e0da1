"""Several processes that train one model: who is here, and how they agree.

torchrun starts them and tells each its number through the environment; torch's process groups carry what they say.
Process 0 leads: it alone touches the folder of the run, and where processes could differ (a clock, the last bit of a
metric) all do as it says. A process that dies closes its connections, which the others notice at once; one that only
falls silent is noticed by the time-out. While process 0 does what only it does, which may take long, the others ask the
store of torchrun for its word. Nothing is pickled: what is said is numbers, JSON and tensors.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from kinfolk.checkpoints.weights import DTYPE_NAMES, DTYPES
from kinfolk.errors import KinfolkError, TrainingError

SILENCE = timedelta(minutes=5)  # where all should be at the same point; a process that takes longer is lost
PATIENCE = timedelta(days=1)  # for what only process 0 does
SECONDS_BETWEEN_QUESTIONS = 0.02
TOLD_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among those that train together; every method must be called by all of them, in the same order."""

    rank: int = 0
    size: int = 1
    group: Any = None  # of torch's, for the talk on the processors
    store: Any = None  # of torchrun's, where process 0 leaves its word
    numbers: Iterator[int] = field(default_factory=count)  # of its words

    @property
    def is_main(self) -> bool:
        """Is this the process that writes and reports?"""
        return self.rank == 0

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """For each index the sum of all processes' values, in float64."""
        return self._reduced(values, dist.ReduceOp.SUM) if self.size > 1 else list(values)

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        """For each index the largest of all processes' values."""
        return self._reduced(values, dist.ReduceOp.MAX) if self.size > 1 else list(values)

    def _reduced(self, values: Sequence[float], how: Any) -> list[float]:
        held = torch.tensor(values, dtype=torch.float64)
        with contact():
            dist.all_reduce(held, how, self.group)
        found: list[float] = held.tolist()
        return found

    def broadcast(self, content: Any) -> Any:
        """What process 0 gives, as JSON knows it; what the others give is ignored."""
        if self.size == 1:
            return content
        name, end = f"word-{next(self.numbers)}", time.monotonic() + PATIENCE.total_seconds()
        with contact():
            if self.is_main:
                self.store.set(name, json.dumps(content))
            while not self.store.check([name]):
                if time.monotonic() > end:
                    raise TrainingError(f"process 0 said nothing for {PATIENCE}")
                time.sleep(SECONDS_BETWEEN_QUESTIONS)
            found = json.loads(self.store.get(name))
            self.all_reduce_max([0])  # all have read it
            if self.is_main:
                self.store.delete_key(name)
        return found

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Process 0's tensors, by name; what the others give is ignored."""
        if self.size == 1:
            return dict(tensors)
        listed = [(name, DTYPE_NAMES[tensor.dtype], list(tensor.shape)) for name, tensor in tensors.items()]
        found = {}
        for name, dtype, shape in self.broadcast(listed):
            tensor = torch.empty(shape, dtype=DTYPES[dtype])
            if self.is_main:
                tensor.copy_(tensors[name])
            with contact():
                dist.broadcast(tensor, 0, self.group)
            found[name] = tensor
        return found

    def on_main(self, action: Callable[[], T]) -> T | None:
        """Have process 0 do something while the others wait; what it returns, and None for them.

        What goes wrong there goes wrong everywhere, so that nobody waits for a process that has given up.
        """
        if self.size == 1:
            return action()
        found: T | None = None
        trouble: KinfolkError | None = None
        if self.is_main:
            try:
                found = action()
            except KinfolkError as error:
                trouble = error
        told = self.broadcast(None if trouble is None else str(trouble))
        if trouble is not None:
            raise trouble
        if told is not None:
            raise TrainingError(f"process 0 gave up: {told}")
        return found


_joined: World | None = None


def world() -> World:
    """This process among those that torchrun started, joined to them at the first call; alone without torchrun."""
    global _joined
    if _joined is None and (dist.is_initialized() or _several()):
        _joined = _join()
    return _joined or World()


def _several() -> bool:
    return all(name in os.environ for name in TOLD_BY_TORCHRUN) and int(os.environ["WORLD_SIZE"]) > 1


def _join() -> World:
    if not dist.is_initialized():
        backend = "gloo"
        if torch.cuda.is_available():
            backend = "cpu:gloo,cuda:nccl"
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        with contact():
            dist.init_process_group(backend, timeout=SILENCE)
        atexit.register(dist.destroy_process_group)
    with contact():
        group = dist.new_group(backend="gloo", timeout=SILENCE)
    store = distributed_c10d.PrefixStore("kinfolk", distributed_c10d._get_default_store())
    return World(dist.get_rank(), dist.get_world_size(), group, store)


@contextmanager
def contact() -> Iterator[None]:
    """A broken line to another process becomes a TrainingError; other faults stay what they are."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if not isinstance(error, dist.DistError) and not any(name in reason for name in ("gloo", "NCCL")):
            raise
        told = reason.partition("] ")[2] if reason.startswith("[") else reason  # without the place in torch's source
        raise TrainingError(
            f"another process of this run is gone or silent ({told[:120]}); its own message says why; "
            "the same command goes on from the last checkpoint"
        ) from None
