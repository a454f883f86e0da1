"""TensorBoard's files for a run: loss, rate and metrics of each step, as log.jsonl has them.

A resumed run writes a second file that begins where the run goes on; TensorBoard drops what the first one says of
later steps, which are computed again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from kinfolk.errors import missing_extra
from kinfolk.files import writing
from kinfolk.training.trainer import Progress

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise missing_extra("TensorBoard's files need tensorboard", error, "tensorboard") from None


class Board:
    """The scalars of one or `several` seeds under `folder`; with several, each has a folder of its own there."""

    def __init__(self, folder: Path, several: bool = False):
        self.folder, self.several = folder, several
        self.writers: dict[int, SummaryWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for writer in self.writers.values():
            with writing(self.folder):
                writer.close()

    def step(self, seed: int, progress: Progress) -> None:
        """Write down what a step came to."""
        scalars = {"loss": progress.loss, "learning_rate": progress.learning_rate}
        scalars |= {f"loss/{name}": value for name, value in (progress.losses or {}).items()}
        scalars |= {f"dev/{name}": value for name, value in (progress.metrics or {}).items()}
        with writing(self.folder):
            if seed not in self.writers:
                folder = self.folder / f"seed-{seed}" if self.several else self.folder
                self.writers[seed] = SummaryWriter(str(folder), purge_step=progress.step)
            for name, value in scalars.items():
                self.writers[seed].add_scalar(name, value, progress.step)
