"""Which layers of a frozen encoder serve the search for names best? The table of the BERT paper, measured anew.

A two-layer BiLSTM reads the vectors of the encoder, which is not trained, on a quarter of CoNLL-2003. Features and runs
are kept in runs/, so a recipe that was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from common import REPOSITORY, data_file, start, table, write_result
from scipy.stats import spearmanr

from kinfolk.api.layers_table import SETTINGS, LayersTable, TableCallbacks, layers_table
from kinfolk.machine import tune

SHARE, SEEDS, HEAD, HIDDEN = 0.25, 3, "bilstm", 128


def recipe(name: str) -> None:
    tune()
    shown = "all-MiniLM-L6-v2" if name == "demo" else Path(name).resolve().name
    found = layers_table(
        name,
        data_file("conll2003/train.txt"),
        data_file("conll2003/valid.txt"),
        share=SHARE,
        seeds=SEEDS,
        head=HEAD,
        hidden=HIDDEN,
        cache=REPOSITORY / "runs" / f"layers-table-{shown}",
        callbacks=TableCallbacks(
            figure=lambda layers, seed, figure: print(f"{layers}, seed {seed}: {figure:.2f}", flush=True)
        ),
    )
    write(name, shown, found)


def write(name: str, shown: str, found: LayersTable) -> None:
    """docs/results/layers-table.md."""
    settings = SETTINGS
    shares = [[str(layer), f"{100 * share:.1f}"] for layer, share in enumerate(found.shares)]
    parts = [
        f"Entity F1 in per cent on the dev set of CoNLL-2003 ({found.dev:,} sentences), trained on {found.train:,} "
        "sentences (a quarter of the training set, always the same one). The encoder is frozen; a BiLSTM of two layers "
        f"with {HIDDEN} units in each direction reads all pieces of a sentence, and the first piece of a word is "
        f"tagged. {settings.epochs:g} epochs, batches of {settings.batch_size}, AdamW at {settings.optimizer.rate:g}; "
        f"vectors are scaled to a deviation of one. Seeds {', '.join(map(str, found.seeds))}; the interval is "
        f"Student's t over them. Each figure is the best of {settings.evaluations} evaluations on the dev set. Rate "
        "and batch size were chosen on a part of the same dev set, with all-MiniLM-L6-v2 and the sum of the last four. "
        "The paper's figures are those of Devlin et al. 2018, table 7: BERT base (cased), the whole training set, "
        "sentences read in their documents, sums weighted.",
        found.markdown(),
        verdict(found),
        "What the mix learned: the share of each layer in per cent, mean over the seeds; layer 0 is the embeddings.",
        table(["layer", "share"], shares),
    ]
    write_result("layers-table", "layers_table.py", name, f"Which layers for tagging ({shown})", parts, ["scipy"])


def verdict(found: LayersTable) -> str:
    """Best and worst choice, and whether the order of the paper is kept."""
    ordered = sorted(found.rows, key=lambda row: row.mean)
    worst, best = ordered[0], ordered[-1]
    known = [row for row in found.rows if row.published is not None]
    order = spearmanr([row.mean for row in known], [row.published for row in known]).statistic
    return (
        f"What it shows: the best choice is the {best.title} ({best.mean:.1f}), the worst the {worst.title} "
        f"({worst.mean:.1f}). The order of the paper {'holds' if order == 1 else 'does not hold'}: "
        f"the rank correlation with it is {order:.2f} (1 is the same order); "
        "differences within the intervals should not be read as an order."
    )


if __name__ == "__main__":
    start(recipe, __doc__.partition("\n")[0])
