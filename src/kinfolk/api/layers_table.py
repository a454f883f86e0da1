"""Which layers of a frozen encoder serve a tagger best: the table of Devlin et al. 2018 (table 7), for any encoder.

The features of all layers are computed once; then each choice of layers is read out by the same head, once per seed.
A figure is the best of the evaluations on the dev set, so all of them are slightly too good in the same way.
"""

from __future__ import annotations

import dataclasses
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from kinfolk.api.experiment import Callbacks, Result
from kinfolk.api.feature_cache import Report, features_of
from kinfolk.api.frozen import MIX, TAG_HEADS, FeatureJob, FrozenHeadConfig
from kinfolk.api.frozen import SETTINGS as USUAL
from kinfolk.api.loaded import Encoder, load_encoder
from kinfolk.api.markdown import table
from kinfolk.data.examples import Sentence
from kinfolk.errors import InputError, check_choice
from kinfolk.tasks.reading import Columns, read_for
from kinfolk.tasks.registry import make_task
from kinfolk.tasks.task import TaskOptions
from kinfolk.training.settings import TrainSettings

ROWS = {  # what is read: its name in the paper's table, and the dev F1 there (BERT base, CoNLL-2003)
    "first": ("first layer (embeddings)", 91.0),
    "last": ("last layer", 94.9),
    "sum_all": ("sum of all layers", 95.5),
    "second_to_last": ("second to last layer", 95.6),
    "sum_last_4": ("sum of last four", 95.9),
    "concat_last_4": ("concat of last four", 96.1),
    MIX: ("learned mix of all", None),
}
LAST_4 = 4
CONFIDENCE = 0.95
SETTINGS = dataclasses.replace(USUAL, epochs=4.0, evaluations=2)


@dataclass(frozen=True)
class LayersRow:
    """One choice of layers: a figure in per cent for each seed."""

    layers: str
    figures: tuple[float, ...]

    @property
    def title(self) -> str:
        return ROWS[self.layers][0]

    @property
    def published(self) -> float | None:
        """Of BERT base, in the paper."""
        return ROWS[self.layers][1]

    @property
    def mean(self) -> float:
        return mean(self.figures)

    @property
    def deviation(self) -> float | None:
        """Over seeds; None for a single one."""
        return stdev(self.figures) if len(self.figures) > 1 else None

    @property
    def margin(self) -> float | None:
        """Half of the 95 % interval of the mean over seeds (Student's t); None for a single seed."""
        if self.deviation is None:
            return None
        from scipy.stats import t

        count = len(self.figures)
        return float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * self.deviation / math.sqrt(count)


@dataclass(frozen=True)
class LayersTable:
    """All choices, and what they were measured on."""

    model: str
    head: str
    metric: str
    train: int  # sentences
    dev: int
    seeds: tuple[int, ...]
    rows: tuple[LayersRow, ...]
    shares: tuple[float, ...]  # of each layer in the learned mix, mean over the seeds

    def markdown(self) -> str:
        """For a page."""
        measured = f"{self.metric}, mean of {len(self.seeds)} seeds"
        header = ("layers", measured, "deviation", "95 % interval", "BERT base, paper")
        rows = [
            (
                row.title,
                f"{row.mean:.1f}",
                "-" if row.deviation is None else f"{row.deviation:.2f}",
                "-" if row.margin is None else f"{row.mean - row.margin:.1f} to {row.mean + row.margin:.1f}",
                "-" if row.published is None else f"{row.published:.1f}",
            )
            for row in self.rows
        ]
        return table(header, rows)

    def as_json(self) -> dict[str, Any]:
        """Plain data, with the numbers that are computed."""
        computed = ("title", "mean", "deviation", "margin", "published")
        rows = [dataclasses.asdict(row) | {name: getattr(row, name) for name in computed} for row in self.rows]
        return dataclasses.asdict(self) | {"rows": rows}


@dataclass(frozen=True)
class TableCallbacks:
    """Told of sequences whose features are done, and of each figure: layers, seed, per cent."""

    features: Report = lambda done: None
    figure: Callable[[str, int, float], None] = lambda layers, seed, figure: None


def layers_table(
    model: str | Path | Encoder,
    train: str | Path | Sequence[Sentence],
    dev: str | Path | Sequence[Sentence],
    share: float = 1.0,
    seeds: int = 3,
    head: str = "bilstm",
    hidden: int = 128,
    label: str | None = None,
    cache: str | Path | None = None,
    device: str = "auto",
    settings: TrainSettings = SETTINGS,
    callbacks: TableCallbacks | None = None,
) -> LayersTable:
    """Measure every choice of layers on tagged sentences, trained on a share of `train`.

    In the folder `cache` features and runs are kept, and the same call goes on from them; without it they are thrown
    away in the end. Choices that a shallow encoder does not have are left out.
    """
    reading = FrozenHeadConfig(MIX, check_choice("head", head, TAG_HEADS), hidden=hidden)
    if seeds < 1 or not 0 < share <= 1:
        raise InputError("seeds must be at least 1, share above 0 and at most 1")
    encoder = model if isinstance(model, Encoder) else load_encoder(model, device)
    learned, held = sample(_read(train, label), share), _read(dev, label)
    if not learned or not held:
        raise InputError("there are no sentences to train on, or none to measure on")
    numbers = tuple(range(settings.seed, settings.seed + seeds))
    with _workplace(cache) as folder:
        measured = _measured(encoder, learned, held, settings, reading, numbers, folder, callbacks or TableCallbacks())
    return LayersTable(encoder.name, head, measured.metric, len(learned), len(held), numbers, *measured.found())


def sample(sentences: Sequence[Sentence], share: float) -> list[Sentence]:
    """A share of the sentences, drawn once and for all, in their order; at least one."""
    count = max(1, round(share * len(sentences)))
    drawn = random.Random("layers table").sample(range(len(sentences)), min(count, len(sentences)))
    return [sentences[number] for number in sorted(drawn)]


def _read(source: str | Path | Sequence[Sentence], label: str | None) -> list[Sentence]:
    if not isinstance(source, str | Path):
        return list(source)
    return read_for("tag", source, Columns(label=label), None).examples


@contextmanager
def _workplace(cache: str | Path | None) -> Iterator[Path]:
    if cache is not None:
        yield Path(cache)
        return
    with tempfile.TemporaryDirectory(prefix="kinfolk-") as folder:
        yield Path(folder)


@dataclass
class _Measured:
    """Figures so far, and the shares of the mix, by layers."""

    metric: str = ""
    figures: dict[str, list[float]] = field(default_factory=dict)
    shares: list[list[float]] = field(default_factory=list)

    def add(self, layers: str, result: Result) -> float:
        """Take in one trained head; its figure."""
        self.metric, figure = next(iter(result.judged.metrics)), 100 * result.judged.selection_score
        self.figures.setdefault(layers, []).append(figure)
        if layers == MIX:
            head: Any = result.model.heads[result.task.head]
            self.shares.append(head.mix.shares.tolist())
        return figure

    def found(self) -> tuple[tuple[LayersRow, ...], tuple[float, ...]]:
        rows = tuple(LayersRow(layers, tuple(found)) for layers, found in self.figures.items())
        return rows, tuple(mean(column) for column in zip(*self.shares, strict=True))


def _measured(
    encoder: Encoder,
    learned: list[Sentence],
    held: list[Sentence],
    settings: TrainSettings,
    reading: FrozenHeadConfig,
    seeds: Sequence[int],
    folder: Path,
    callbacks: TableCallbacks,
) -> _Measured:
    """Compute the features, then train every head on them."""
    depth = encoder.model.config.layers
    task = make_task("tag", learned, TaskOptions(crf=reading.head.endswith("-crf")))
    sides = [task.dataset(encoder.tokenizer, side, encoder.context) for side in (learned, held)]
    items = [item for side in sides for item in side.items]
    kept = range(depth + 1)
    features = features_of(encoder.model, items, kept, folder / "features", reading.kind, callbacks.features)
    measured = _Measured()
    for layers in ROWS:
        if layers.endswith("last_4") and depth < LAST_4:
            continue
        own = dataclasses.replace(reading, layers=layers)
        job = FeatureJob(encoder, task, learned, held, settings, folder / "runs" / layers, own, features)
        for seed in seeds:
            callbacks.figure(layers, seed, measured.add(layers, job.train(seed, True, Callbacks())))
    return measured
