"""Pictures of a run: files of the right size that show what they are given, whatever the labels are."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kinfolk.errors import FolderError, KinfolkError
from kinfolk.training import pictures
from kinfolk.training.pictures import MAX_LABELS, confusion_picture, loss_curve, moving_average, short_count
from kinfolk.training.runs import best_entry

WEIRD = [
    "a|b",
    "line\nbreak",
    "$x^{$",
    "\\frac{",
    "日本語",
    "\udcff",
    "",
    "\0",
    "x" * 5000,
    "émoji 😀",
    "# *_`<b>&amp;",
]


def log(steps: int, height: float = 1.0, scores: tuple[float, ...] = (0.5, 0.9, 0.7)) -> list[dict[str, Any]]:
    """A falling loss, evaluated now and then."""
    entries: list[dict[str, Any]] = [
        {"step": step, "loss": height / step, "learning_rate": 1e-4, "epoch": 0} for step in range(1, steps + 1)
    ]
    for index, score in enumerate(scores, 1):
        evaluated = {"metrics": {"accuracy": score, "other": 2.0}, "selection_score": score}
        entries[index * steps // len(scores) - 1] |= evaluated
    return entries


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def test_the_curve_has_its_size_and_shows_the_numbers(tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{name}.png" for name in "abc")
    loss_curve({"seed 0": log(60)}, first)
    loss_curve({"seed 0": log(60)}, second)
    loss_curve({"seed 0": log(60, scores=(0.5, 0.7, 0.9))}, third)
    assert pixels(first).shape == (700, 1200, 3)
    assert first.read_bytes() == second.read_bytes()
    assert (pixels(first) != pixels(third)).any()


@pytest.mark.parametrize(
    "runs",
    [
        {},
        {"seed 0": []},
        {"seed 0": log(1, scores=())},
        {"seed 0": [{"step": 1, "loss": 2.0}]},
        {"seed 0": log(30), "seed 1": log(9)},
        {f"seed {index}": log(12, index + 1.0) for index in range(9)},
        {"seed 0": log(5000)},
    ],
    ids=["no run", "no step", "one step", "no rate", "two seeds", "nine seeds", "many steps"],
)
def test_every_log_can_be_drawn(runs: dict[str, Any], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_curve(runs, tmp_path / "loss.png")
    assert pixels(tmp_path / "loss.png").shape == (700, 1200, 3)


def test_the_best_step_is_the_first_with_the_highest_selection_score() -> None:
    result = best_entry(log(30, scores=(0.5, 0.9, 0.9)))
    assert result is not None
    assert result["step"] == 20
    assert best_entry(log(30, scores=())) is None


def test_smoothing_keeps_a_straight_line_and_the_mean() -> None:
    line = np.linspace(3, 1, 400)
    middle = slice(10, -10)
    assert np.allclose(moving_average(line)[middle], line[middle])
    noise = np.random.default_rng(0).normal(size=400)
    assert moving_average(noise).std() < noise.std() / 3
    assert list(moving_average(np.array([4.0, 2.0]))) == [4.0, 2.0]


def test_the_confusion_matrix_shows_its_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    assert confusion_picture(["no", "yes"], [[8, 2], [1, 9]], first)
    assert confusion_picture(["no", "yes"], [[80, 20], [10, 90]], second)
    assert pixels(first).shape == (430, 530, 3)
    assert (pixels(first) != pixels(second)).any()  # the same shares, other counts


def test_labels_that_no_font_has_are_numbered_and_none_is_a_formula(tmp_path: Path) -> None:
    names = pictures.drawn_labels(WEIRD)
    assert names[:3] == ["a|b", "line break", "$x^{$"]
    assert names[4:8] == ["label 5", "label 6", "label 7", "label 8"]
    assert max(map(len, names)) <= 24
    counts = np.arange(len(WEIRD) ** 2).reshape(len(WEIRD), -1).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert confusion_picture(WEIRD, counts, tmp_path / "confusion.png")


def test_a_matrix_that_cannot_be_read_is_not_drawn(tmp_path: Path) -> None:
    size = MAX_LABELS + 1
    assert not confusion_picture([f"l{index}" for index in range(size)], [[0] * size] * size, tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_large_counts_are_short() -> None:
    result = [short_count(count) for count in (0, 9999, 10_000, 123_456, 1_000_000, 23_456_789)]
    assert result == ["0", "9999", "10k", "123k", "1M", "23M"]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="cannot be written"):
        loss_curve({"seed 0": log(3)}, tmp_path / "file" / "loss.png")


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    for draw in (partial(loss_curve, {}, tmp_path / "x.png"), partial(pictures.drawn_labels, ["a"])):
        with pytest.raises(KinfolkError, match=r"matplotlib .*\[train\]"):
            draw()
