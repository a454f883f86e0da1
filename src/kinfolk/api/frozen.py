"""Feature-based use: the encoder stays as it is, its vectors are computed once, and a small head learns on them.

    linear, bilstm           of texts and tags: trained by the trainer, with any choice of layers or a learned mix
    linear-crf, bilstm-crf   of tags: the same below a random field
    logistic                 of classes: the linear head, solved by scikit-learn: no mix, rate, epochs or seed

    FOLDER/<key>/features.npy    (tokens, layers, width), read through a memory map
                 features.json   what they depend on: weights, settings, sequences (as ids), layers, kind of number
                 kinfolk.json    the hashes of both

The key is a hash of features.json: the same encoder and sequences find their file again. A `FeatureModel` on such a
file is a model like others, but only its head has weights; the saved model computes its own vectors in float32.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinfolk.api.embed import LAYERS, choose_layers
from kinfolk.api.experiment import SeedResult, Session
from kinfolk.api.supervised import SupervisedExperiment
from kinfolk.checkpoints.manifest import check_manifest, write_manifest
from kinfolk.data.batching import BATCH_TOKENS, token_batches
from kinfolk.data.writers import NpyWriter, open_npy
from kinfolk.errors import InputError, KinfolkError, check_choice, shorten_list
from kinfolk.files import atomic_folder, atomic_write, write_json
from kinfolk.machine import trim_memory
from kinfolk.models.family import Family, Model, weights_hash
from kinfolk.nn.packed import Tokens
from kinfolk.nn.probe import POOLS, ProbeConfig, ProbeHead
from kinfolk.objectives.objective import Sample, pack_samples
from kinfolk.tasks.task import Task
from kinfolk.training.distributed import world
from kinfolk.training.metrics import solve
from kinfolk.training.runs import Run
from kinfolk.training.settings import OptimizerSettings, TrainSettings

KINDS = {"float16": "<f2", "float32": "<f4"}  # of numbers in the file
FORMAT = 1
MIX = "mix"
TEXT_HEADS = ("linear", "bilstm", "logistic")
TAG_HEADS = ("linear", "linear-crf", "bilstm", "bilstm-crf")
TASKS = {"tag": TAG_HEADS, "classify": TEXT_HEADS, "multilabel": TEXT_HEADS[:2], "regress": TEXT_HEADS[:2]}
LSTM_LAYERS = 2
OF_LAYERS = ("freeze", "layer_decay", "gradual_unfreezing")  # settings of a training that changes an encoder
# From a few tries, one seed each, on 2,100 sentences of CoNLL-2003 with all-MiniLM-L6-v2 (sum_last_4, BiLSTM);
# dev F1 with batches of 32 was .75, .79, .81, .81 at 1e-3, 2e-3, 5e-3, 1e-2; with 16 it was .82 at 2e-3 and at 4e-3.
SETTINGS = TrainSettings(
    epochs=6.0, batch_size=16, schedule="cosine", optimization=OptimizerSettings(learning_rate=4e-3)
)


@dataclass(frozen=True)
class FrozenHeadConfig:
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
            check_choice("layers", self.layers, (*LAYERS, MIX))
        if self.head == "logistic" and self.layers == MIX:
            raise InputError("the logistic head is solved, not trained, so it cannot learn a mix; take linear for that")

    def config(self, encoder: Any, task: Task) -> ProbeConfig:
        if self.layers == MIX:
            indices, join = tuple(range(encoder.layers + 1)), MIX
        else:
            choice = choose_layers(self.layers, encoder.layers)
            indices, join = choice.indices, "sum" if choice.summed else "concat"
        return ProbeConfig(
            indices,
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
        return self.head.endswith("-crf")

    @property
    def closed_form(self) -> bool:
        return self.head == "logistic"


def frozen_config(
    task: str,
    frozen: str | FrozenHeadConfig,
    layers: str | Sequence[int] | None,
    crf: bool,
    dropout: float | None,
    training: Collection[str],
) -> FrozenHeadConfig:
    """What `finetune` reads of a frozen encoder; what has no meaning beside it is refused, such as some of `training`,
    the names of what the user set."""
    if task not in TASKS:
        raise InputError(f"heads on a frozen encoder are for the tasks {', '.join(TASKS)}, not for {task}")
    if isinstance(frozen, str):
        usual = "last" if frozen == "logistic" else MIX
        frozen = FrozenHeadConfig(usual if layers is None else layers, frozen)
    elif layers is not None:
        raise InputError("say the layers in the FrozenHeadConfig")
    check_choice("frozen", frozen.head, TASKS[task])
    if dropout is not None:
        raise InputError("dropout is the encoder's, and a frozen one does not learn")
    if crf:
        head = frozen.head.removesuffix("-crf")
        raise InputError(f'a frozen encoder has the random field in its head: leave crf out, say frozen="{head}-crf"')
    idle = sorted(name for name in training if name != "seed" and (frozen.closed_form or name in OF_LAYERS))
    if idle:
        what = "the logistic head is solved, not trained" if frozen.closed_form else "the encoder does not learn"
        raise InputError(f"{what}, so {shorten_list(idle)} would have no meaning")
    return frozen


class Features:
    """Vectors of known sequences, looked up by their ids."""

    def __init__(self, array: np.ndarray, layers: Sequence[int], starts: Mapping[bytes, int]):
        """`array` is (tokens, layers, width); `starts` has the first row of each sequence by its key."""
        self.array, self.layers, self.starts = array, tuple(layers), starts

    def __deepcopy__(self, memo: dict[int, Any]) -> Features:
        return self  # a copy of a model reads the same file

    def look_up(self, tokens: Tokens, layers: Sequence[int]) -> Tensor:
        """The vectors of a batch in float32, (layers, tokens, width)."""
        layout, segments = tokens.layout, tokens.segments
        sides = [layout.split(ids.cpu()) for ids in (tokens.ids, segments) if ids is not None]
        firsts = [self.starts[_key(*(part.numpy() for part in parts))] for parts in zip(*sides, strict=True)]
        pairs = zip(firsts, layout.lengths, strict=True)
        rows = np.concatenate([np.arange(first, first + length) for first, length in pairs])
        return self._read(rows, layers).to(layout.device)

    def _read(self, rows: np.ndarray, layers: Sequence[int]) -> Tensor:
        # Layer by layer: only what is wanted is read from the file, and torch is faster at widening the numbers.
        columns = [self.layers.index(layer) for layer in layers]
        return torch.stack([torch.from_numpy(self.array[rows, column]).float() for column in columns])

    def deviation(self, layers: Sequence[int], join: Callable[[Tensor], Tensor], rows: int = 4096) -> float:
        """Standard deviation of the joined layers, on rows from all over the file."""
        picked = np.unique(np.linspace(0, len(self.array) - 1, rows).astype(np.int64))
        return float(join(self._read(picked, layers)).std())


def features_of(
    model: Model, samples: Iterable[Sample], layers: Sequence[int], folder: Path, kind: str = "float16"
) -> Features:
    """The features of all sequences among the samples, from the folder if they are there already."""
    segmented = model.config.segments > 1
    keyed = {_key(np.array(each.ids), np.array(each.segments) if segmented else None): each for each in samples}
    keys = sorted(keyed)
    ordered = [keyed[key] for key in keys]
    batches = list(token_batches([len(sample) for sample in ordered], BATCH_TOKENS))
    description = {
        "format": FORMAT,
        "weights": weights_hash(model.body),
        "family": model.family.name,
        "config": dataclasses.asdict(model.config),
        "sequences": hashlib.sha256(b"".join(keys)).hexdigest(),
        "layers": list(layers),
        "kind": kind,
    }
    location = folder / hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]
    try:
        intact = location.exists() and check_manifest(location)
    except KinfolkError:  # what is damaged can be computed again, so it goes
        shutil.rmtree(location, ignore_errors=True)
        intact = False
    if not intact:
        with atomic_folder(location) as temporary:
            path = temporary / "features.npy"
            _write(path, model, [[ordered[index] for index in batch] for batch in batches], layers, kind)
            write_json(temporary / "features.json", description)
            write_manifest(temporary)
    order = [index for batch in batches for index in batch]
    rows = list(accumulate((len(ordered[index]) for index in order), initial=0))
    array = open_npy(location / "features.npy", (rows.pop(), len(layers), model.config.width), KINDS[kind])
    return Features(array, layers, dict(zip((keys[index] for index in order), rows, strict=True)))


def _write(path: Path, model: Model, batches: Sequence[Sequence[Sample]], layers: Sequence[int], kind: str) -> None:
    shape = (len(layers), model.config.width)
    tokens = sum(len(sample) for batch in batches for sample in batch)
    size = tokens * math.prod(shape) * np.dtype(KINDS[kind]).itemsize
    with atomic_write(path, size) as stream, torch.inference_mode():
        writer = NpyWriter(stream, shape, KINDS[kind])
        for batch in batches:
            hidden = model.frozen_layers(pack_samples(batch, model.config.segments, model.device), layers)
            vectors = hidden.transpose(0, 1).to(getattr(torch, kind))
            if not torch.isfinite(vectors).all():
                raise InputError(f'the encoder gives numbers too large for {kind}; use kind="float32"')
            writer.append(vectors.cpu().numpy())
        writer.finish()
    trim_memory()


def _key(ids: np.ndarray, segments: np.ndarray | None = None) -> bytes:
    """A sequence's name; segments that are all zero are as good as none."""
    digest = hashlib.blake2b(ids.astype("<i8").tobytes(), digest_size=16)
    if segments is not None and segments.any():
        digest.update(segments.astype("<i8").tobytes())
    return digest.digest()


class FeatureModel(Model):
    """Heads that read layers, on the features of an encoder of this family."""

    def __init__(self, family: Family, config: Any, heads: Mapping[str, ProbeHead], features: Features):
        nn.Module.__init__(self)  # a body is not built
        self.family, self.config, self.features = family, config, features
        self.heads = nn.ModuleDict(heads)

    def layer_ids(self) -> dict[str, int]:
        return {name: 0 for name, _ in self.named_parameters()}

    def embedding_only_read(self) -> None:
        """It has none."""

    def hidden_for(self, name: str, tokens: Tokens) -> Tensor:
        """The layers that the head reads, (layers, tokens, width)."""
        return self.features.look_up(tokens, self.heads[name].layers)  # type: ignore[arg-type]

    def vectors(self, name: str, samples: Sequence[Sample]) -> np.ndarray:
        """What the linear layer of a pooling head reads of each sample, (samples, width)."""
        head: ProbeHead = self.heads[name]  # type: ignore[assignment]
        rows = np.empty((len(samples), head.output.in_features), dtype=np.float32)
        with torch.inference_mode():
            for batch in token_batches([len(sample) for sample in samples], BATCH_TOKENS):
                tokens = pack_samples([samples[index] for index in batch], self.config.segments, self.device)
                rows[batch] = head.vectors(self.hidden_for(name, tokens), tokens.layout).cpu().numpy()
        return rows


class FrozenExperiment(SupervisedExperiment):
    """A head on the cached features of a frozen encoder."""

    origin = "Its head was trained with kinfolk; the encoder is {}, frozen."

    def __init__(self, *arguments: Any, frozen: FrozenHeadConfig):
        self.frozen: FrozenHeadConfig = frozen
        super().__init__(*arguments)

    @cached_property
    def features(self) -> Features:
        layers = sorted(set(self.frozen.config(self.encoder.model.config, self.task).layers))
        folder = self.frozen.cache or self.folder / "features"
        samples = [*self.dataset.samples, *self.dev.samples]
        make = partial(features_of, self.encoder.model, samples, layers, folder, self.frozen.kind)
        return world().on_main(make) or make()  # the other processes find the file

    @cached_property
    def probe(self) -> ProbeConfig:
        """What learns; of the logistic head users expect what scikit-learn gives on the vectors as they are."""
        config = self.frozen.config(self.encoder.model.config, self.task)
        if self.frozen.closed_form:
            return config
        with torch.inference_mode():  # numbers with a standard deviation of one
            deviation = self.features.deviation(config.layers, ProbeHead(config).joined)
        return dataclasses.replace(config, scale=1 / deviation if deviation > 0 else 1.0)

    def init_model(self, seed: int) -> tuple[Model, list[str]]:
        encoder = self.encoder.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            probe = ProbeHead(self.probe)
        heads = {self.task.head: probe.to(encoder.device)}
        model = FeatureModel(encoder.family, encoder.config, heads, self.features)
        return model, [name for name, _ in model.named_parameters()]

    def description(self, settings: TrainSettings, model: Model) -> dict[str, Any]:
        own = {"probe": dataclasses.asdict(self.probe), "features": self.frozen.kind}
        return super().description(settings, model) | own

    def reported_settings(self) -> dict[str, str]:
        layers = self.frozen.layers if isinstance(self.frozen.layers, str) else ", ".join(map(str, self.frozen.layers))
        head = f"{self.frozen.head}, in closed form" if self.frozen.closed_form else self.frozen.head
        own = {"encoder": "frozen", "head": head, "layers": layers}
        return own if self.frozen.closed_form else own | super().reported_settings()

    def train(self, seed: int, folder: Path, session: Session, seeds: int = 1) -> SeedResult:
        """Train or solve the head; the result has it on top of the encoder."""
        result = self._solve(seed) if self.frozen.closed_form else super().train(seed, folder, session, seeds)
        whole = self.encoder.model.with_heads(dict(result.model.heads.items()))
        return dataclasses.replace(result, model=whole)

    def _solve(self, seed: int) -> SeedResult:
        start = time.monotonic()
        model = self.init_model(seed)[0].eval()
        assert isinstance(model, FeatureModel)
        targets = [sample.target for sample in self.samples]
        solution = solve(model.vectors(self.task.head, self.samples), targets, self.task.weights)  # type: ignore[attr-defined]
        output: Any = model.heads[self.task.head].output
        with torch.no_grad():
            output.weight.copy_(torch.from_numpy(solution.weight))
            output.bias.copy_(torch.from_numpy(solution.bias))
        result = self.evaluate_task(self.task, model)
        entry = {"step": 1, "loss": solution.loss, "learning_rate": 0.0, "epoch": 0, "metrics": result.metrics}
        log = [entry | {"selection_score": result.selection_score}]
        with closing(Run.open(self.folder, self.description(self.settings, model))) as run:
            world().on_main(lambda: run.rewind(0, None))  # what an earlier call of the same command logged
            world().on_main(lambda: run.log(log[0]))
        return SeedResult(model, result, solution.notes, log, time.monotonic() - start, self.task)
