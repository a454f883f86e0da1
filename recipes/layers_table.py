"""Which layers of a frozen encoder serve a tagger best? Table 7 of Devlin et al. 2018, measured anew.

A two-layer BiLSTM is trained on the vectors of the encoder, which stays as it is, on a quarter of CoNLL-2003, once for
each choice of layers and seed. Runs are kept in runs/, so a recipe that was stopped goes on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from common import REPOSITORY, data_file, start, table, write_result
from scipy.stats import spearmanr, t

import kinfolk
from kinfolk.api.frozen import MIX, FrozenHeadConfig
from kinfolk.api.frozen import SETTINGS as FROZEN
from kinfolk.data.examples import Sentence
from kinfolk.data.tagging import read_conll
from kinfolk.files import read_object, write_json
from kinfolk.machine import tune

ROWS = {  # layers: their name in the paper's table, and the dev F1 there (BERT base, CoNLL-2003)
    "first": ("first layer (embeddings)", 91.0),
    "last": ("last layer", 94.9),
    "sum_all": ("sum of all layers", 95.5),
    "second_to_last": ("second to last layer", 95.6),
    "sum_last_4": ("sum of last four", 95.9),
    "concat_last_4": ("concat of last four", 96.1),
    MIX: ("learned mix of all", None),
}
SHARE, SEEDS, HEAD, HIDDEN = 0.25, (0, 1, 2), "bilstm", 128
SETTINGS = replace(FROZEN, epochs=4.0, evaluations=2)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Row:
    """One choice of layers: dev F1 in per cent for each seed."""

    layers: str
    scores: tuple[float, ...]

    @property
    def title(self) -> str:
        return ROWS[self.layers][0]

    @property
    def published(self) -> float | None:
        """Of BERT base, in the paper."""
        return ROWS[self.layers][1]

    @property
    def mean(self) -> float:
        return mean(self.scores)

    @property
    def margin(self) -> float:
        """Half of the 95 % interval of the mean over seeds (Student's t)."""
        count = len(self.scores)
        return float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * stdev(self.scores) / math.sqrt(count)

    def cells(self) -> list[str]:
        interval = f"{self.mean - self.margin:.1f} to {self.mean + self.margin:.1f}"
        published = "-" if self.published is None else f"{self.published:.1f}"
        return [self.title, f"{self.mean:.1f}", f"{stdev(self.scores):.2f}", interval, published]


def sample(sentences: Sequence[Sentence], share: float) -> list[Sentence]:
    """A share of the sentences, always the same, in their order; at least one."""
    count = max(1, round(share * len(sentences)))
    drawn = random.Random("layers table").sample(range(len(sentences)), min(count, len(sentences)))
    return [sentences[index] for index in sorted(drawn)]


def measure(
    model: str | Path,
    train: Sequence[Sentence],
    dev: Sequence[Sentence],
    folder: Path,
    seeds: Sequence[int] = SEEDS,
    head: str = HEAD,
    settings: Any = SETTINGS,
) -> tuple[list[Row], list[float]]:
    """A row for each choice of layers that the encoder has, and the mean share of each layer in the learned mix."""
    encoder = kinfolk.load(model)
    assert isinstance(encoder, kinfolk.Encoder)
    rows, shares = [], []
    for layers in ROWS:
        if layers.endswith("last_4") and encoder.model.config.layers < 4:
            continue
        scores = []
        for seed in seeds:
            run = folder / layers / f"seed-{seed}"
            frozen = FrozenHeadConfig(layers, head, hidden=HIDDEN, cache=folder / "features")
            scores.append(_score(encoder, train, dev, run, frozen, replace(settings, seed=seed)))
            print(f"{layers}, seed {seed}: {scores[-1]:.2f}", flush=True)
            if layers == MIX:
                tagger: Any = kinfolk.load(run)
                shares.append(next(iter(tagger.model.heads.values())).mix.shares.tolist())
        rows.append(Row(layers, tuple(scores)))
    return rows, [mean(column) for column in zip(*shares, strict=True)]


def _score(
    encoder: kinfolk.Encoder,
    train: Sequence[Sentence],
    dev: Sequence[Sentence],
    run: Path,
    frozen: FrozenHeadConfig,
    settings: Any,
) -> float:
    """Dev F1 in per cent of one run, which is trained only if its score is not there yet."""
    path = run / "score.json"
    if not path.exists():
        tuned = kinfolk.finetune(
            encoder, list(train), run, dev=list(dev), task="tag", frozen=frozen, settings=settings, report=False
        )
        write_json(path, {"f1": 100 * tuned.metrics["f1"]})
    return float(read_object(path)["f1"])


def recipe(name: str) -> None:
    tune()
    shown = "all-MiniLM-L6-v2" if name == "demo" else Path(name).resolve().name
    train, dev = (read_conll(data_file(f"conll2003/{part}.txt")).examples for part in ("train", "valid"))
    train = sample(train, SHARE)
    rows, shares = measure(name, train, dev, REPOSITORY / "runs" / f"layers-table-{shown}")
    parts = [
        f"Entity F1 in per cent on the dev set of CoNLL-2003 ({len(dev):,} sentences), trained on {len(train):,} "
        "sentences (a quarter of the training set, always the same one). The encoder is frozen; a BiLSTM of two layers "
        f"with {HIDDEN} units in each direction reads all subwords of a sentence, and the first subword of a word is "
        f"tagged. {SETTINGS.epochs:g} epochs, batches of {SETTINGS.batch_size}, AdamW at "
        f"{SETTINGS.optimization.learning_rate:g}; vectors are scaled to a deviation of one. Seeds "
        f"{', '.join(map(str, SEEDS))}; the interval is Student's t over them. Each score is the best of "
        f"{SETTINGS.evaluations} evaluations on the dev set. Learning rate and batch size were chosen on a part of the "
        "same dev set, with all-MiniLM-L6-v2 and the sum of the last four. The paper's scores are those of Devlin et "
        "al. 2018, table 7: BERT base (cased), the whole training set, sentences read in their documents, sums "
        "weighted.",
        layers_table(rows),
        verdict(rows),
        "What the mix learned: the share of each layer in per cent, mean over the seeds; layer 0 is the embeddings.",
        table(["layer", "share"], [[str(layer), f"{100 * share:.1f}"] for layer, share in enumerate(shares)]),
    ]
    write_result("layers-table", "layers_table.py", name, f"Which layers for tagging ({shown})", parts, ["scipy"])


def layers_table(rows: Sequence[Row]) -> str:
    """The table in Markdown."""
    header = ["layers", f"f1, mean of {len(rows[0].scores)} seeds", "deviation", "95 % interval", "BERT base, paper"]
    return table(header, [row.cells() for row in rows])


def verdict(rows: Sequence[Row]) -> str:
    """Best and worst choice, and whether the order of the paper is kept."""
    worst, *_, best = sorted(rows, key=lambda row: row.mean)
    known = [row for row in rows if row.published is not None]
    order = spearmanr([row.mean for row in known], [row.published for row in known]).statistic
    return (
        f"What it shows: the best choice is the {best.title} ({best.mean:.1f}), the worst the {worst.title} "
        f"({worst.mean:.1f}). The order of the paper {'holds' if order == 1 else 'does not hold'}: "
        f"the rank correlation with it is {order:.2f} (1 is the same order); "
        "differences within the intervals should not be read as an order."
    )


if __name__ == "__main__":
    start(recipe, __doc__.partition("\n")[0])
