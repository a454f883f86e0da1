"""Damaged and hostile safetensors files: refused in one line before anything is allocated."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

from kinfolk.checkpoints.header import LARGEST_HEADER, Entry, build_header, parse_header
from kinfolk.checkpoints.tensors import SafetensorsBuffer, SafetensorsFile, tensors_to_bytes
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
    "empty file": (b"", "0 bytes are there"),
    "no header": (bytes(7), "truncated: 7 bytes"),
    "header cut": (stored(GOOD)[:20], "truncated: 20 bytes are there, the header alone promises"),
    "data cut": (stored(GOOD)[:-1], "23 bytes of tensors are there, the header promises 24"),
    "bytes after the end": (stored(GOOD) + b"x", "1 bytes too many"),
    "header of an exabyte": (b"\xff" * 8 + bytes(8), "promises a header of 18,446,744"),
    "header over the limit": ((LARGEST_HEADER + 1).to_bytes(8, "little") + bytes(8), "promises a header"),
    "git pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "header without text": (stored(b"", b""), "not valid JSON"),
    "not JSON": (stored(b"{'a'}"), "not valid JSON"),
    "not UTF-8": (stored(b'{"\xff": 1}'), "not UTF-8"),
    "not an object": (stored([]), "expected a JSON object, found list"),
    "twice the same name": (stored(b'{"a":{},"a":{}}'), "'a' stands there twice"),
    "bottomless": (stored(b'{"a":' * 50_000), "nested too deeply"),
    "metadata of numbers": (stored(GOOD | {"__metadata__": {"x": 1}}), "strings to strings"),
    "metadata is a list": (stored(GOOD | {"__metadata__": []}), "strings to strings"),
    "entry is a list": (stored({"a": []}), "dtype, shape and data_offsets"),
    "entry lacks the shape": (stored({"a": {"dtype": "F32", "data_offsets": [0, 24]}}), "dtype, shape"),
    "entry has more": (one(scale=1), "no others"),
    "unknown dtype": (one(dtype="F31"), "dtype 'F31' is not known"),
    "dtype is a number": (one(dtype=32), "dtype of type int"),
    "nested dtype": (
        stored(b'{"a":{"dtype":' + b"[" * 900 + b"]" * 900 + b',"shape":[],"data_offsets":[0,0]}}'),
        "dtype",
    ),
    "shape is a number": (one(shape=6), "non-negative whole numbers"),
    "negative size": (one(shape=[-2, -3]), "non-negative whole numbers"),
    "fractional size": (one(shape=[2.0, 3]), "non-negative whole numbers"),
    "truth as a size": (one(shape=[True, 6]), "non-negative whole numbers"),
    "too many dimensions": (one(shape=[6] + [1] * 64), "at most 64"),
    "size beyond 64 bits": (one(shape=[2**64]), "non-negative whole numbers"),
    "product beyond 64 bits": (one(shape=[2**32, 2**32]), "more elements than a tensor can have"),
    "product beside a zero": (one(shape=[0, 2**62, 2**62], data_offsets=[0, 0]), "more elements"),
    "a thousand trillion elements": (one(shape=[10**15]), "needs 4,000,000,000,000,000 bytes"),
    "promise beyond the file": (one(shape=[10**15], data_offsets=[0, 4 * 10**15]), "the header promises"),
    "offsets too short": (one(data_offsets=[0]), "two non-negative"),
    "offsets backwards": (one(data_offsets=[24, 0]), "data_offsets give -24"),
    "negative offset": (one(data_offsets=[-24, 0]), "two non-negative"),
    "shape and bytes differ": (one(shape=[2, 2]), "needs 16 bytes, data_offsets give 24"),
    "beginning left out": (two([1, 2], [2, 4], 4), "begins at byte 1, the one before it ends at 0: a hole"),
    "hole": (two([0, 1], [2, 4], 4), "'b' begins at byte 2, the one before it ends at 1: a hole"),
    "overlap": (two([0, 3], [2, 4], 4), "they overlap"),
    "same place": (two([0, 4], [0, 4], 4), "they overlap"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_that_names_file_and_reason(tmp_path: Path, fault: str) -> None:
    content, reason = FAULTS[fault]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    for open_it in (lambda: SafetensorsFile(path), lambda: SafetensorsBuffer(bytearray(content), str(path))):
        with pytest.raises(WeightsError) as caught:
            open_it()
        message = str(caught.value)
        assert message.startswith(str(path))
        assert reason in message
        assert len(message) < 400


def test_hostile_sizes_allocate_nothing() -> None:
    hostile = [content for content, _ in FAULTS.values() if len(content) < 2000]
    tracemalloc.start()
    for content in hostile:
        with pytest.raises(WeightsError):
            SafetensorsBuffer(bytearray(content), "hostile")
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
            source = SafetensorsFile(path)
        except KinfolkError:
            refused += 1
            continue
        for name in source.names():
            assert source.read(name).shape == source.shape(name)
    RAN["mutated files"] += MUTATIONS
    assert MUTATIONS / 3 < refused < MUTATIONS


def test_a_built_header_is_padded_and_reads_back() -> None:
    header = build_header([("é", "F32", (2, 3)), ("b", "BOOL", ()), ("none", "U8", (0, 5))], {"format": "pt"})
    assert len(header) % 8 == 0
    found = parse_header(bytearray(header + bytes(25)), "here")
    assert found.metadata == {"format": "pt"}
    assert found.data_start == len(header)
    assert found.entries == {
        "é": Entry("F32", (2, 3), 0, 24),
        "b": Entry("BOOL", (), 24, 25),
        "none": Entry("U8", (0, 5), 25, 25),
    }
