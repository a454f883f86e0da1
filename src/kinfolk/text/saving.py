"""Writes a tokenizer folder that this package and transformers read with equal ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kinfolk.files import write_bytes, write_json
from kinfolk.text.loading import BERT_SETTINGS

LARGEST_LENGTH = 10**9  # files write 1e30 for "no limit"
FLAGS = ("do_lower_case", "keep_accents", "add_prefix_space")


def kept_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that matter beyond tokenizer.json, as far as they make sense."""
    kept = {name: settings[name] for name in FLAGS if isinstance(settings.get(name), bool)}
    length, names, side = (settings.get(name) for name in ("model_max_length", "model_input_names", "padding_side"))
    if isinstance(length, int | float) and not isinstance(length, bool) and 1 <= length < LARGEST_LENGTH:
        kept["model_max_length"] = int(length)
    if isinstance(names, list) and all(isinstance(name, str) and name.isidentifier() for name in names):
        kept["model_input_names"] = names
    return {**kept, "padding_side": side} if side in ("left", "right") else kept


def save_folder(folder: Path, tokenizer_json: str, special: dict[str, str], settings: dict[str, Any]) -> None:
    """tokenizer.json, tokenizer_config.json, special_tokens_map.json, and the plain vocabulary where there is one."""
    document = json.loads(tokenizer_json)
    roles = {f"{role}_token": token for role, token in special.items()}
    # the class that takes tokenizer.json as it is; a family's own class would rebuild it from defaults
    config = settings | _bert_settings(document) | roles
    write_bytes(folder / "tokenizer.json", (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode())
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **config})
    write_json(folder / "special_tokens_map.json", roles)
    model = document["model"]
    if model["type"] == "WordPiece":
        by_id = sorted(model["vocab"], key=model["vocab"].__getitem__)
        if [model["vocab"][token] for token in by_id] == list(range(len(by_id))):
            write_bytes(folder / "vocab.txt", "".join(f"{token}\n" for token in by_id).encode())
    if model["type"] == "BPE" and _readable_bpe(document):
        write_bytes(folder / "vocab.json", json.dumps(model["vocab"], ensure_ascii=False).encode())
        lines = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
        write_bytes(folder / "merges.txt", ("\n".join(lines) + "\n").encode())


def _bert_settings(document: dict[str, Any]) -> dict[str, Any]:
    """What a reader of vocab.txt needs to know."""
    normalizer = document.get("normalizer") or {}
    if normalizer.get("type") != "BertNormalizer":
        return {}
    return {theirs: normalizer[ours] for theirs, ours in BERT_SETTINGS.items()}


def _readable_bpe(document: dict[str, Any]) -> bool:
    """Does vocab.json with merges.txt say it all? For byte-level BPE and for pieces with an end mark."""
    pre_tokenizer = document.get("pre_tokenizer") or {}
    return pre_tokenizer.get("type") == "ByteLevel" or bool(document["model"].get("end_of_word_suffix"))
