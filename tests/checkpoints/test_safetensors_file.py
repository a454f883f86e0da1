"""Reading and writing one safetensors file: exact, atomic, and understood by the safetensors library both ways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kinfolk.checkpoints.weights import (
    DTYPES,
    TensorSource,
    open_safetensors,
    tensors_from_bytes,
    tensors_to_bytes,
    write_tensors,
)
from kinfolk.errors import WeightsError


def every_dtype() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    tensors = {"scalar": torch.tensor(2.5), "none": torch.empty(0, 7), "ünï": torch.ones(1)}
    for name, dtype in DTYPES.items():
        numbers = torch.randint(0, 2, (3, 5), generator=generator)  # odd sizes, so that alignment matters
        tensors[name] = numbers.to(dtype)
    return tensors


def assert_same(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype
        assert actual[name].shape == tensor.shape
        assert actual[name].reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8)), name


def read_all(path: Path) -> dict[str, Tensor]:
    return every_tensor(open_safetensors(path))


def from_bytes(content: bytes) -> dict[str, Tensor]:
    return every_tensor(tensors_from_bytes(content, "in memory"))


def every_tensor(source: TensorSource) -> dict[str, Tensor]:
    return {name: source.read(name) for name in source.names()}


def test_every_dtype_survives_the_round_trip(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", every_dtype())
    assert_same(read_all(tmp_path / "x"), every_dtype())
    assert_same(from_bytes(tensors_to_bytes(every_dtype())), every_dtype())


def test_safetensors_reads_ours_and_we_read_theirs(tmp_path: Path) -> None:
    write_tensors(tmp_path / "ours", every_dtype())
    assert_same(load_file(tmp_path / "ours"), every_dtype())
    save_file(every_dtype(), tmp_path / "theirs")
    assert_same(read_all(tmp_path / "theirs"), every_dtype())


def test_a_model_of_one_dtype_has_the_bytes_that_safetensors_writes(tmp_path: Path) -> None:
    tensors = {name: torch.randn(4, 3) for name in ("z", "a.b", "m")}
    write_tensors(tmp_path / "ours", tensors)
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_the_same_tensors_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    tensors = every_dtype()
    backwards = dict(reversed(tensors.items()))
    write_tensors(tmp_path / "x", backwards)
    assert tensors_to_bytes(tensors) == tensors_to_bytes(backwards) == (tmp_path / "x").read_bytes()


def test_views_transposes_and_shared_memory_are_written_as_they_look(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"whole": base, "same": base, "turned": base.T, "part": base[:, 1:3], "wide": base[:1].expand(3, 4)}
    tensors["learned"] = torch.nn.Parameter(base)
    write_tensors(tmp_path / "x", tensors)
    assert_same(read_all(tmp_path / "x"), {name: tensor.detach().contiguous() for name, tensor in tensors.items()})


def test_reading_never_changes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_tensors(path, {"a": torch.zeros(4)})
    path.chmod(0o444)
    source = open_safetensors(path)
    first = source.read("a")
    first += 1
    assert open_safetensors(path).read("a").tolist() == [0, 0, 0, 0]


def test_a_tensor_outlives_its_source_and_its_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {"a": torch.arange(3)})
    tensor = open_safetensors(tmp_path / "x").read("a")
    write_tensors(tmp_path / "x", {"a": torch.zeros(3)})
    (tmp_path / "x").unlink()
    assert tensor.tolist() == [0, 1, 2]


def test_a_tensor_that_is_not_aligned_is_read_right(tmp_path: Path) -> None:
    header = b'{"a":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}} '
    data = torch.tensor([1.5, -2.0], dtype=torch.float64).numpy().tobytes()
    for padding in range(8):
        text = header + b" " * padding
        content = len(text).to_bytes(8, "little") + text + data
        assert from_bytes(content)["a"].tolist() == [1.5, -2.0]


def test_a_byte_that_is_no_truth_value_becomes_one(tmp_path: Path) -> None:
    content = tensors_to_bytes({"mask": torch.tensor([True, False])})
    (tmp_path / "x").write_bytes(content[:-2] + b"\x07\x00")
    assert read_all(tmp_path / "x")["mask"].view(torch.uint8).tolist() == [1, 0]


def test_an_unknown_name_suggests_the_nearest(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {"encoder.weight": torch.zeros(1)})
    with pytest.raises(WeightsError, match=r'did you mean "encoder\.weight"'):
        open_safetensors(tmp_path / "x").shape("encoder.wait")
