"""Model folders are not trusted: each fault is one clear line, nothing is executed, no large memory is taken."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kinfolk.api.loaded import load
from kinfolk.errors import ConfigError, FolderError, KinfolkError, TokenizerError, WeightsError
from support.tiny import change_config, change_weights

QUERY = "bert.encoder.layer.1.attention.self.query.weight"
MOST_MEMORY = 500 * 2**20


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """An allocation of gigabytes fails, and fails the test, since a MemoryError is no KinfolkError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(folder: Path, kind: type[KinfolkError], message: str, **options: Any) -> None:
    with pytest.raises(kind, match=message) as caught:
        load(folder, device="cpu", **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_folder_without_a_fault_loads(folder: Path) -> None:
    assert load(folder, device="cpu").embed("A cat.").shape == (16,)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("config.json", FolderError, r"config\.json: no such file"),
        ("model.safetensors", WeightsError, r"no weights; looked for model\.safetensors"),
        ("tokenizer.json", TokenizerError, "no tokenizer there"),
    ],
)
def test_a_missing_file_is_named(folder: Path, name: str, kind: type[KinfolkError], message: str) -> None:
    (folder / name).unlink()
    (folder / "vocab.txt").unlink()
    refused(folder, kind, message)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_named(folder: Path, name: str, kept: float) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(kept * len(content))])
    refused(folder, FolderError, name.replace(".", r"\."))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "brt"}, r'model type "brt" is not one of kinfolk\'s .*did you mean "bert"'),
        ({"model_type": None}, "no model_type"),
        ({"model_type": ["bert"]}, "no model_type"),
        ({"architectures": ["BertLMHeadModel"]}, 'architecture "BertLMHeadModel" is not one kinfolk reads'),
        ({"architectures": "BertModel"}, "architectures is not a list of names"),
        ({"architectures": [["BertModel"]]}, "architectures is not a list of names"),
        ({"is_decoder": True}, "is_decoder='True' is not supported"),
        ({"position_embedding_type": "relative_key"}, "'relative_key' is not supported"),
        ({"hidden_act": "mish"}, "unknown activation 'mish'"),
        ({"hidden_act": ["gelu"]}, "unknown activation"),
        ({"num_attention_heads": 3}, "width 16 cannot be cut into 3 heads"),
        ({"num_attention_heads": 0}, "heads must be at least 1"),
        ({"layer_norm_eps": -1}, "layer_norm_eps=-1 is not a number"),
        ({"hidden_dropout_prob": "0.1"}, r"hidden_dropout_prob=0\.1 is not a number"),
    ],
)
def test_an_impossible_setting_is_named(folder: Path, settings: dict[str, Any], message: str) -> None:
    change_config(folder, **settings)
    refused(folder, ConfigError, message)


def test_a_misspelt_setting_is_named_with_the_right_spelling(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    settings["hiden_size"] = settings.pop("hidden_size")
    (folder / "config.json").write_text(json.dumps(settings))
    refused(folder, ConfigError, r'config\.json: unknown setting "hiden_size"; did you mean "hidden_size"\?')


HUGE = [10**12, 10**9, 10**400, 2**24]
WRONG = [-1, 1.5, "16", True, [16], {}]
SIZES = ["num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size", "max_position_embeddings"]


@pytest.mark.parametrize("size", [*HUGE, *WRONG], ids=lambda size: str(size)[:9])
@pytest.mark.parametrize("name", SIZES)
def test_a_hostile_size_is_refused_before_memory_is_taken(folder: Path, name: str, size: Any) -> None:
    change_config(folder, **{name: size})
    refused(folder, FolderError, r"config\.json|model\.safetensors")


def test_as_many_layers_as_are_allowed_are_refused_by_the_weights(folder: Path) -> None:
    change_config(folder, num_hidden_layers=1000)
    refused(folder, WeightsError, r"missing 15968 tensors: bert\.encoder\.layer\.2\.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({QUERY: None}, rf"missing 1 tensors: {QUERY}"),
        ({"bert.pooler.dense.weight": None}, r"missing 1 tensors: bert\.pooler\.dense\.weight"),
        ({"bert.extra.weight": torch.ones(2)}, r"1 tensors that BERT lacks: bert\.extra\.weight"),
        ({QUERY: torch.ones(16, 15)}, rf"{QUERY} has shape \(16, 15\), the settings ask for \(16, 16\)"),
        ({QUERY: torch.full((16, 16), torch.nan)}, rf"{QUERY} holds NaN or infinite numbers"),
        ({"cls.predictions.bias": torch.tensor([torch.inf] + [0.0] * 319)}, "holds NaN or infinite numbers"),
        ({QUERY: torch.ones(16, 16, dtype=torch.int32)}, r"holds torch\.int32, not floating-point numbers"),
    ],
)
def test_a_wrong_tensor_is_named(folder: Path, changes: dict[str, Any], message: str) -> None:
    change_weights(folder, changes)
    refused(folder, WeightsError, message)


def test_a_head_that_reads_the_pooler_is_refused_without_one(folder: Path) -> None:
    change_weights(folder, dict.fromkeys(("bert.pooler.dense.weight", "bert.pooler.dense.bias")))
    refused(folder, WeightsError, "the next_sentence head reads the pooler's output, but there is no pooler")


def test_finite_numbers_whose_sum_overflows_are_no_fault(folder: Path) -> None:
    change_weights(folder, {QUERY: torch.full((16, 16), 3e38)})
    load(folder, device="cpu")
