"""Damaged and hostile safetensors files: refused in one line before anything is allocated."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

from kinfolk.checkpoints.weights import MAX_HEADER, open_safetensors, tensors_from_bytes, tensors_to_bytes
from kinfolk.errors import KinfolkError, WeightsError
from surroundings import RAN, faults

MUTATIONS = faults("KINFOLK_MUTATIONS", 300)
GOOD = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


def stored(header: Any, data: bytes = bytes(24)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def one(**changes: Any) -> bytes:
    return stored({"a": GOOD["a"] | changes})


def two(first: list[int], second: list[int], size: int) -> bytes:
    return stored(
        {
            "a": {"dtype": "U8", "shape": [first[1] - first[0]], "data_offsets": first},
            "b": {"dtype": "U8", "shape": [second[1] - second[0]], "data_offsets": second},
        },
        bytes(size),
    )


FAULTS = {
    "empty file": b"",
    "no header": bytes(7),
    "header cut": stored(GOOD)[:20],
    "data cut": stored(GOOD)[:-1],
    "bytes after the end": stored(GOOD) + b"x",
    "header of an exabyte": b"\xff" * 8 + bytes(8),
    "header over the limit": (MAX_HEADER + 1).to_bytes(8, "little") + bytes(8),
    "git pointer": b"version https://git-lfs.github.com/spec/v1\n",
    "header without text": stored(b"", b""),
    "not JSON": stored(b"{'a'}"),
    "not UTF-8": stored(b'{"\xff": 1}'),
    "not an object": stored([]),
    "twice the same name": stored(b'{"a":{},"a":{}}'),
    "bottomless": stored(b'{"a":' * 50_000),
    "metadata of numbers": stored(GOOD | {"__metadata__": {"x": 1}}),
    "metadata is a list": stored(GOOD | {"__metadata__": []}),
    "entry is a list": stored({"a": []}),
    "entry lacks the shape": stored({"a": {"dtype": "F32", "data_offsets": [0, 24]}}),
    "entry has more": one(scale=1),
    "unknown dtype": one(dtype="F31"),
    "dtype is a number": one(dtype=32),
    "nested dtype": stored(b'{"a":{"dtype":' + b"[" * 900 + b"]" * 900 + b',"shape":[],"data_offsets":[0,0]}}'),
    "shape is a number": one(shape=6),
    "negative size": one(shape=[-2, -3]),
    "fractional size": one(shape=[2.0, 3]),
    "truth as a size": one(shape=[True, 6]),
    "too many dimensions": one(shape=[6] + [1] * 64),
    "size beyond 64 bits": one(shape=[2**64]),
    "product beyond 64 bits": one(shape=[2**32, 2**32]),
    "product beside a zero": one(shape=[0, 2**62, 2**62], data_offsets=[0, 0]),
    "a thousand trillion elements": one(shape=[10**15]),
    "promise beyond the file": one(shape=[10**15], data_offsets=[0, 4 * 10**15]),
    "offsets too short": one(data_offsets=[0]),
    "offsets backwards": one(data_offsets=[24, 0]),
    "negative offset": one(data_offsets=[-24, 0]),
    "shape and bytes differ": one(shape=[2, 2]),
    "beginning left out": two([1, 2], [2, 4], 4),
    "hole": two([0, 1], [2, 4], 4),
    "overlap": two([0, 3], [2, 4], 4),
    "twice the same entry": stored(
        b'{"a":' + json.dumps(GOOD["a"]).encode() + b',"a":' + json.dumps(GOOD["a"]).encode() + b"}"
    ),
    "no bytes, but a product": stored({"a": {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}, b""),
    "a dtype that torch has not": one(dtype="F4", shape=[48]),
    "same place": two([0, 4], [0, 4], 4),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_that_names_the_file(tmp_path: Path, fault: str) -> None:
    content = FAULTS[fault]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    for open_it in (lambda: open_safetensors(path), lambda: tensors_from_bytes(content, str(path))):
        with pytest.raises(WeightsError) as caught:
            open_it()
        message = str(caught.value)
        assert message.startswith(str(path))
        assert "\n" not in message
        assert len(message) < 400


def test_hostile_sizes_allocate_nothing() -> None:
    hostile = [content for content in FAULTS.values() if len(content) < 2000]
    tracemalloc.start()
    for content in hostile:
        with pytest.raises(WeightsError):
            tensors_from_bytes(content, "hostile")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def mutated(content: bytes, randomness: random.Random) -> bytes:
    changed = bytearray(content)
    if randomness.random() < 0.2:
        return bytes(changed[: randomness.randrange(len(changed))])
    for _ in range(randomness.choice([1, 1, 2, 5])):
        changed[randomness.randrange(len(changed))] = randomness.randrange(256)
    return bytes(changed)


def test_mutations_are_refused_or_load_with_consistent_shapes(tmp_path: Path) -> None:
    randomness = random.Random(7)
    tensors = {"weight": torch.zeros(3, 2), "bias": torch.ones(3, dtype=torch.float16), "mask": torch.ones(2, 0)}
    content = tensors_to_bytes(tensors)
    refused = 0
    path = tmp_path / "model.safetensors"
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(content, randomness))
        try:
            source = open_safetensors(path)
        except KinfolkError:
            refused += 1
            continue
        for name in source.names():
            assert source.read(name).shape == source.shape(name)
    RAN["mutated files"] += MUTATIONS
    assert MUTATIONS / 3 < refused < MUTATIONS
