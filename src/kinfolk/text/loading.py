"""Finds a tokenizer's files and converts each kind to one form: the content of a tokenizer.json.

tokenizer.json is preferred; else vocab.txt (WordPiece), vocab.json with merges.txt (BPE), or a sentencepiece model
(Unigram or BPE). Settings come from tokenizer_config.json and special_tokens_map.json beside them. Building the JSON
form first means that every source passes the same check and is loaded in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinfolk.errors import FolderError, TokenizerError
from kinfolk.files import inside, read_json, read_object, read_text, require_file
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
from kinfolk.text.sentencepiece import SentencePieceModel, read_spiece
from kinfolk.text.validation import check_vocabulary

CASED_SHARE = 0.1  # of pieces with capitals
SPIECE_NAMES = ("spiece.model", "sentencepiece.model", "tokenizer.model")
BERT_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def read_source(path: Path, family: str | None = None) -> TokenizerSource:
    """Read a folder, or one tokenizer file (settings are then looked for beside it)."""
    try:
        folder = path if path.is_dir() else path.parent
        file = _find(folder) if path.is_dir() else require_file(path, "tokenizer file or folder")
        settings = read_settings(folder)
        return _read(file, settings, family or _family(folder, settings))
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
        return _sentencepiece(read_spiece(file), settings, family, str(file))
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
    unknown = (recipe.roles | roles_of(settings))["unk"]
    model = families.wordpiece_model(tokens, unknown)
    parts = families.bert_parts(recipe.lowercase and not _cased(tokens), settings)
    return families.assemble(model, parts, recipe, settings, str(file), _added_tokens(settings, tokens, str(file)))


def _cased(tokens: Iterable[str]) -> bool:
    """Does a vocabulary tell capitals apart? To lower-case texts for one that does would lose its words with capitals.

    Of BERT's own the cased one has capitals in 29 % of its pieces, the others in next to none.
    """
    capitals = [token != token.lower() for token in tokens if not token.startswith("[")]
    return sum(capitals) > len(capitals) * CASED_SHARE


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
    return families.assemble(model, parts, recipe, settings, location, _added_tokens(settings, tokens, location))


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
    return families.assemble(model, parts, recipe, settings, location, families.spiece_entries(model_file))


def _added_tokens(settings: dict[str, Any], tokens: dict[str, int], location: str) -> list[dict[str, Any]]:
    """Tokens of added_tokens.json; those that are new must follow the vocabulary without a hole."""
    added = settings.get("added_tokens", {})
    if not all(isinstance(id, int) and not isinstance(id, bool) and token for token, id in added.items()):
        raise TokenizerError(f"{location}: the added_tokens.json beside it is not a list of token -> id")
    return [added_token(id, token, special=False) for token, id in added.items()]
