"""Features: the layers of a frozen encoder for known sequences, computed once and kept in a file.

    FOLDER/<key>/features.npy    (tokens, layers, width) in float16 or float32, read through a memory map
                 features.json   what they depend on: weights, settings, sequences, layers, kind of number
                 kinfolk.json    the hashes of both

The key is a hash of features.json, so the same encoder and the same sequences find their file again, and anything else
makes a new one. Sequences are known by their ids and segments: they are what is left of texts and tokenizer.
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
from torch import Tensor

from kinfolk.checkpoints.manifest import check_manifest, write_manifest
from kinfolk.data.batching import BATCH_TOKENS, token_batches
from kinfolk.data.npy import NpyWriter, open_npy
from kinfolk.errors import InputError, KinfolkError, check_choice
from kinfolk.files import atomic_folder, atomic_write, write_json
from kinfolk.machine import trim_memory
from kinfolk.models.family import Model, weights_hash
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
        rows = np.concatenate([np.arange(start, start + length) for start, length in self._places(tokens)])
        columns = [self.layers.index(number) for number in layers]
        # Layer by layer: only what is wanted is read from the file, and torch is faster at widening the numbers.
        found = [torch.from_numpy(self.array[rows, column]).float() for column in columns]
        return torch.stack(found).to(tokens.layout.device)

    def _places(self, tokens: Tokens) -> Iterable[tuple[int, int]]:
        ids = tokens.ids.cpu().numpy()
        segments = None if tokens.segments is None else tokens.segments.cpu().numpy()
        for start, length in zip(tokens.layout.starts, tokens.layout.lengths, strict=True):
            own = slice(start, start + length)
            yield self.starts[_key(ids[own], None if segments is None else segments[own])], length

    def deviation(self, numbers: Sequence[int], join: Callable[[Tensor], Tensor], rows: int = 4096) -> float:
        """Standard deviation of the joined layers, on rows from all over the file."""
        picked = np.unique(np.linspace(0, len(self.array) - 1, rows).astype(np.int64))
        layers = [torch.from_numpy(self.array[picked, self.layers.index(number)]).float() for number in numbers]
        return float(join(torch.stack(layers)).std())


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
    sequences = dict(sorted({_item_key(item, model.config.segments): item for item in items}.items()))
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
    place = folder / hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]
    if not _whole(place):
        with atomic_folder(place) as temporary:
            path = temporary / "features.npy"
            _write(path, model, [[ordered[number] for number in batch] for batch in batches], layers, kind, report)
            write_json(temporary / "features.json", description)
            write_manifest(temporary)
    order = [number for batch in batches for number in batch]
    rows = list(accumulate((len(ordered[number]) for number in order), initial=0))
    array = open_npy(place / "features.npy", (rows.pop(), len(layers), model.config.width), KINDS[kind])
    return Features(array, layers, dict(zip((keys[number] for number in order), rows, strict=True)))


def _whole(place: Path) -> bool:
    """Is the file there and as it was written? What is damaged can be computed again, so it goes."""
    try:
        return place.exists() and check_manifest(place)
    except KinfolkError:
        shutil.rmtree(place, ignore_errors=True)
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
            found = model.frozen_layers(pack_samples(batch, model.config.segments, model.device), layers)
            vectors = found.transpose(0, 1).to(getattr(torch, kind))
            if not torch.isfinite(vectors).all():
                raise InputError(f'the encoder gives numbers too large for {kind}; use kind="float32"')
            writer.append(vectors.cpu().numpy())
            report(len(batch))
        writer.finish()
    trim_memory()


def _item_key(item: Sample, kinds: int) -> bytes:
    return _key(np.array(item.ids), np.array(item.segments) if kinds > 1 else None)


def _key(ids: np.ndarray, segments: np.ndarray | None) -> bytes:
    """A sequence's name; segments that are all zero are as good as none."""
    digest = hashlib.blake2b(ids.astype("<i8").tobytes(), digest_size=16)
    if segments is not None and segments.any():
        digest.update(segments.astype("<i8").tobytes())
    return digest.digest()
