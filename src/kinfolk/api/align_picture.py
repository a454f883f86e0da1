"""The alignment picture: a row for each target word, a column for each source word, the darker the more attention.

Models with several layers get a panel for each (the mean over their heads), or one panel for a chosen layer or head.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kinfolk.api.align import Alignment
from kinfolk.errors import InputError
from kinfolk.training.pictures import DOTS_PER_INCH, drawn_labels, write_figure

# matplotlib after pictures.py, which raises its absence in one line.
from matplotlib.axes import Axes  # isort: skip
from matplotlib.figure import Figure  # isort: skip

ACROSS = 3  # panels side by side
MAX_WORDS = 80  # of a side; more could not be read
CELL = 0.32  # inches


def alignment_picture(
    alignment: Alignment, path: str | Path, layer: int | None = None, head: int | None = None
) -> Path:
    """Draw an alignment to a .png file; `layer` and `head` are counted from 1."""
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise InputError(f"{path}: pictures are written to a file that ends in .png")
    for side, words in (("source", alignment.source), ("target", alignment.target)):
        if len(words) > MAX_WORDS:
            raise InputError(f"the {side} has {len(words)} words; a picture of more than {MAX_WORDS} cannot be read")
    panels = _panels(alignment, layer, head)
    across = min(len(panels), ACROSS)
    down = -(-len(panels) // across)
    source, target = drawn_labels(alignment.source, "word"), drawn_labels(alignment.target, "word")
    size = _panel_size(source, target)
    figure = Figure(figsize=(across * size[0] + 0.8, down * size[1]), dpi=DOTS_PER_INCH, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).flatten()
    shades: Any = None
    for axes, (title, weights) in zip(grid, panels.items(), strict=False):
        shades = axes.imshow(weights, cmap="Greys", vmin=0, vmax=1)
        _name_axes(axes, title, source, target)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.colorbar(shades, ax=list(grid), label="attention weight", shrink=0.8, aspect=30)
    write_figure(figure, path)
    return path


def _panels(alignment: Alignment, layer: int | None, head: int | None) -> dict[str, np.ndarray]:
    """Titles and matrices."""
    if layer is None and head is None and alignment.layers > 1:
        return {f"layer {index}": alignment.matrix(index) for index in range(1, alignment.layers + 1)}
    title = "" if alignment.layers == 1 else f"layer {layer}"
    title += "" if head is None else f"{', ' if title else ''}head {head}"
    return {title: alignment.matrix(layer, head)}


def _panel_size(source: list[str], target: list[str]) -> tuple[float, float]:
    """Inches: room for the cells and for the words beside them."""
    letters = 0.085
    width = CELL * len(source) + letters * max(map(len, target)) + 0.8
    height = CELL * len(target) + 0.7 * letters * max(map(len, source)) + 0.8
    return max(width, 3.0), max(height, 2.6)


def _name_axes(axes: Axes, title: str, source: list[str], target: list[str]) -> None:
    if title:
        axes.set_title(title, fontsize=12)
    turn: dict[str, Any] = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
    # A dollar sign in a word is no formula.
    axes.set_xticks(range(len(source)), source, fontsize=10, parse_math=False, **turn)
    axes.set_yticks(range(len(target)), target, fontsize=10, parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    # Faint lines between the cells, so that a row can be followed.
    axes.set_xticks(np.arange(len(source) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(target) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="#dddddd", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
