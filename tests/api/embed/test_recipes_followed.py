"""modules.json is followed: pooling, unit length, maximum length, prompt and case."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from kinfolk.api.loaded import load
from kinfolk.checkpoints.folder import SentenceRecipe, read_recipe, write_recipe
from kinfolk.demo import passages
from kinfolk.errors import ConfigError, KinfolkError
from kinfolk.files import write_json

TEXTS = ["Cats sleep.", "", *passages()[:6]]


def with_recipe(source: Path, folder: Path, recipe: SentenceRecipe) -> Path:
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("kinfolk.json"))
    write_recipe(folder, recipe, 16)
    return folder


@pytest.mark.parametrize(
    "recipe",
    [
        SentenceRecipe("mean", True),
        SentenceRecipe("first"),
        SentenceRecipe("max", max_length=20),
        SentenceRecipe("mean", prompt="question: "),
    ],
    ids=str,
)
def test_a_folder_gives_the_vectors_that_sentence_transformers_gives(
    five_layers: Path, tmp_path: Path, recipe: SentenceRecipe
) -> None:
    folder = with_recipe(five_layers, tmp_path / "folder", recipe)
    theirs = SentenceTransformer(str(folder), device="cpu")
    length = recipe.max_length or 60
    assert (theirs.max_seq_length or 60) == length
    ours = load(folder, device="cpu")
    with warnings.catch_warnings(action="ignore"):  # some texts are cut, as they are there
        vectors = ours.embed(TEXTS, on_long="cut")
    np.testing.assert_allclose(vectors, theirs.encode(TEXTS), rtol=0, atol=1e-5)


def test_a_saved_folder_loads_in_sentence_transformers_with_equal_vectors(five_layers: Path, tmp_path: Path) -> None:
    recipe = SentenceRecipe("mean", True, max_length=40, prompt="query: ")
    ours = load(with_recipe(five_layers, tmp_path / "folder", recipe), device="cpu")
    saved = ours.save(tmp_path / "saved")
    assert read_recipe(saved) == recipe
    theirs = SentenceTransformer(str(saved), device="cpu")
    np.testing.assert_allclose(ours.embed(TEXTS[:2]), theirs.encode(TEXTS[:2]), rtol=0, atol=1e-6)


def test_naming_layers_or_pooling_sets_the_recipe_aside(five_layers: Path, tmp_path: Path) -> None:
    recipe = SentenceRecipe("first", True, max_length=40, prompt="query: ")
    ours = load(with_recipe(five_layers, tmp_path / "folder", recipe), device="cpu")
    plain = replace(ours, recipe=None)
    assert np.array_equal(ours.embed("A cat.", pool="mean"), plain.embed("A cat."))
    assert np.array_equal(ours.embed("A cat.", layers="first"), plain.embed("A cat.", layers="first"))
    assert np.array_equal(ours.embed("A cat.", normalize=False), plain.embed("query: A cat.", pool="first"))


def test_lower_case_is_asked_for_by_the_recipe(five_layers: Path, tmp_path: Path) -> None:
    ours = load(with_recipe(five_layers, tmp_path / "folder", SentenceRecipe(lowercase=True)), device="cpu")
    assert ours.embed_settings().lowercase


@pytest.mark.parametrize(
    ("settings", "pool"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode_max_tokens": True}, "max"),
    ],
)
def test_old_and_new_pooling_files_are_read(settings: dict[str, Any], pool: str, tmp_path: Path) -> None:
    write_recipe(tmp_path, SentenceRecipe(), 16)
    write_json(tmp_path / "1_Pooling" / "config.json", settings)
    assert read_recipe(tmp_path) == SentenceRecipe(pool)


FAULTS: list[tuple[str, Any, str]] = [
    ("modules.json", {}, "expected a list of modules"),
    ("modules.json", [1], "expected a list of modules"),
    ("modules.json", [{"type": "x.Transformer"}], "are not Transformer, Pooling"),
    (
        "modules.json",
        [{"type": "x.Transformer"}, {"type": "x.Pooling"}, {"type": "x.Dense"}],
        "Transformer, Pooling, Dense",
    ),
    (
        "modules.json",
        [{"type": "x.Transformer", "path": "0_Transformer"}, {"type": "x.Pooling"}],
        "load that folder instead",
    ),
    ("modules.json", [{"type": "x.Transformer"}, {"type": "x.Pooling", "path": "../outside"}], "leaves the folder"),
    ("modules.json", [{"type": "x.Transformer"}, {"type": "x.Pooling", "path": "/etc"}], "leaves the folder"),
    ("modules.json", [{"type": "x.Transformer"}, {"type": "x.Pooling", "path": "2_Missing"}], "no such file"),
    ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "is not supported"),
    ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "pooling by weightedmean is not supported"),
    ("1_Pooling/config.json", {}, "pooling by nothing is not supported"),
    ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length=-1 makes no sense"),
    ("sentence_bert_config.json", {"max_seq_length": "10"}, "max_seq_length=10 makes no sense"),
    ("sentence_bert_config.json", [], "expected a JSON object"),
    ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "no prompt is called 'q'"),
    ("config_sentence_transformers.json", {"default_prompt_name": [1], "prompts": {}}, "no prompt is called"),
]


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_a_wrong_recipe_is_one_clear_line(name: str, content: Any, message: str, tmp_path: Path) -> None:
    write_recipe(tmp_path, SentenceRecipe(), 16)
    write_json(tmp_path / name, content)
    with pytest.raises(KinfolkError, match=message):
        read_recipe(tmp_path)


def test_a_prompt_outside_the_pooling_is_refused(tmp_path: Path) -> None:
    write_recipe(tmp_path, SentenceRecipe(prompt="query: "), 16)
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "mean", "include_prompt": False})
    with pytest.raises(ConfigError, match="include_prompt"):
        read_recipe(tmp_path)


def test_a_maximum_length_beyond_the_model_is_the_models(five_layers: Path, tmp_path: Path) -> None:
    ours = load(with_recipe(five_layers, tmp_path / "folder", SentenceRecipe(max_length=512)), device="cpu")
    assert ours.embed_settings().size == 60


def test_a_folder_without_modules_has_no_recipe(tmp_path: Path) -> None:
    assert read_recipe(tmp_path) is None
    (tmp_path / "modules.json").write_text("[")
    with pytest.raises(KinfolkError, match="not valid JSON") as caught:
        read_recipe(tmp_path)
    assert not isinstance(caught.value, ConfigError)


def test_prompts_and_what_else_is_there_are_handed_on(five_layers: Path, tmp_path: Path) -> None:
    settings = {
        "prompts": {"query": "q: ", "document": "d: "},
        "similarity_fn_name": "dot",
        "default_prompt_name": None,
    }
    folder = with_recipe(five_layers, tmp_path / "model", SentenceRecipe("mean"))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    saved = load(folder, device="cpu").save(tmp_path / "copy")
    assert json.loads((saved / "config_sentence_transformers.json").read_text()) == settings
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings | {"default_prompt_name": "query"}))
    again = load(load(folder, device="cpu").save(tmp_path / "again"), device="cpu")
    assert again.recipe is not None
    assert again.recipe.prompt == "q: "
    assert again.recipe.told["prompts"] == settings["prompts"]
