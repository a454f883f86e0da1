"""What a pre-training is: what `kinfolk pretrain NAME` asks of the file that knows (kinds.py).

    corpus ──> samples, anew in every epoch ──> losses by name ──> metrics on the dev text

The file's `PRETRAINING` has a record by name: family and sizes, tokenizer, usual settings, and the task, which is an
objective with the samples it wants and the metrics that tell how well it is met. A model card quotes the record, too.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from kinfolk.data.batching import Plan
from kinfolk.data.corpus import EncodedCorpus
from kinfolk.errors import check_choice
from kinfolk.objectives.kinds import FILES
from kinfolk.objectives.objective import Objective, Sample
from kinfolk.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Pretraining:
    family: str  # its public model type
    preset: str  # its sizes are the family's presets called preset-size
    size: str  # the usual one
    task: type[PretrainingTask]
    heads: Mapping[str, int]  # with their numbers of labels (0 where that has no meaning)
    tokenizer: str  # kind of the tokenizer that is trained
    roles: Mapping[str, str]  # its special tokens
    batch_size: int
    length: int  # tokens of a sample
    effect: str  # what the model does, in a sentence that begins "This BERT"
    pipeline: str  # the hub's name for that
    example: str  # lines of Python that ask the `model` for it
    lowercase: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)  # usual ones of training
    length_name: str = "max_length"  # what the user calls `length`
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the preset's config


def pretraining(name: str) -> Pretraining:
    record: Pretraining = import_module(FILES[check_choice("kind", name, FILES)]).PRETRAINING[name]
    return record


class EpochSamples(Sequence[Sample], Plan):
    """Samples that are made when they are asked for, new ones in every epoch, and which of them make a batch. Sample
    `index` is the one at index % per_epoch of epoch index // per_epoch; it depends on nothing but the seed and its
    index."""

    def __init__(self, per_epoch: int, batch_size: int, seed: int):
        self.per_epoch, self.batch_size, self.seed = per_epoch, batch_size, seed
        self.batches = math.ceil(per_epoch / batch_size)
        self._order: tuple[int, list[int]] = (-1, [])

    @abstractmethod
    def make(self, epoch: int, index: int, generator: random.Random) -> Sample:
        """One of the samples of an epoch."""

    def __len__(self) -> int:
        return self.per_epoch

    def __iter__(self) -> Iterator[Sample]:
        """Those of the first epoch."""
        return (self[index] for index in range(self.per_epoch))

    def __getitem__(self, index: Any) -> Any:  # a single index, of any epoch
        epoch, within = divmod(index, self.per_epoch)
        return self.make(epoch, within, random.Random(f"{self.seed} sample {index}"))

    def shift(self, epoch: int, length: int) -> int:
        """Where an epoch begins to cut a text into pieces of this length."""
        return random.Random(f"{self.seed} shift {epoch}").randrange(length)

    def batch(self, step: int) -> list[int]:
        epoch, index = self.locate(step)
        if self._order[0] != epoch:
            order = list(range(epoch * self.per_epoch, (epoch + 1) * self.per_epoch))
            random.Random(f"{self.seed} epoch {epoch}").shuffle(order)
            self._order = epoch, order
        return self._order[1][index * self.batch_size : (index + 1) * self.batch_size]


@dataclass(eq=False)
class PretrainingTask(ABC):
    """An objective on a corpus. Metrics are those of the dev text; of the first one, lower is better."""

    train: EncodedCorpus
    dev: EncodedCorpus
    tokenizer: Tokenizer
    config: Any
    batch_size: int
    length: int
    seed: int
    samples: Any = field(init=False)
    objective: Objective = field(init=False)
    by_sentence = False  # does it want to know where sentences end?
    least_documents = 1  # of train and dev each
    note = ""  # what report and card say of the metrics

    @abstractmethod
    def __post_init__(self) -> None:
        """Set `samples`, which are their plan as well, and `objective`."""

    @abstractmethod
    def evaluate(self, model: Any, thorough: bool = False) -> dict[str, float]:
        """Metrics by name; `thorough` at the end, where it may take longer."""

    @abstractmethod
    def evaluated_tokens(self, thorough: bool = False) -> float:
        """How many tokens that reads, about."""

    @abstractmethod
    def baselines(self) -> dict[str, float]:
        """What some of the metrics are without a model: by chance, or by the frequencies of the train text."""

    def location(self, example: int) -> str:
        return f"document {example + 1:,} of the corpus"

    @cached_property
    def unigram_entropy(self) -> float:
        """Cross-entropy of the dev tokens, in nats, under train frequencies (each counted once more)."""
        counts = np.bincount(self.train.ids, minlength=self.config.vocabulary_size) + 1.0
        return float(-np.log(counts / counts.sum())[self.dev.ids].mean())

    @cached_property
    def commonest_share(self) -> float:
        """The share of the commonest train token in the dev text: the accuracy of always guessing it."""
        return float((self.dev.ids == np.bincount(self.train.ids).argmax()).mean())
