"""Feature-based use: the encoder stays as it is, its vectors are computed once, and a small head learns on them.

    linear, bilstm           of texts and tags: trained by the trainer, with any choice of layers or a learned mix
    linear-crf, bilstm-crf   of tags: the same below a random field
    logistic                 of classes: the linear head again, but solved by scikit-learn. The problem is convex, so
                             there is one answer and neither rate, epochs nor seed; a learned mix is no part of it

The cached vectors may be rounded to float16; the saved model computes its own in float32.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinfolk.api.feature_cache import KINDS
from kinfolk.api.layers import NAMES, choose_layers
from kinfolk.errors import InputError, check_choice, shorten_list
from kinfolk.nn.heads import POOLS, ProbeConfig
from kinfolk.tasks.task import Task
from kinfolk.training.settings import OptimizerSettings, TrainSettings

MIX = "mix"
TEXT_HEADS = ("linear", "bilstm", "logistic")
TAG_HEADS = ("linear", "linear-crf", "bilstm", "bilstm-crf")
TASKS = {"tag": TAG_HEADS, "classify": TEXT_HEADS, "multilabel": TEXT_HEADS[:2], "regress": TEXT_HEADS[:2]}
LSTM_LAYERS = 2
OF_LAYERS = ("freeze", "layer_decay", "gradual_unfreezing")  # settings of a training that changes an encoder
# From a few tries, one seed each, on 2,100 sentences of CoNLL-2003 with all-MiniLM-L6-v2 (sum_last_4, BiLSTM);
# dev F1 with batches of 32 was .75, .79, .81, .81 at 1e-3, 2e-3, 5e-3, 1e-2; with 16 it was .82 at 2e-3 and at 4e-3.
SETTINGS = TrainSettings(epochs=6.0, batch_size=16, schedule="cosine", optimizer=OptimizerSettings(learning_rate=4e-3))


@dataclass(frozen=True)
class FrozenHeadConfig:
    """What is read out of the encoder, and how."""

    layers: str | Sequence[int] = MIX
    head: str = "bilstm"
    pool: str = "mean"  # of texts
    hidden: int = 128  # of each direction of the LSTM
    dropout: float = 0.3
    kind: str = "float16"  # of the numbers in the cache
    cache: Path | None = None  # without it a folder in the output's

    def __post_init__(self) -> None:
        check_choice("pool", self.pool, POOLS)
        check_choice("kind", self.kind, KINDS)
        if isinstance(self.layers, str):
            check_choice("layers", self.layers, (*NAMES, MIX))
        if self.head == "logistic" and self.layers == MIX:
            raise InputError("the logistic head is solved, not trained, so it cannot learn a mix; take linear for that")

    def config(self, encoder: Any, task: Task) -> ProbeConfig:
        """The readout for a task on an encoder."""
        if self.layers == MIX:
            numbers, join = tuple(range(encoder.layers + 1)), MIX
        else:
            choice = choose_layers(self.layers, encoder.layers)
            numbers, join = choice.numbers, "sum" if choice.summed else "concat"
        return ProbeConfig(
            numbers,
            join,
            encoder.width,
            len(task.labels),
            pool=None if task.kind == "tag" else self.pool,
            recurrent=LSTM_LAYERS if self.head.startswith("bilstm") else 0,
            hidden=self.hidden,
            dropout=0.0 if self.closed_form else self.dropout,
            crf=self.crf,
        )

    @property
    def crf(self) -> bool:
        """Is there a random field over the tags?"""
        return self.head.endswith("-crf")

    @property
    def closed_form(self) -> bool:
        """Is it a matter of scikit-learn's, not of the trainer's?"""
        return self.head == "logistic"


def frozen_config(
    task: str,
    frozen: str | FrozenHeadConfig | None,
    layers: str | Sequence[int] | None,
    crf: bool,
    dropout: float | None,
    seeds: int,
    training: Collection[str],
) -> FrozenHeadConfig | None:
    """What `finetune` reads of a frozen encoder, if one is frozen; what has no meaning beside it is refused."""
    if frozen is None:
        if layers is not None:
            raise InputError("layers are chosen for a frozen encoder; say frozen as well, such as linear")
        return None
    if task not in TASKS:
        raise InputError(f"heads on a frozen encoder are for the tasks {', '.join(TASKS)}, not for {task}")
    heads = TASKS[task]
    if isinstance(frozen, str):
        usual = "last" if frozen == "logistic" else MIX
        frozen = FrozenHeadConfig(usual if layers is None else layers, frozen)
    elif layers is not None:
        raise InputError("say the layers in the Reading")
    check_choice("frozen", frozen.head, heads)
    if dropout is not None:
        raise InputError("dropout is the encoder's, and a frozen one does not learn")
    if crf:
        head = frozen.head.removesuffix("-crf")
        raise InputError(f'a frozen encoder has the random field in its head: leave crf out, say frozen="{head}-crf"')
    named = ["seeds"] * (seeds > 1) + sorted({*training} - {"seed"})
    idle = named if frozen.closed_form else [name for name in named if name in OF_LAYERS]
    if idle:
        what = (
            "the logistic head is solved, not trained" if frozen.closed_form else "no layer of a frozen encoder learns"
        )
        raise InputError(f"{what}, so {shorten_list(idle)} would have no meaning")
    return frozen
