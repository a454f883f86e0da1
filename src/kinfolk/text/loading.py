"""The files of a tokenizer: each kind is read as one form, the content of a tokenizer.json, and written from it.

tokenizer.json is preferred; else vocab.txt (WordPiece), vocab.json with merges.txt (BPE), or a sentencepiece model
(Unigram or BPE). Settings come from tokenizer_config.json and special_tokens_map.json beside them. Building the JSON
form first means that every source passes the same check and is loaded in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinfolk.errors import FolderError, TokenizerError
from kinfolk.files import inside, read_bytes, read_json, read_object, read_text, require_file, write_bytes, write_json
from kinfolk.text import families
from kinfolk.text.families import (
    RECIPES,
    TokenizerSource,
    added_token,
    family_of,
    flag,
    guess_roles,
    recipe_for,
    roles_of,
)
from kinfolk.text.sentencepiece import CONTROL, MAX_MODEL_BYTES, USER_DEFINED, SentencePieceModel, parse_spiece
from kinfolk.text.validation import check_vocabulary

CASED_SHARE = 0.1  # of pieces with capitals: 29 % in BERT's cased vocabulary, next to none in the others
SPIECE_NAMES = ("spiece.model", "sentencepiece.model", "tokenizer.model")
LARGEST_LENGTH = 10**9  # files write 1e30 for "no limit"
FLAGS = ("do_lower_case", "keep_accents", "add_prefix_space")
BERT_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def read_source(path: Path, family: str | None = None) -> TokenizerSource:
    """Read a folder, or one tokenizer file (settings are then looked for beside it)."""
    with tokenizer_errors(path):
        folder = path if path.is_dir() else path.parent
        file = _find(folder) if path.is_dir() else require_file(path, "tokenizer file or folder")
        settings = read_settings(folder)
        return _read(file, settings, family or _family(folder, settings))


@contextmanager
def tokenizer_errors(path: str | Path) -> Iterator[None]:
    """Whatever fails in this block while the files at `path` are read becomes a TokenizerError."""
    try:
        yield
    except TokenizerError:
        raise
    except FolderError as error:
        raise TokenizerError(str(error)) from None
    except (OSError, ValueError) as error:  # a name that the system refuses, for one
        raise TokenizerError(f"{str(path)[:200]!r}: cannot be read ({error})") from None


def _find(folder: Path) -> Path:
    for name in ("tokenizer.json", "vocab.txt", "vocab.json", *SPIECE_NAMES):
        if (folder / name).is_file():
            return inside(folder, name)
    expected = "tokenizer.json, vocab.txt, vocab.json with merges.txt, or spiece.model"
    raise TokenizerError(f"{folder}: no tokenizer there; expected {expected}")


def read_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, completed by special_tokens_map.json and added_tokens.json; nulls are left out."""
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            settings |= {key: value for key, value in read_object(inside(folder, name)).items() if value is not None}
    settings.pop("added_tokens", None)
    if (folder / "added_tokens.json").is_file():
        settings["added_tokens"] = read_object(inside(folder, "added_tokens.json"))
    return settings


def _family(folder: Path, settings: dict[str, Any]) -> str | None:
    """The model_type of config.json, else what the class named in the settings is for."""
    family = None
    if (folder / "config.json").is_file():
        family = read_object(inside(folder, "config.json")).get("model_type")
    return family if isinstance(family, str) else family_of(settings.get("tokenizer_class"))


def _read(file: Path, settings: dict[str, Any], family: str | None) -> TokenizerSource:
    if file.suffix == ".txt":
        return _wordpiece(file, settings, family)
    if file.suffix == ".model":
        return _sentencepiece(parse_spiece(read_bytes(file, MAX_MODEL_BYTES), str(file)), settings, family, str(file))
    if file.suffix != ".json":
        raise TokenizerError(f"{file}: expected a .json, .txt or .model file")
    content = read_json(file)
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        return _tokenizer_json(content, settings, family, str(file))
    return _bpe(content, file, settings, family)


def _tokenizer_json(
    document: dict[str, Any], settings: dict[str, Any], family: str | None, location: str
) -> TokenizerSource:
    """A tokenizer.json; BERT's settings beside it overrule what it says, as the reference has it."""
    normalizer = document.get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        changes = {ours: flag(settings, theirs, True) for theirs, ours in BERT_SETTINGS.items() if theirs in settings}
        document = {**document, "normalizer": {**normalizer, **changes}}
    roles = roles_of(settings) or guess_roles(document)
    reads_segments = recipe_for(family, "bert" if roles.get("cls") == "[CLS]" else "roberta").segments
    names = families.WITH_SEGMENTS if reads_segments else families.WITHOUT_SEGMENTS
    settings = {"model_input_names": names} | settings
    settings.pop("added_tokens", None)  # tokenizer.json has its own list
    return TokenizerSource(document, roles, settings, location)


def _wordpiece(file: Path, settings: dict[str, Any], family: str | None) -> TokenizerSource:
    lines = read_text(file).split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    tokens = {line.rstrip(): id for id, line in enumerate(lines)}  # of doubles the last counts
    recipe = recipe_for(family, "mpnet" if "<s>" in tokens and "[CLS]" not in tokens else "bert")
    model = families.wordpiece_model(tokens, (recipe.roles | roles_of(settings))["unk"])
    # to lower-case texts for a vocabulary that tells capitals apart would lose its words with capitals
    capitals = [token != token.lower() for token in tokens if not token.startswith("[")]
    cased = sum(capitals) > len(capitals) * CASED_SHARE
    parts = families.bert_parts(recipe.lowercase and not cased, settings)
    return families.assemble(model, parts, recipe, settings, str(file), _added_tokens(settings, str(file)))


def _bpe(tokens: Any, file: Path, settings: dict[str, Any], family: str | None) -> TokenizerSource:
    location = str(file)
    if not isinstance(tokens, dict):
        raise TokenizerError(f"{location}: neither a tokenizer.json nor a vocabulary (token -> id)")
    tokens = check_vocabulary(tokens, location)
    merges_file = inside(file.parent, "merges.txt")
    if not merges_file.is_file():
        raise TokenizerError(f"{location}: needs merges.txt beside it")
    guess = "roberta" if "<s>" in tokens else "gpt2" if "<|endoftext|>" in tokens else "openai-gpt"
    recipe = recipe_for(family, guess)
    merges = _merges(merges_file)
    if recipe.word_suffix:
        unknown = (recipe.roles | roles_of(settings))["unk"]
        model = families.bpe_model(tokens, merges, unknown, suffix=recipe.word_suffix)
        decoder = {"type": "BPEDecoder", "suffix": recipe.word_suffix}
        parts = {**families.bert_parts(True, {}), "decoder": decoder}
    else:
        model = families.bpe_model(tokens, merges)
        parts = families.byte_level_parts(flag(settings, "add_prefix_space", False))
    return families.assemble(model, parts, recipe, settings, location, _added_tokens(settings, location))


def _merges(file: Path) -> list[list[str]]:
    merges = []
    for number, line in enumerate(read_text(file).split("\n"), 1):
        pair = line.rstrip("\r").split(" ")
        if line.startswith("#version") or pair == [""]:
            continue
        if len(pair) != 2:
            raise TokenizerError(f"{file}:{number}: expected two tokens, found {line[:40]!r}")
        merges.append(pair)
    return merges


def _sentencepiece(
    model_file: SentencePieceModel, settings: dict[str, Any], family: str | None, location: str
) -> TokenizerSource:
    tokens = {piece.text: id for id, piece in enumerate(model_file.pieces)}
    if len(tokens) != len(model_file.pieces):
        raise TokenizerError(f"{location}: duplicate piece; the file is damaged")
    recipe = recipe_for(family, "albert" if "[CLS]" in tokens else "xlnet" if "<cls>" in tokens else "sentencepiece")
    if recipe.roberta or recipe.word_suffix:
        raise TokenizerError(f"{location}: {family} is not read from a sentencepiece file; it needs a tokenizer.json")
    if recipe is RECIPES["sentencepiece"]:
        present = {role: token for role, token in recipe.roles.items() if token in tokens}
        recipe = replace(recipe, roles={**present, "unk": model_file.pieces[model_file.unknown].text})
    model, parts = families.spiece_model(model_file, tokens), families.spiece_parts(model_file, recipe, settings)
    extra = [  # matched in a text before anything else
        added_token(id, piece.text, special=piece.kind == CONTROL)
        for id, piece in enumerate(model_file.pieces)
        if piece.kind in (CONTROL, USER_DEFINED)
    ]
    return families.assemble(model, parts, recipe, settings, location, extra)


def _added_tokens(settings: dict[str, Any], location: str) -> list[dict[str, Any]]:
    """Tokens of added_tokens.json; those that are new must follow the vocabulary without a hole."""
    added = settings.get("added_tokens", {})
    if not all(isinstance(id, int) and not isinstance(id, bool) and token for token, id in added.items()):
        raise TokenizerError(f"{location}: the added_tokens.json beside it is not a list of token -> id")
    return [added_token(id, token, special=False) for token, id in added.items()]


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
    """Write tokenizer.json, its settings and the plain vocabulary where there is one; transformers reads equal ids."""
    document = json.loads(tokenizer_json)
    roles = {f"{role}_token": token for role, token in special.items()}
    normalizer, pre_tokenizer = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    if normalizer.get("type") == "BertNormalizer":  # what a reader of vocab.txt needs to know
        settings = settings | {theirs: normalizer[ours] for theirs, ours in BERT_SETTINGS.items()}
    write_bytes(folder / "tokenizer.json", (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode())
    # the class that takes tokenizer.json as it is; a family's own class would rebuild it from defaults
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **settings, **roles})
    write_json(folder / "special_tokens_map.json", roles)
    model = document["model"]
    if model["type"] == "WordPiece":
        by_id = sorted(model["vocab"], key=model["vocab"].__getitem__)
        if [model["vocab"][token] for token in by_id] == list(range(len(by_id))):
            write_bytes(folder / "vocab.txt", "".join(f"{token}\n" for token in by_id).encode())
    # vocab.json with merges.txt says it all for byte-level BPE and for pieces with an end mark
    if model["type"] == "BPE" and (pre_tokenizer.get("type") == "ByteLevel" or model.get("end_of_word_suffix")):
        write_bytes(folder / "vocab.json", json.dumps(model["vocab"], ensure_ascii=False).encode())
        lines = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
        write_bytes(folder / "merges.txt", ("\n".join(lines) + "\n").encode())
