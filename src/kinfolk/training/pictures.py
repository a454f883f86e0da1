"""Pictures: curves of a training run, its confusion matrix, and the attention of a translator.

matplotlib is an extra, loaded when something is drawn, and used through its objects: no window, no state shared with
the user's own plots. Colours are Okabe and Ito's, which the colour-blind tell apart; metrics differ from losses by
their markers as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kinfolk.errors import InputError, missing_extra
from kinfolk.files import atomic_write
from kinfolk.training.runs import Entries, best_entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 100
CURVE_SIZE = (12.0, 7.0)  # inches: 1200 x 700 dots
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MAX_POINTS = 2000  # of a line; the picture has fewer dots than that
MAX_LABELS = 30  # of a confusion matrix that can be read
MAX_LABEL_LENGTH = 24
ACROSS = 3  # panels of an alignment side by side
MAX_WORDS = 80  # of a side; more could not be read
CELL, LETTER = 0.32, 0.085  # inches


def _matplotlib(part: str = "") -> Any:
    try:
        return import_module(f"matplotlib{part}")
    except ImportError as error:
        raise missing_extra("pictures need matplotlib", error) from None


def new_figure(width: float, height: float) -> Figure:
    """An empty one; the sizes are in inches."""
    figure: Figure = _matplotlib(".figure").Figure((width, height), DOTS_PER_INCH, layout="constrained")
    return figure


def loss_curve(runs: Mapping[str, Entries], path: Path) -> None:
    """Loss (each step pale, smoothed strong), the metric that decides with its best step, and the learning rate. `runs`
    gives each run's name its log; a run with nothing logged is left out."""
    runs = {name: entries for name, entries in runs.items() if entries}
    rated = any("learning_rate" in entry for entries in runs.values() for entry in entries)
    figure = new_figure(*CURVE_SIZE)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(6, 1)) if rated else (figure.subplots(), None)
    right = upper.twinx()
    metric = None
    many = len(runs) > len(COLOURS)
    colours = _matplotlib().colormaps["viridis"](np.linspace(0, 0.9, len(runs))) if many else COLOURS
    for (name, entries), colour in zip(runs.items(), colours, strict=False):
        label, best = name, best_entry(entries)
        if best is not None:
            # One run: the metric has a colour of its own. Several: the colour tells the run.
            metric = _draw_metric(right, entries, best, colour if len(runs) > 1 else COLOURS[1])
            label = f"{name}: best {metric.replace('_', ' ')} {best['metrics'][metric]:.4g} at step {best['step']:,}"
        steps, losses = _column(entries, "loss")
        upper.plot(steps, losses, color=colour, alpha=0.25, linewidth=0.8)
        upper.plot(steps, moving_average(losses), color=colour, linewidth=2, label=label)
        if lower is not None:
            lower.plot(*_column(entries, "learning_rate"), color=colour, linewidth=1.2)
    _name_axes(upper, right, lower, metric)
    if len(runs) == 1:
        upper.yaxis.label.set_color(COLOURS[0])
        right.yaxis.label.set_color(COLOURS[1])
    if runs:  # below the picture, where no line runs
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=11)
    write_figure(figure, path)


def _draw_metric(axes: Axes, entries: Entries, best: Mapping[str, Any], colour: Any) -> str:
    name = str(next(iter(best["metrics"])))
    points = [(entry["step"], entry["metrics"][name]) for entry in entries if entry.get("metrics")]
    axes.plot(*zip(*points, strict=True), color=colour, linestyle="--", marker="o", markersize=5)
    spot = [best["step"]], [best["metrics"][name]]
    axes.plot(*spot, color=colour, linestyle="", marker="*", markersize=18, markeredgecolor="white")
    return name


def _name_axes(upper: Axes, right: Axes, lower: Axes | None, metric: str | None) -> None:
    bottom = lower or upper
    bottom.set_xlabel("step", fontsize=12)
    bottom.xaxis.set_major_locator(_matplotlib(".ticker").MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    bottom.xaxis.set_major_formatter("{x:,.0f}")
    upper.set_ylabel("loss on the training batches (solid)", fontsize=12)
    upper.margins(x=0.01)
    right.tick_params(labelsize=11)
    if metric is None:
        right.set_axis_off()
    else:
        right.set_ylabel(f"{metric.replace('_', ' ')} on the dev set (dashed, the best starred)", fontsize=12)
        right.margins(x=0.01, y=0.1)
    if lower is not None:
        lower.set_ylabel("learning rate", fontsize=12)
        lower.margins(x=0.01)
        lower.set_ylim(bottom=0)
        lower.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for axes in {upper, bottom}:
        axes.tick_params(labelsize=11)
        axes.grid(alpha=0.25)


def _column(entries: Entries, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values; where there are more than the picture can show, the means of neighbours."""
    rows = [(entry["step"], entry[name]) for entry in entries if name in entry]
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    if len(table) > MAX_POINTS:
        table = np.array([part.mean(0) for part in np.array_split(table, MAX_POINTS)])
    return table[:, 0], table[:, 1]


def moving_average(values: np.ndarray) -> np.ndarray:
    """The mean of each value and its neighbours on both sides, a twentieth of the run together; fewer at the ends."""
    reach, indices = len(values) // 40, np.arange(len(values))
    near = np.clip(np.minimum(indices, indices[::-1]), reach // 2, reach)
    first, last = np.maximum(indices - near, 0), np.minimum(indices + near + 1, len(values))
    sums = np.concatenate([[0.0], values.cumsum()])
    return np.asarray((sums[last] - sums[first]) / (last - first))


def confusion_picture(labels: Sequence[str], matrix: Sequence[Sequence[int]], path: Path) -> bool:
    """The confusion matrix: shades are shares of a row, numbers are counts. With too many labels nothing is drawn."""
    size = len(labels)
    if not 0 < size <= MAX_LABELS:
        return False
    counts = np.array(matrix, dtype=np.int64)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure = new_figure(4.5 + 0.4 * size, 3.5 + 0.4 * size)
    axes = figure.subplots()
    shades = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = drawn_labels(labels)
    turn: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if size > 2 else {}
    # A dollar sign in a label is no formula.
    axes.set_xticks(range(size), names, parse_math=False, **turn)
    axes.set_yticks(range(size), names, parse_math=False)
    axes.set_xlabel("predicted label", fontsize=12)
    axes.set_ylabel("true label", fontsize=12)
    letters = 12 if size <= 4 else 10 if counts.max() < 1000 else 8
    for (row, column), count in np.ndenumerate(counts):
        if count or size <= 12:  # in a large table zeros hide the rest
            colour = "white" if shares[row, column] > 0.55 else "black" if count else "#999999"
            axes.text(column, row, short_count(int(count)), ha="center", va="center", color=colour, fontsize=letters)
    figure.colorbar(shades, ax=axes, label="share of the row", shrink=0.7, aspect=30)
    write_figure(figure, path)
    return True


def alignment_picture(alignment: Any, path: str | Path, layer: int | None = None, head: int | None = None) -> Path:
    """Draw an alignment (api/align.py) to a .png file: a row for each target word, the darker the more attention.

    Models with several layers get a panel for each (the mean over their heads), or one for a chosen layer or head, both
    counted from 1.
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise InputError(f"{path}: pictures are written to a file that ends in .png")
    for side, words in (("source", alignment.source), ("target", alignment.target)):
        if len(words) > MAX_WORDS:
            raise InputError(f"the {side} has {len(words)} words; a picture of more than {MAX_WORDS} cannot be read")
    layers = len(alignment.weights)
    if layer is None and head is None and layers > 1:
        panels = {f"layer {index}": alignment.matrix(index) for index in range(1, layers + 1)}
    else:
        parts = [f"layer {layer}"] * (layers > 1) + [f"head {head}"] * (head is not None)
        panels = {", ".join(parts): alignment.matrix(layer, head)}
    across = min(len(panels), ACROSS)
    down = -(-len(panels) // across)
    source, target = drawn_labels(alignment.source, "word"), drawn_labels(alignment.target, "word")
    # Inches: room for the cells and for the words beside them.
    width = CELL * len(source) + LETTER * max(map(len, target)) + 0.8
    height = CELL * len(target) + 0.7 * LETTER * max(map(len, source)) + 0.8
    figure = new_figure(across * max(width, 3.0) + 0.8, down * max(height, 2.6))
    grid = figure.subplots(down, across, squeeze=False).flatten()
    shades: Any = None
    for axes, (title, weights) in zip(grid, panels.items(), strict=False):
        shades = axes.imshow(weights, cmap="Greys", vmin=0, vmax=1)
        axes.set_title(title, fontsize=12)
        # A dollar sign in a word is no formula.
        turned = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(source)), source, fontsize=10, parse_math=False, **turned)
        axes.set_yticks(range(len(target)), target, fontsize=10, parse_math=False)
        axes.xaxis.tick_top()
        # Faint lines between the cells, so that a row can be followed.
        axes.set_xticks(np.arange(len(source) - 1) + 0.5, minor=True)
        axes.set_yticks(np.arange(len(target) - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="#dddddd", linewidth=0.6)
        axes.tick_params(which="both", length=0)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.colorbar(shades, ax=list(grid), label="attention weight", shrink=0.8, aspect=30)
    write_figure(figure, path)
    return path


def drawn_labels(labels: Sequence[str], what: str = "label") -> list[str]:
    """Labels on one short line each; one that the font cannot draw is shown by its index, from 1."""
    fonts = _matplotlib(".font_manager")
    known = fonts.get_font(fonts.findfont("DejaVu Sans")).get_charmap()
    lines = [" ".join(label.split()) for label in labels]
    short = [line if len(line) <= MAX_LABEL_LENGTH else f"{line[:14]}…{line[-8:]}" for line in lines]
    drawable = [line != "" and all(ord(letter) in known for letter in line) for line in short]
    return [line if drawable[index] else f"{what} {index + 1}" for index, line in enumerate(short)]


def short_count(count: int) -> str:
    """Four characters at most: 9999, 12k, 3M."""
    unit, divisor = ("M", 10**6) if count >= 10**6 else ("k", 10**3) if count >= 10**4 else ("", 1)
    return f"{count // divisor}{unit}"


def write_figure(figure: Figure, path: Path) -> None:
    canvas = _matplotlib(".backends.backend_agg").FigureCanvasAgg(figure)
    with atomic_write(path) as stream:
        canvas.print_png(stream, metadata={"Software": None})
