"""Writes the content of a tokenizer.json from its ingredients: a vocabulary, a family's habits, and settings."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from kinfolk.errors import TokenizerError, first_few
from kinfolk.text.families import ROLES, Recipe, added_token, post_processor, special_entries
from kinfolk.text.spiece import BPE, CONTROL, USER_DEFINED, SentencePieceModel

WITH_SEGMENTS = ["input_ids", "token_type_ids", "attention_mask"]
WITHOUT_SEGMENTS = ["input_ids", "attention_mask"]
BLANK = "▁"


@dataclass(frozen=True)
class Source:
    """A tokenizer as read: the JSON form, the special tokens by role, further settings, and where it came from."""

    document: dict[str, Any]
    roles: dict[str, str]
    settings: dict[str, Any]
    where: str


def roles_of(settings: dict[str, Any]) -> dict[str, str]:
    """Role -> token as the settings name them; a token is text, or an object with its content."""
    roles = {}
    for role in ROLES:
        token = settings.get(f"{role}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if token is not None and not (isinstance(token, str) and 0 < len(token) <= 200):
            raise TokenizerError(f"tokenizer settings: {role}_token is not a token: {str(token)[:40]!r}")
        if token is not None:
            roles[role] = token
    return roles


def flag(settings: dict[str, Any], name: str, default: bool) -> bool:
    """A setting that must be true or false."""
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise TokenizerError(f"tokenizer settings: {name} must be true or false, not {str(value)[:40]!r}")
    return value


def bert_parts(lowercase: bool, settings: dict[str, Any]) -> dict[str, Any]:
    """BERT's way to words: clean, lower-case, then split at blanks, punctuation and Chinese characters."""
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": flag(settings, "tokenize_chinese_chars", True),
        "strip_accents": flag(settings, "strip_accents", True) if "strip_accents" in settings else None,
        "lowercase": flag(settings, "do_lower_case", lowercase),
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": decoder}


def byte_parts(prefix: bool) -> dict[str, Any]:
    """GPT-2's way to words: bytes spelled as letters, a word owns the blank before it."""
    level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    return {"normalizer": None, "pre_tokenizer": level, "decoder": {**level, "add_prefix_space": True}}


def blank_parts(steps: list[dict[str, Any]], prepend: bool = True, squeeze: bool = True) -> dict[str, Any]:
    """sentencepiece's way to words: normalising steps, then blanks become part of the pieces."""
    scheme = "always" if prepend else "never"
    blank = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": scheme, "split": True}
    split = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, blank]}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": split if squeeze else blank,
        "decoder": blank,
    }


def wordpiece_model(tokens: dict[str, int], unknown: str) -> dict[str, Any]:
    """BERT's model: the longest piece that fits, again and again."""
    return {
        "type": "WordPiece",
        "unk_token": unknown,
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": tokens,
    }


def bpe_model(
    tokens: dict[str, int], merges: list[list[str]], unknown: str | None = None, fuse: bool = False, suffix: str = ""
) -> dict[str, Any]:
    """Pieces merged in the order of `merges`."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": suffix,
        "fuse_unk": fuse,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": tokens,
        "merges": merges,
    }


def spiece_model(found: SentencePieceModel, tokens: dict[str, int]) -> dict[str, Any]:
    """The model of a sentencepiece file."""
    if found.kind != BPE:
        scored = [[piece.text, piece.score] for piece in found.pieces]
        return {"type": "Unigram", "unk_id": found.unknown, "byte_fallback": found.byte_fallback, "vocab": scored}
    # sentencepiece stores no merges: a piece may be made of any two others, and earlier pieces win
    merges = []
    for piece, number in tokens.items():
        for cut in range(1, len(piece)):
            first, second = piece[:cut], piece[cut:]
            if first in tokens and second in tokens:
                merges.append((number, len(first), len(second), first, second))
    ordered = [[first, second] for *_, first, second in sorted(merges)]
    model = bpe_model(tokens, ordered, found.pieces[found.unknown].text, fuse=True)
    return {**model, "byte_fallback": found.byte_fallback}


def spiece_parts(found: SentencePieceModel, recipe: Recipe, settings: dict[str, Any]) -> dict[str, Any]:
    """ALBERT and XLNet unify quotes and strip accents before sentencepiece's own table; other models do not."""
    steps: list[dict[str, Any]] = []
    if recipe.quotes:
        steps += [{"type": "Replace", "pattern": {"String": quote}, "content": '"'} for quote in ("``", "''")]
        if recipe.strips_always or not flag(settings, "keep_accents", False):
            steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if flag(settings, "do_lower_case", recipe.lowercase):
        steps.append({"type": "Lowercase"})
    if found.charsmap:
        table = base64.b64encode(found.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    return blank_parts(steps, found.adds_blank, found.removes_blanks)


def spiece_entries(found: SentencePieceModel) -> list[dict[str, Any]]:
    """Control and user-defined pieces, which are found in a text before anything else."""
    return [
        added_token(number, piece.text, special=piece.kind == CONTROL)
        for number, piece in enumerate(found.pieces)
        if piece.kind in (CONTROL, USER_DEFINED)
    ]


def assemble(
    model: dict[str, Any],
    parts: dict[str, Any],
    recipe: Recipe,
    settings: dict[str, Any],
    where: str,
    further: list[dict[str, Any]] | None = None,
) -> Source:
    """The JSON form: model and parts, with the family's special tokens and layout; `further` are more added tokens."""
    found = model["vocab"]
    tokens = found if isinstance(found, dict) else {piece: number for number, (piece, _) in enumerate(found)}
    tokens = tokens | {entry["content"]: entry["id"] for entry in further or []}
    roles = recipe.roles | roles_of(settings)
    needed = {"cls", "sep"} if recipe.roberta or "cls" in recipe.layout[0] else set()
    needed |= {"unk"} if model["type"] == "WordPiece" else set()
    missing = sorted(roles[role] for role in needed if roles[role] not in tokens)
    if missing:
        raise TokenizerError(f"{where}: the vocabulary lacks the special token {first_few(missing)}")
    entries = {entry["content"]: entry for entry in further or []}
    entries |= {entry["content"]: entry for entry in special_entries(tokens, roles, eats_blank=recipe.roberta)}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(entries.values(), key=lambda entry: entry["id"]),
        **parts,
        "post_processor": post_processor(recipe, roles, tokens),
        "model": model,
    }
    habits = {
        "model_input_names": WITH_SEGMENTS if recipe.segments else WITHOUT_SEGMENTS,
        "padding_side": "left" if recipe.pads_left else "right",
    }
    return Source(document, {role: token for role, token in roles.items() if token in tokens}, habits | settings, where)
