"""Vets the vocabulary of a tokenizer: distinct tokens, distinct ids in range, an unknown token where one is needed."""

from __future__ import annotations

import math
from typing import Any

from kinfolk.errors import TokenizerError

MOST_TOKENS = 4_000_000
MOST_ADDED = 100_000
LONGEST_TOKEN = 512  # characters; the longest in public vocabularies are runs of blanks or dashes


def check_model(model: dict[str, Any], where: str) -> dict[str, int]:
    """Token -> id of a model from tokenizer.json, or a TokenizerError."""
    found = model.get("vocab")
    if model["type"] == "Unigram":
        vocabulary = _scored(found, where)
        if not model.get("unk_id", 0) < len(vocabulary):
            raise TokenizerError(f"{where}: unk_id {model['unk_id']} is outside the vocabulary")
        if not isinstance(model.get("unk_id"), int):
            raise TokenizerError(f"{where}: the Unigram model has no unk_id")
        return vocabulary
    vocabulary = numbered(found, where)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in vocabulary:
        raise TokenizerError(f"{where}: the unknown token {unknown!r} is not in the vocabulary")
    if unknown is None and model["type"] != "BPE":
        raise TokenizerError(f"{where}: the {model['type']} model names no unk_token")
    if model["type"] == "BPE":
        _check_merges(model, vocabulary, where)
    return vocabulary


def check_added(added: Any, vocabulary: dict[str, int], where: str) -> dict[str, int]:
    """Token -> id of the added tokens; those that the vocabulary has must agree, the others must follow it."""
    if added is None:
        return {}
    if not isinstance(added, list) or len(added) > MOST_ADDED:
        raise TokenizerError(f"{where}: added_tokens is not a list of reasonable length")
    found: dict[str, int] = {}
    owners = {number: token for token, number in vocabulary.items()}
    for entry in added:
        if not isinstance(entry, dict) or not _is_token(entry.get("content")) or not _is_id(entry.get("id")):
            raise TokenizerError(f"{where}: malformed added token {str(entry)[:60]!r}")
        token, number = entry["content"], entry["id"]
        flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
        if not set(entry) <= {"id", "content", *flags} or not all(isinstance(entry.get(flag), bool) for flag in flags):
            raise TokenizerError(f"{where}: malformed added token {str(entry)[:60]!r}")
        if token in found or owners.get(number, token) != token or vocabulary.get(token, number) != number:
            raise TokenizerError(f"{where}: added token {token[:40]!r} (id {number}) collides with another entry")
        found[token] = number
        owners[number] = token
    return found


def numbered(found: Any, where: str) -> dict[str, int]:
    """A vocabulary token -> id, if it is one."""
    if not isinstance(found, dict) or not 0 < len(found) <= MOST_TOKENS:
        raise TokenizerError(f"{where}: the vocabulary is not an object with 1 to {MOST_TOKENS:,} tokens")
    for token, number in found.items():
        if type(number) is not int or not 0 <= number < MOST_TOKENS or len(token) > LONGEST_TOKEN:
            raise TokenizerError(f"{where}: {str(token)[:40]!r} has an impossible length or id ({str(number)[:20]})")
    if len(set(found.values())) != len(found):
        raise TokenizerError(f"{where}: two tokens share one id")
    return dict(found)


def _scored(found: Any, where: str) -> dict[str, int]:
    if not isinstance(found, list) or not 0 < len(found) <= MOST_TOKENS:
        raise TokenizerError(f"{where}: the vocabulary is not a list of 1 to {MOST_TOKENS:,} pieces")
    vocabulary: dict[str, int] = {}
    for number, entry in enumerate(found):
        if not isinstance(entry, list | tuple) or len(entry) != 2 or not _is_token(entry[0]) or not _is_score(entry[1]):
            raise TokenizerError(f"{where}: piece {number} is not [piece, score]: {str(entry)[:40]!r}")
        if entry[0] in vocabulary:
            raise TokenizerError(f"{where}: the piece {entry[0][:40]!r} stands there twice")
        vocabulary[entry[0]] = number
    return vocabulary


def _check_merges(model: dict[str, Any], vocabulary: dict[str, int], where: str) -> None:
    merges, prefix = model.get("merges"), model.get("continuing_subword_prefix") or ""
    if not isinstance(merges, list) or len(merges) > MOST_TOKENS:
        raise TokenizerError(f"{where}: the merges are not a list of reasonable length")
    for number, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not str:
            raise TokenizerError(f"{where}: merge {number} is not a pair of tokens: {str(merge)[:40]!r}")
        first, second = pair
        if first not in vocabulary or first + second.removeprefix(prefix) not in vocabulary or second not in vocabulary:
            raise TokenizerError(
                f"{where}: merge {number}, {first[:20]!r} {second[:20]!r}, is not made of known tokens"
            )
        if not second.startswith(prefix):
            raise TokenizerError(f"{where}: merge {number} joins {second[:20]!r}, which does not begin with {prefix!r}")


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TOKEN


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
