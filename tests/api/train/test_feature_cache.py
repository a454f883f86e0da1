"""Features: computed once, found again, never mistaken for others."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from kinfolk.api import frozen
from kinfolk.api.frozen import Features, features_of
from kinfolk.api.loaded import Encoder
from kinfolk.errors import InputError
from kinfolk.nn.packed import Tokens
from kinfolk.nn.trace import Trace
from kinfolk.objectives.objective import Sample, pack_samples

LAYERS = (0, 2, 5)


def items(encoder: Encoder) -> list[Sample]:
    texts = [
        "A cat sits on the mat.",
        ("one", "two and three"),
        "Rain.",
        "A cat sits on the mat.",
        ("one two", "three"),
    ]
    encodings = [encoder.tokenizer.encode(text) for text in texts]
    return [Sample(encoding.ids, encoding.segments, None, index) for index, encoding in enumerate(encodings)]


def batch(encoder: Encoder, numbers: list[int]) -> Tokens:
    own = items(encoder)
    return pack_samples([own[number] for number in numbers], encoder.model.config.segments, encoder.device)


def computed(encoder: Encoder, tokens: Tokens) -> torch.Tensor:
    trace = Trace(attention=False)
    with torch.inference_mode():
        encoder.model(tokens, trace)
    return torch.stack([trace.packed[number] for number in LAYERS])


def cached(encoder: Encoder, folder: Path, kind: str = "float16", step: int = 1) -> tuple[Features, int]:
    """The features, and how many sequences had to be computed."""
    with mock.patch.object(frozen, "pack_samples", wraps=frozen.pack_samples) as packed:
        features = features_of(encoder.model, items(encoder)[::step], LAYERS, folder, kind)
    return features, sum(len(call.args[0]) for call in packed.call_args_list)


@pytest.mark.parametrize(("kind", "tolerance"), [("float32", 1e-5), ("float16", 2e-3)])
def test_what_is_looked_up_is_what_the_encoder_gives(
    encoder: Encoder, tmp_path: Path, kind: str, tolerance: float
) -> None:
    features, count = cached(encoder, tmp_path, kind)
    assert count == 4  # one text stands there twice
    for numbers in ([2], [0, 1, 2, 3, 4], [4, 1], [3, 3]):
        tokens = batch(encoder, numbers)
        actual, expected = features.look_up(tokens, LAYERS), computed(encoder, tokens)
        assert actual.dtype == torch.float32
        # float16 keeps eleven bits: one part in two thousand
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_any_of_the_layers_can_be_asked_for_in_any_order(encoder: Encoder, tmp_path: Path) -> None:
    features, _ = cached(encoder, tmp_path)
    tokens = batch(encoder, [0, 2])
    torch.testing.assert_close(features.look_up(tokens, (5, 0)), features.look_up(tokens, LAYERS)[[2, 0]])


def test_the_second_time_nothing_is_computed(encoder: Encoder, tmp_path: Path) -> None:
    first, _ = cached(encoder, tmp_path)
    again, count = cached(encoder, tmp_path)
    assert count == 0
    turned, count = cached(encoder, tmp_path, step=-1)
    assert count == 0
    tokens = batch(encoder, [4, 0, 1])
    for other in (again, turned):
        torch.testing.assert_close(other.look_up(tokens, LAYERS), first.look_up(tokens, LAYERS), rtol=0, atol=0)


def test_any_difference_makes_a_new_file(encoder: Encoder, tmp_path: Path) -> None:
    cached(encoder, tmp_path)
    cached(encoder, tmp_path, "float32")
    features_of(encoder.model, items(encoder)[:2], LAYERS, tmp_path)
    features_of(encoder.model, items(encoder), (5,), tmp_path)
    changed = copy.deepcopy(encoder.model)
    with torch.no_grad():
        next(changed.body.parameters())[0, 0] += 1
    features_of(changed, items(encoder), LAYERS, tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_damaged_file_is_computed_again(encoder: Encoder, tmp_path: Path) -> None:
    cached(encoder, tmp_path)
    (path,) = tmp_path.glob("*/features.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    features, count = cached(encoder, tmp_path)
    assert count == 4
    tokens = batch(encoder, [0])
    torch.testing.assert_close(features.look_up(tokens, LAYERS), computed(encoder, tokens), rtol=2e-3, atol=2e-3)
    path.unlink()
    assert cached(encoder, tmp_path)[1] == 4
    shutil.rmtree(path.parent)
    assert cached(encoder, tmp_path)[1] == 4


def test_numbers_too_large_for_float16_are_reported_and_leave_no_file(encoder: Encoder, tmp_path: Path) -> None:
    large = copy.deepcopy(encoder.model)
    with torch.no_grad():
        large.body.embeddings.norm.weight.fill_(1e6)
    with pytest.raises(InputError, match='use kind="float32"'):
        features_of(large, items(encoder), LAYERS, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_deviation_is_that_of_the_joined_layers(encoder: Encoder, tmp_path: Path) -> None:
    features, _ = cached(encoder, tmp_path, "float32")
    expected = np.asarray(features.array)[:, [0, 2]].sum(1).std(ddof=1)
    assert features.deviation((0, 5), lambda layers: layers.sum(0)) == pytest.approx(float(expected), rel=1e-5)


def test_a_copy_reads_the_same_file(encoder: Encoder, tmp_path: Path) -> None:
    features, _ = cached(encoder, tmp_path)
    assert copy.deepcopy({"inside": features})["inside"] is features
