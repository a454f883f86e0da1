"""Parameter counts are the published ones, computed; a folder is described by what it holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from kinfolk.api.info import as_json, describe_folder, describe_name, describe_preset
from kinfolk.errors import FolderError, InputError, WeightsError
from kinfolk.models.family import all_families, preset
from support.tiny import is_public

KNOWN = {
    "bert-base-uncased": 109_482_240,
    "bert-large-uncased": 335_141_888,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "albert-base-v2": 11_683_584,
    "albert-large-v2": 17_683_968,
    "albert-xlarge-v2": 58_724_864,
    "albert-xxlarge-v2": 222_595_584,
    "distilbert-base-uncased": 66_362_880,
}
WRITERS = [name for family in all_families() if family.is_conditional for name in family.presets]
PRESETS = [name for family in all_families() if not family.is_conditional for name in family.presets]
# published with the size of the English model, although their vocabularies are others, as is said
ROUGH = ("bert-base-multilingual-cased", "bert-base-chinese")


@pytest.mark.parametrize(("name", "parameters"), KNOWN.items())
def test_a_published_model_has_the_known_number_of_parameters(name: str, parameters: int) -> None:
    assert describe_preset(name).parameters == parameters


@pytest.mark.parametrize("name", [name for name in PRESETS if is_public(preset(name)[0])])
def test_the_reference_counts_the_same_parameters(name: str) -> None:
    from transformers import AutoConfig, AutoModel

    family, chosen = preset(name)
    config = AutoConfig.for_model(family.name, **chosen.config.to_hf())
    options = {"add_pooling_layer": True} if family.has_pooler else {}
    with torch.device("meta"):
        reference = AutoModel.from_config(config, **options)
    assert describe_preset(name).parameters == sum(weight.numel() for weight in reference.parameters())


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ROUGH and describe_preset(name).published])
def test_the_computed_count_is_near_the_published_one(name: str) -> None:
    info = describe_preset(name)
    assert info.published.endswith("M")
    assert info.parameters / 1e6 == pytest.approx(float(info.published[:-1]), rel=0.06)


@pytest.mark.parametrize("name", WRITERS)
def test_a_model_that_writes_texts_tells_its_settings(name: str) -> None:
    info = describe_preset(name)
    assert info.settings is not None
    assert info.settings["vocabulary_size"] > 0
    assert "pad_id" not in info.settings
    if info.published:
        assert info.parameters / 1e6 == pytest.approx(float(info.published[:-1]), rel=0.06)


def test_an_unknown_model_is_reported_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match='did you mean "bert-base-uncased"'):
        describe_preset("bert-base-uncase")
    with pytest.raises(InputError, match='did you mean "transformer-big"'):
        describe_preset("transformer-bigg")


def test_every_relative_stands_after_its_parent() -> None:
    seen: set[str | None] = {None}
    for relative in all_families():
        assert relative.parent in seen
        assert relative.idea
        assert relative.paper
        seen.add(relative.name)


def test_bert_descends_from_the_transformer() -> None:
    parents = {relative.name: relative.parent for relative in all_families()}
    assert parents["bert"] == parents["marian"] == "kinfolk-transformer"


def test_a_folder_tells_its_parts(tiny_bert: Path) -> None:
    info = describe_folder(tiny_bert)
    assert info.family == "BERT"
    assert info.sizes == {"layers": 2, "width": 32, "heads": 4, "inner_width": 64, "context": 40, "vocabulary": 300}
    # tables 300 + 40 + 2 rows and a norm; a block's qkv, output, feed-forward and two norms; the pooler
    block = 3 * (32 * 32 + 32) + (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32) + 2 * 64
    assert info.parameters == 342 * 32 + 64 + 2 * block + (32 * 32 + 32)
    assert info.heads == {"masked_lm": 32 * 32 + 32 + 64 + 300, "next_sentence": 66}
    assert info.head_parameters == sum(info.heads.values())
    assert (info.tokenizer, info.tokens, info.recipe, info.manifest) == ("WordPiece", 300, None, "intact")
    content = as_json(info)
    assert (content["head_parameters"], content["recipe"]) == (info.head_parameters, None)
    assert "settings" not in content


def test_a_recipe_is_reported(minilm: Path) -> None:
    info = describe_folder(minilm)
    assert info.recipe is not None
    assert (info.recipe.pool, info.recipe.normalize, info.manifest) == ("mean", True, "none")


def test_a_damaged_manifest_is_reported_and_damaged_weights_are_refused(tiny_bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tiny_bert, folder)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-2] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert describe_folder(folder).manifest.startswith("damaged: ")
    (folder / "model.safetensors").write_bytes(weights[:-1])
    with pytest.raises(WeightsError):
        describe_folder(folder)


def test_a_published_model_may_be_called_as_the_hub_calls_it() -> None:
    assert describe_name("google-bert/bert-base-uncased") == describe_name("bert-base-uncased")
    with pytest.raises(FolderError, match="somewhere/else: "):
        describe_name("somewhere/else")
