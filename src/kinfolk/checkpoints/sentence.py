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
CONFIG_FILE, LIMITS = "config_sentence_transformers.json", "sentence_bert_config.json"
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
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise ConfigError(f"{path}: {', '.join(kinds)[:200]} are not Transformer, Pooling and perhaps Normalize")
    if steps[0].get("path", "") not in ("", "."):
        raise ConfigError(f"{path}: the model lies in {steps[0].get('path')!r}; load that folder instead")
    limits, saved = (_optional(inside(folder, name)) for name in (LIMITS, CONFIG_FILE))
    max_length = limits.get("max_seq_length")
    if max_length is not None and (type(max_length) is not int or max_length < 3):
        raise ConfigError(f"{folder}/{LIMITS}: max_seq_length={str(max_length)[:60]} makes no sense")
    prompts, default = saved.get("prompts"), saved.get("default_prompt_name")
    prompt: Any = ""
    if default is not None:
        prompt = prompts.get(default) if isinstance(prompts, dict) and isinstance(default, str) else None
        if not isinstance(prompt, str):
            raise ConfigError(f"{folder}/{CONFIG_FILE}: no prompt is called {str(default)[:60]!r}")
    pool = _read_pool(folder, str(steps[1].get("path", "")), prompt)
    return SentenceRecipe(pool, "Normalize" in kinds, max_length, limits.get("do_lower_case") is True, prompt, saved)


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.exists() else {}


def _read_pool(folder: Path, name: str, prompt: str) -> str:
    path = inside(folder, f"{name}/config.json" if name else "config.json")
    settings = read_object(path)
    if prompt and settings.get("include_prompt") is False:
        raise ConfigError(f"{path}: leaving the prompt out of the pooling (include_prompt) is not supported")
    known, chosen = PUBLIC_POOLS, [settings.get("pooling_mode")]  # the newer layout names the mode
    if not isinstance(chosen[0], str):
        known = POOLS
        chosen = [mode for mode, on in settings.items() if mode.startswith("pooling_mode_") and on is True]
    if len(chosen) == 1 and chosen[0] in known:
        return known[chosen[0]]
    raise ConfigError(f"{path}: pooling by {', '.join(map(str, chosen))[:200] or 'nothing'} is not supported")


def write_recipe(folder: Path, recipe: SentenceRecipe, width: int) -> None:
    """The files that make a model folder one of sentence-transformers' as well."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if recipe.normalize else {})
    steps = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(kinds.items())
    ]
    write_json(folder / "modules.json", steps)
    modes = {mode: name == recipe.pool for mode, name in POOLS.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})
    write_json(folder / LIMITS, {"max_seq_length": recipe.max_length, "do_lower_case": recipe.lowercase})
    prompts = {"prompts": {"default": recipe.prompt}, "default_prompt_name": "default"} if recipe.prompt else {}
    if recipe.told or prompts:
        write_json(folder / CONFIG_FILE, dict(recipe.told) or prompts)
