"""Several processes that train one model: how they agree, and weights that are sharded among them (FSDP).

Process 0 is the main one: it alone touches the folder of the run, and where processes could differ (a clock, the last
bit of a metric) all follow it. A process that dies closes its connections, which the others notice at once; one that
only falls silent is noticed by the time-out. While process 0 works alone, which may take long, the others poll
torchrun's store for its message. Messages are numbers, JSON and tensors. A sharded tensor is torch's DTensor.
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
from importlib import import_module
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d

from kinfolk.checkpoints.weights import DTYPE_NAMES, DTYPES
from kinfolk.errors import FolderError, KinfolkError, TrainingError

SILENCE = timedelta(minutes=5)  # where all should be at the same point; a process that takes longer is lost
PATIENCE = timedelta(days=1)  # for what only process 0 does
POLL_SECONDS = 0.02
TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
T = TypeVar("T")


@dataclass
class World:
    """This process among those that train together; every method must be called by all of them, in the same order."""

    rank: int = 0
    size: int = 1
    group: Any = None  # torch's, for messages between the processors
    store: Any = None  # torchrun's, where process 0 leaves its messages
    message_ids: Iterator[int] = field(default_factory=count)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def all_reduce(self, values: Sequence[float], operation: Any = dist.ReduceOp.SUM) -> list[float]:
        """For each index the sum (or maximum) of all processes' values, in float64."""
        reduced = torch.tensor(values, dtype=torch.float64)
        if self.size > 1:
            with contact():
                dist.all_reduce(reduced, operation, self.group)
        return reduced.tolist()

    def broadcast(self, content: Any) -> Any:
        """What process 0 gives, as JSON knows it; what the others give is ignored."""
        if self.size == 1:
            return content
        name, end = f"message-{next(self.message_ids)}", time.monotonic() + PATIENCE.total_seconds()
        with contact():
            if self.is_main:
                self.store.set(name, json.dumps(content))
            while not self.store.check([name]):
                if time.monotonic() > end:
                    raise TrainingError(f"process 0 was silent for {PATIENCE}")
                time.sleep(POLL_SECONDS)
            received = json.loads(self.store.get(name))
            self.all_reduce([0])  # all have read it
            if self.is_main:
                self.store.delete_key(name)
        return received

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Process 0's tensors, by name; what the others give is ignored."""
        if self.size == 1:
            return dict(tensors)
        listed = [(name, DTYPE_NAMES[tensor.dtype], list(tensor.shape)) for name, tensor in tensors.items()]
        received = {}
        for name, dtype, shape in self.broadcast(listed):
            tensor = torch.empty(shape, dtype=DTYPES[dtype])
            if self.is_main:
                tensor.copy_(tensors[name])
            with contact():
                dist.broadcast(tensor, 0, self.group)
            received[name] = tensor
        return received

    def on_main(self, action: Callable[[], T]) -> T | None:
        """Run something on process 0 while the others wait; its result there, and None on the others. An error there is
        an error everywhere, so that nobody waits for a process that has given up."""
        if self.size == 1:
            return action()
        if not self.is_main:
            message = self.broadcast(None)
            if message is not None:
                raise TrainingError(f"process 0 gave up: {message}")
            return None
        try:
            result = action()
        except KinfolkError as error:
            self.broadcast(str(error))
            raise
        self.broadcast(None)
        return result


_joined: World | None = None


def world() -> World:
    """This process among those that torchrun started, joined to them at the first call; alone without torchrun."""
    global _joined
    several = all(name in os.environ for name in TORCHRUN_VARIABLES) and int(os.environ["WORLD_SIZE"]) > 1
    if _joined is not None or not (dist.is_initialized() or several):
        return _joined or World()
    if not dist.is_initialized():
        backend = "gloo"
        if torch.cuda.is_available():
            backend = "cpu:gloo,cuda:nccl"
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        # Its functions' defaults hold the group that exists when it is loaded (an optimizer loads it), and with the
        # group its threads: so it is loaded before.
        import_module("torch.distributed.nn.functional")
        with contact():
            dist.init_process_group(backend, timeout=SILENCE)
        atexit.register(_leave)
    with contact():
        group = dist.new_group(backend="gloo", timeout=SILENCE)
    store = distributed_c10d.PrefixStore("kinfolk", distributed_c10d._get_default_store())
    _joined = World(dist.get_rank(), dist.get_world_size(), group, store)
    return _joined


def _leave() -> None:
    """Ends the threads of the groups while the interpreter still runs: one that asked for it later would abort us. They
    end with the last reference to their group."""
    if _joined is not None:
        _joined.group = _joined.store = None
    dist.destroy_process_group()


@contextmanager
def contact() -> Iterator[None]:
    """A broken line to another process becomes a TrainingError; other faults stay what they are."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if not isinstance(error, dist.DistError) and not any(name in reason for name in ("gloo", "NCCL")):
            raise
        detail = reason.partition("] ")[2] if reason.startswith("[") else reason  # without the line of torch's source
        gone = f"another process of this run is gone or silent ({detail[:120]}); its own message says why"
        raise TrainingError(f"{gone}; the same command resumes from the last checkpoint") from None


def shard(loss: nn.Module, device: torch.device, processes: int) -> None:
    """Shard all parameters of `loss` in place (FSDP); a layer is gathered only while it computes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (processes,))
    lists = [module for module in loss.modules() if isinstance(module, nn.ModuleList)]
    inner_first = [layer for layers in reversed(lists) for layer in layers]  # as fully_shard wants it
    for module in (*inner_first, loss):
        fully_shard(module, mesh=mesh)


def gather(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor, on every process; all of them must call it. A whole tensor stays as it is."""
    full: Tensor = getattr(tensor, "full_tensor", lambda: tensor)()
    return full.detach()


def shard_like(weight: Any, tensor: Tensor) -> Tensor:
    """A copy of a whole tensor on the device of the weight, and sharded as the weight is."""
    copied: Tensor = tensor.to(weight.device, copy=True)
    if not hasattr(weight, "full_tensor"):
        return copied
    from torch.distributed.tensor import distribute_tensor

    # Every process has the whole tensor, so each takes its own rows and nothing is sent.
    return distribute_tensor(copied, weight.device_mesh, weight.placements, src_data_rank=None)


@torch.no_grad()
def load_weights(model: Any, tensors: Mapping[str, Tensor]) -> None:
    for name, weight in model.named_parameters():
        tensor = tensors[name]
        if hasattr(tensor, "full_tensor") != hasattr(weight, "full_tensor"):
            tensor = shard_like(weight, gather(tensor))
        if tensor.shape != weight.shape:
            raise FolderError(f"{name}: the checkpoint has shape {list(tensor.shape)}; choose a new folder")
        weight.copy_(tensor)
