"""Features: the layers of a frozen encoder for known sequences, kept in a file, and a model on them.

    FOLDER/<key>/features.npy    (tokens, layers, width) in float16 or float32, read through a memory map
                 features.json   what they depend on: weights, settings, sequences, layers, kind of number
                 kinfolk.json    the hashes of both

The key is a hash of features.json, so the same encoder and the same sequences find their file again, and anything else
makes a new one. Sequences are known by their ids and segments: they are what is left of texts and tokenizer.

`FeatureModel` is a model whose body is such a file: to the trainer, the objectives and the tasks it is a model like
others, but only its readout has weights.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinfolk.checkpoints.manifest import check_manifest, write_manifest
from kinfolk.data.batching import BATCH_TOKENS, token_batches
from kinfolk.data.npy import NpyWriter, open_npy
from kinfolk.errors import InputError, KinfolkError, check_choice
from kinfolk.files import atomic_folder, atomic_write, write_json
from kinfolk.machine import trim_memory
from kinfolk.models.family import Family, Model, weights_hash
from kinfolk.nn.heads import ProbeConfig, ProbeHead
from kinfolk.nn.packed import Tokens
from kinfolk.objectives.objective import Sample, pack_samples

KINDS = {"float16": "<f2", "float32": "<f4"}
FORMAT = 1
Report = Callable[[int], None]  # called with the number of sequences that were just done


class Features:
    """Vectors of known sequences, looked up by their ids."""

    def __init__(self, array: np.ndarray, layers: Sequence[int], starts: Mapping[bytes, int]):
        """`array` is (tokens, layers, width); `starts` has the first row of each sequence by its key."""
        self.array, self.layers, self.starts = array, tuple(layers), starts

    def __deepcopy__(self, memo: dict[int, Any]) -> Features:
        return self  # a copy of a model reads the same file

    def look_up(self, tokens: Tokens, layers: Sequence[int]) -> Tensor:
        """The vectors of a batch in float32, (layers, tokens, width)."""
        ids = tokens.ids.cpu().numpy()
        segments = None if tokens.segments is None else tokens.segments.cpu().numpy()
        rows = []
        for start, length in zip(tokens.layout.starts, tokens.layout.lengths, strict=True):
            own = slice(start, start + length)
            first = self.starts[_key(ids[own], None if segments is None else segments[own])]
            rows.append(np.arange(first, first + length))
        return self._read(np.concatenate(rows), layers).to(tokens.layout.device)

    def _read(self, rows: np.ndarray, layers: Sequence[int]) -> Tensor:
        # Layer by layer: only what is wanted is read from the file, and torch is faster at widening the numbers.
        columns = [self.layers.index(layer) for layer in layers]
        return torch.stack([torch.from_numpy(self.array[rows, column]).float() for column in columns])

    def deviation(self, layers: Sequence[int], join: Callable[[Tensor], Tensor], rows: int = 4096) -> float:
        """Standard deviation of the joined layers, on rows from all over the file."""
        picked = np.unique(np.linspace(0, len(self.array) - 1, rows).astype(np.int64))
        return float(join(self._read(picked, layers)).std())


def features_of(
    model: Model,
    items: Iterable[Sample],
    layers: Sequence[int],
    folder: Path,
    kind: str = "float16",
    report: Report = lambda done: None,
) -> Features:
    """The features of all sequences among the items, from the folder if they are there already."""
    check_choice("kind", kind, KINDS)
    segmented = model.config.segments > 1
    keyed = {_key(np.array(item.ids), np.array(item.segments) if segmented else None): item for item in items}
    sequences = dict(sorted(keyed.items()))
    keys, ordered = list(sequences), list(sequences.values())
    batches = list(token_batches([len(item) for item in ordered], BATCH_TOKENS))
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
    if not _is_intact(location):
        with atomic_folder(location) as temporary:
            path = temporary / "features.npy"
            _write(path, model, [[ordered[index] for index in batch] for batch in batches], layers, kind, report)
            write_json(temporary / "features.json", description)
            write_manifest(temporary)
    order = [index for batch in batches for index in batch]
    rows = list(accumulate((len(ordered[index]) for index in order), initial=0))
    array = open_npy(location / "features.npy", (rows.pop(), len(layers), model.config.width), KINDS[kind])
    return Features(array, layers, dict(zip((keys[index] for index in order), rows, strict=True)))


def _is_intact(folder: Path) -> bool:
    """Is the file there and as it was written? What is damaged can be computed again, so it goes."""
    try:
        return folder.exists() and check_manifest(folder)
    except KinfolkError:
        shutil.rmtree(folder, ignore_errors=True)
        return False


def _write(
    path: Path, model: Model, batches: Sequence[Sequence[Sample]], layers: Sequence[int], kind: str, report: Report
) -> None:
    shape = (len(layers), model.config.width)
    tokens = sum(len(item) for batch in batches for item in batch)
    with (
        atomic_write(path, tokens * math.prod(shape) * np.dtype(KINDS[kind]).itemsize) as stream,
        torch.inference_mode(),
    ):
        writer = NpyWriter(stream, shape, KINDS[kind])
        for batch in batches:
            hidden = model.frozen_layers(pack_samples(batch, model.config.segments, model.device), layers)
            vectors = hidden.transpose(0, 1).to(getattr(torch, kind))
            if not torch.isfinite(vectors).all():
                raise InputError(f'the encoder gives numbers too large for {kind}; use kind="float32"')
            writer.append(vectors.cpu().numpy())
            report(len(batch))
        writer.finish()
    trim_memory()


def _key(ids: np.ndarray, segments: np.ndarray | None) -> bytes:
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
        """All parameters are on one layer."""
        return {name: 0 for name, _ in self.named_parameters()}

    def embedding_only_read(self) -> None:
        """It has none."""

    def hidden_for(self, name: str, tokens: Tokens) -> Tensor:
        """The layers that the head reads, (layers, tokens, width)."""
        return self.features.look_up(tokens, self.heads[name].layers)  # type: ignore[arg-type]

    def vectors(self, name: str, items: Sequence[Sample]) -> np.ndarray:
        """What the linear layer of a pooling head reads of each item, (items, width)."""
        readout: ProbeHead = self.heads[name]  # type: ignore[assignment]
        rows = np.empty((len(items), readout.output.in_features), dtype=np.float32)
        with torch.inference_mode():
            for batch in token_batches([len(item) for item in items], BATCH_TOKENS):
                tokens = pack_samples([items[index] for index in batch], self.config.segments, self.device)
                rows[batch] = readout.vectors(self.hidden_for(name, tokens), tokens.layout).cpu().numpy()
        return rows


def init_probe(config: ProbeConfig, seed: int) -> ProbeHead:
    """A readout that starts at random, from the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ProbeHead(config)


def scaled(config: ProbeConfig, features: Features) -> ProbeConfig:
    """The same readout on vectors whose numbers have a standard deviation of one."""
    with torch.inference_mode():
        deviation = features.deviation(config.layers, ProbeHead(config).joined)
    return dataclasses.replace(config, scale=1 / deviation if deviation > 0 else 1.0)
