"""A run folder under faults: damage, two processes, other data."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kinfolk.errors import FolderError
from kinfolk.files import read_object, write_json
from kinfolk.training.runs import Run, Snapshot
from surroundings import RAN, faults

FLIPS = faults("KINFOLK_FLIPS", 50)


def snapshot(step: int) -> Snapshot:
    torch.manual_seed(step)
    return Snapshot(step, {"weights": {"a": torch.randn(5, 3)}}, {"total": 9, "best": None, "without_improvement": 0})


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    run = Run.open(tmp_path, {"seed": 1})
    run.save(snapshot(3))
    result, notes = run.newest()
    assert result is not None
    assert result.step == 3
    assert notes == []
    assert torch.equal(result.tensors["weights"]["a"], snapshot(3).tensors["weights"]["a"])
    assert result.counters == {"total": 9, "best": None, "without_improvement": 0}


def test_the_two_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    run = Run.open(tmp_path, {})
    for step in range(1, 7):
        run.save(snapshot(step), best=step == 2)
    assert run.steps() == [2, 5, 6]
    best, notes = run.best()
    assert best is not None
    assert best.step == 2
    assert notes == []


def test_a_flipped_byte_is_noticed_and_the_checkpoint_before_it_used(tmp_path: Path) -> None:
    run = Run.open(tmp_path, {})
    run.save(snapshot(1))
    run.save(snapshot(2))
    draw = random.Random(0)
    files = sorted((tmp_path / "step-2").iterdir())
    for _ in range(FLIPS):
        file = draw.choice(files)
        content = bytearray(file.read_bytes())
        index = draw.randrange(len(content))
        content[index] ^= 1 << draw.randrange(8)
        good = file.read_bytes()
        file.write_bytes(content)
        result, notes = run.newest()
        assert result is not None
        assert result.step == 1, f"{file.name} byte {index}"
        assert "step-2" in notes[0]
        file.write_bytes(good)
    RAN["flipped bits"] += FLIPS


def test_a_second_process_is_refused_and_the_first_named(tmp_path: Path) -> None:
    first = Run.open(tmp_path, {})
    with pytest.raises(FolderError, match=rf"process {os.getpid()}\b"):
        Run.open(tmp_path, {})
    first.close()
    Run.open(tmp_path, {}).close()


@pytest.mark.parametrize("format", [None, 1, "2"])
def test_a_run_of_another_version_is_refused(format: object, tmp_path: Path) -> None:
    Run.open(tmp_path, {"seed": 1}).close()
    stored = read_object(tmp_path / "run.json")
    write_json(tmp_path / "run.json", stored | {"format": format} if format else {"seed": 1})
    with pytest.raises(FolderError, match=r"run\.json: .*another version"):
        Run.open(tmp_path, {"seed": 1})


def test_a_lock_of_a_dead_process_does_not_block(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        Run.open(tmp_path, {})
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "lock").read_text() == str(child)
    Run.open(tmp_path, {}).close()


def test_other_settings_are_refused_and_the_difference_named(tmp_path: Path) -> None:
    settings = {
        "settings": {"learning_rate": 0.1, "inner": {"betas": (0.9, 0.99), "max_grad_norm": None}},
        "data": "abc",
    }
    Run.open(tmp_path, settings).close()
    Run.open(tmp_path, settings).close()
    other = {"settings": {"learning_rate": 0.1, "inner": {"betas": (0.9, 0.98), "max_grad_norm": 1.0}}, "data": "abd"}
    expected = r"other examples, settings.inner.betas was \[0.9, 0.99\], is \[0.9, 0.98\], settings.inner"
    with pytest.raises(FolderError, match=expected):
        Run.open(tmp_path, other)


def test_a_damaged_best_checkpoint_gives_way_to_the_next_best(tmp_path: Path) -> None:
    run = Run.open(tmp_path, {})
    for step, selection_score in ((1, 0.9), (2, 0.7), (3, 0.8)):
        run.save(replace(snapshot(step), counters={"selection_score": selection_score}), best=step == 1)
    (tmp_path / "step-1" / "weights.safetensors").write_bytes(b"broken")
    best, notes = run.best()
    assert best is not None
    assert best.step == 3
    assert "step-1" in notes[0]
    assert notes[0].endswith("using step-3")


def test_a_log_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    run = Run.open(tmp_path, {})
    run.log({"step": 1, "loss": 2.0})
    run.log({"step": 2, "loss": 1.0})
    with (tmp_path / "log.jsonl").open("a") as stream:
        stream.write('{"step": 3, "lo')
    assert [entry["step"] for entry in run.entries()] == [1, 2]
    run.rewind(1, None)
    assert [entry["step"] for entry in run.entries()] == [1]


def test_a_damaged_checkpoint_is_written_anew_when_the_run_comes_back_to_it(tmp_path: Path) -> None:
    run = Run.open(tmp_path, {})
    run.save(snapshot(1), best=True)
    run.save(snapshot(2), best=True)
    (tmp_path / "step-2" / "weights.safetensors").write_bytes(b"broken")
    result, _ = run.newest()
    assert result is not None
    run.rewind(result.step, best=1)
    assert run.steps() == [1]
    run.save(snapshot(2), best=True)
    best, _ = run.best()
    assert best is not None
    assert best.step == 2


def test_leftovers_of_a_killed_write_are_swept_away(tmp_path: Path) -> None:
    (tmp_path / ".step-3.abcd.part").mkdir()
    Run.open(tmp_path, {}).close()
    assert not list(tmp_path.glob(".step-*"))
