"""sentence-transformers folders: how a text's vector is made of its tokens' vectors.

modules.json lists the steps (the model, a pooling, perhaps a normalisation); 1_Pooling/config.json says which pooling,
sentence_bert_config.json how long a text may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfolk.errors import ConfigError
from kinfolk.files import inside, read_json, read_object, write_json

POOLS = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
CONFIG_FILE = "config_sentence_transformers.json"
PUBLIC_POOLS = {"cls": "first", "mean": "mean", "max": "max"}


@dataclass(frozen=True)
class SentenceRecipe:
    """What modules.json asks for."""

    pool: str = "mean"
    normalize: bool = False
    max_length: int | None = None
    lowercase: bool = False
    prompt: str = ""
    # All of config_sentence_transformers.json, handed on by a save; pickles know it by this name.
    told: Mapping[str, Any] = field(default_factory=dict, compare=False)


def read_recipe(folder: Path) -> SentenceRecipe | None:
    """The recipe of a folder, or None where it has no modules.json."""
    path = inside(folder, "modules.json")
    if not path.exists():
        return None
    steps = read_json(path)
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ConfigError(f"{path}: expected a list of modules")
    kinds = [str(step.get("type", "")).rsplit(".", 1)[-1] for step in steps]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ConfigError(
            f"{path}: the steps {', '.join(kinds)[:200]} are not Transformer, Pooling and perhaps Normalize"
        )
    if steps[0].get("path", "") not in ("", "."):
        raise ConfigError(f"{path}: the model lies in {steps[0].get('path')!r}; load that folder instead")
    limits = _optional_object(folder, "sentence_bert_config.json")
    max_length = limits.get("max_seq_length")
    if max_length is not None and (type(max_length) is not int or max_length < 3):
        raise ConfigError(f"{folder}/sentence_bert_config.json: max_seq_length={str(max_length)[:60]} makes no sense")
    saved = _optional_object(folder, CONFIG_FILE)
    prompt, prompts, default = "", saved.get("prompts"), saved.get("default_prompt_name")
    if default is not None:
        if not isinstance(prompts, dict) or not isinstance(default, str) or not isinstance(prompts.get(default), str):
            raise ConfigError(f"{folder}/{CONFIG_FILE}: no prompt is called {str(default)[:60]!r}")
        prompt = prompts[default]
    pool = _read_pool(folder, str(steps[1].get("path", "")), prompt)
    return SentenceRecipe(pool, "Normalize" in kinds, max_length, limits.get("do_lower_case") is True, prompt, saved)


def _read_pool(folder: Path, name: str, prompt: str) -> str:
    path = inside(folder, f"{name}/config.json" if name else "config.json")
    settings = read_object(path)
    if prompt and settings.get("include_prompt") is False:
        raise ConfigError(f"{path}: leaving the prompt out of the pooling (include_prompt) is not supported")
    known, chosen = PUBLIC_POOLS, [settings.get("pooling_mode")]  # the newer layout names the mode
    if not isinstance(chosen[0], str):
        known, chosen = (
            POOLS,
            [mode for mode, on in settings.items() if mode.startswith("pooling_mode_") and on is True],
        )
    if len(chosen) == 1 and chosen[0] in known:
        return known[chosen[0]]
    raise ConfigError(f"{path}: pooling by {', '.join(map(str, chosen))[:200] or 'nothing'} is not supported")


def _optional_object(folder: Path, name: str) -> dict[str, Any]:
    path = inside(folder, name)
    return read_object(path) if path.exists() else {}


def write_recipe(folder: Path, recipe: SentenceRecipe, width: int) -> None:
    """The files that make a model folder one of sentence-transformers' as well."""
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * recipe.normalize
    paths = ["", "1_Pooling", "2_Normalize"]
    steps = [
        {"idx": index, "name": str(index), "path": paths[index], "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", steps)
    modes = {mode: name == recipe.pool for mode, name in POOLS.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})
    limits = {"max_seq_length": recipe.max_length, "do_lower_case": recipe.lowercase}
    write_json(folder / "sentence_bert_config.json", limits)
    prompts = {"prompts": {"default": recipe.prompt}, "default_prompt_name": "default"} if recipe.prompt else {}
    if recipe.told or prompts:
        write_json(folder / CONFIG_FILE, dict(recipe.told) or prompts)
