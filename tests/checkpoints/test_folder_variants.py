"""The forms in which one and the same model is found: old names, prefixes, shards, tensors stored twice, pickles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from kinfolk.checkpoints.folder import read_checkpoint, write_checkpoint
from kinfolk.checkpoints.weights import write_sharded
from kinfolk.errors import WeightsError
from support.tiny import ENCODERS, batch_for, both, change_config, close, one_by_one, our_model, ragged, their_model

Tensors = dict[str, Tensor]
MASKED = "cls.predictions"
IDS = ragged((5, 1, 9))


def rewrite(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    """The folder's weights under other names."""
    tensors = change(load_file(folder / "model.safetensors"))
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")


def check(theirs: Any, folder: Path, case: str = "bert") -> None:
    """What we read from the folder scores masked words as `theirs` does."""
    model, tokens = our_model(folder), batch_for(case, *IDS)
    with torch.no_grad():
        scores = model.scores("masked_lm", tokens, model(tokens))
    close(scores, torch.cat([output[0][0] for output in one_by_one(theirs, case, *IDS)]))


def test_norms_may_be_called_gamma_and_beta(tmp_path: Path) -> None:
    theirs, _ = both("bert", "ForMaskedLM", tmp_path)

    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    rewrite(tmp_path, lambda tensors: {old(name): tensor for name, tensor in tensors.items()})
    assert "bert.embeddings.LayerNorm.gamma" in load_file(tmp_path / "model.safetensors")
    check(theirs, tmp_path)


def test_a_norm_under_both_names_is_refused(tmp_path: Path) -> None:
    both("bert", "ForMaskedLM", tmp_path)
    rewrite(tmp_path, lambda tensors: tensors | {"bert.embeddings.LayerNorm.gamma": torch.ones(16)})
    with pytest.raises(WeightsError, match=r"old and .*new name"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("case", ENCODERS)
def test_a_body_is_read_with_its_prefix_and_without(case: str, tmp_path: Path) -> None:
    theirs, ours = both(case, "Model", tmp_path)
    prefix = ours.family.prefix
    for architectures in ([type(theirs).__name__], None, [ours.family.heads["masked_lm"].architecture]):
        change_config(tmp_path, architectures=architectures)
        assert our_model(tmp_path).state_dict().keys() == ours.state_dict().keys()
    rewrite(tmp_path, lambda tensors: {f"{prefix}.{name}": tensor for name, tensor in tensors.items()})
    again = our_model(tmp_path).state_dict()
    assert all(tensor.equal(again[name]) for name, tensor in ours.state_dict().items())


def test_numbers_of_positions_and_segments_are_no_weights(tmp_path: Path) -> None:
    theirs, _ = both("bert", "ForMaskedLM", tmp_path)
    numbers = {
        "bert.embeddings.position_ids": torch.arange(34)[None],
        "bert.embeddings.token_type_ids": torch.zeros(34),
    }
    rewrite(tmp_path, lambda tensors: tensors | numbers)
    check(theirs, tmp_path)


@pytest.mark.parametrize("case", ENCODERS)
def test_shards_are_read_as_the_reference_writes_them_and_back(case: str, tmp_path: Path) -> None:
    theirs = their_model(case, "ForMaskedLM")
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="5KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    check(theirs.double(), tmp_path / "theirs", case)
    write_checkpoint(tmp_path / "ours", read_checkpoint(tmp_path / "theirs"))
    tensors = load_file(tmp_path / "ours" / "model.safetensors")
    (tmp_path / "ours" / "model.safetensors").unlink()
    write_sharded(tmp_path / "ours", tensors, max_bytes=5000)
    loaded, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    check(loaded.double(), tmp_path / "ours", case)


@pytest.mark.parametrize("case", ENCODERS)
def test_an_untied_table_and_its_bias_are_read_and_written(case: str, tmp_path: Path) -> None:
    theirs, ours = both(case, "ForMaskedLM", tmp_path / "theirs", tie_word_embeddings=False)
    assert ours.heads["masked_lm"].table is not None
    check(theirs, tmp_path / "theirs", case)
    write_checkpoint(tmp_path / "ours", read_checkpoint(tmp_path / "theirs"))
    loaded, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values())
    check(loaded.double(), tmp_path / "ours", case)


def test_tensors_stored_twice_count_once_when_equal(tmp_path: Path) -> None:
    theirs, _ = both("bert", "ForMaskedLM", tmp_path)
    twice = {"decoder.bias": f"{MASKED}.bias", "decoder.weight": "bert.embeddings.word_embeddings.weight"}
    rewrite(tmp_path, lambda tensors: tensors | {f"{MASKED}.{name}": tensors[same] for name, same in twice.items()})
    assert our_model(tmp_path).heads["masked_lm"].table is None
    check(theirs, tmp_path)
    rewrite(tmp_path, lambda tensors: {name: tensors[name] for name in tensors if name != f"{MASKED}.bias"})
    check(theirs, tmp_path)


def test_duplicates_that_differ_are_what_the_reference_computes_with(tmp_path: Path) -> None:
    both("bert", "ForMaskedLM", tmp_path)
    other = {f"{MASKED}.decoder.bias": torch.randn(40), f"{MASKED}.decoder.weight": torch.randn(40, 16)}
    rewrite(tmp_path, lambda tensors: tensors | other)
    check(transformers.BertForMaskedLM.from_pretrained(tmp_path).double(), tmp_path)


def test_an_untied_head_without_its_table_is_refused(tmp_path: Path) -> None:
    both("bert", "ForMaskedLM", tmp_path)
    change_config(tmp_path, tie_word_embeddings=False)
    with pytest.raises(WeightsError, match=rf"1 tensors: {MASKED}\.decoder\.weight"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_written_as_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = their_model("bert", "ForMaskedLM").to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    write_checkpoint(tmp_path / "ours", read_checkpoint(tmp_path / "theirs"))
    loaded = transformers.BertForMaskedLM.from_pretrained(tmp_path / "ours")
    assert loaded.dtype == torch.float32
    check(theirs.double(), tmp_path / "ours")
    check(loaded.double(), tmp_path / "theirs")


def test_a_pickle_is_read_on_request_and_written_as_safetensors(tmp_path: Path) -> None:
    theirs = their_model("bert", "ForMaskedLM")
    theirs.config.architectures = ["BertForMaskedLM"]
    theirs.config.save_pretrained(tmp_path)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    write_checkpoint(tmp_path / "ours", read_checkpoint(tmp_path, allow_pickle=True))
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == ["config.json", "model.safetensors"]
    check(theirs.double(), tmp_path / "ours")
