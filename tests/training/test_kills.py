"""Training survives `kill -9`: 20 times here, as often as $KINFOLK_KILLS says elsewhere."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from small_runs import train, weights

from kinfolk.training.runs import Run
from surroundings import RAN, faults

KILLS = faults("KINFOLK_KILLS", 20)


def wait_for_training(lock: Path, child: int) -> None:
    patience = time.monotonic() + 60
    while time.monotonic() < patience and not (lock.exists() and lock.read_text() == str(child)):
        time.sleep(0.001)


def test_killed_at_random_it_ends_with_the_same_weights(tiny_bert: Path, tmp_path: Path) -> None:
    """`kill -9` at random moments; the children are forked, so each starts at once."""
    train(tiny_bert, tmp_path / "whole", evaluations=12)
    draw = random.Random(0)
    kills = 0
    while kills < KILLS:
        child = os.fork()
        if child == 0:
            try:
                train(tiny_bert, tmp_path / "killed", evaluations=12)
            finally:
                os._exit(0)
        if draw.random() < 0.75:  # else it dies while it reads model and data, or soon after
            wait_for_training(tmp_path / "killed" / "lock", child)
        time.sleep(draw.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        for step in (tmp_path / "killed").glob("step-*"):
            Run(tmp_path / "killed").read(step.name)  # never half a checkpoint
        if (tmp_path / "killed" / "model").exists():
            assert weights(tmp_path / "whole") == weights(tmp_path / "killed")
            (tmp_path / "killed").rename(tmp_path / f"done-{kills}")
    train(tiny_bert, tmp_path / "killed", evaluations=12)
    assert weights(tmp_path / "whole") == weights(tmp_path / "killed")
    RAN["kills"] += kills
