"""Vets a tokenizer.json before the tokenizers library sees it.

The library trusts its input: a hostile pattern makes it panic or hang, a normaliser may blow a text up, ids may
collide. So every component must be one that is known here, with known fields of known kinds; patterns are plain
strings or stand in a list of published ones; sizes are bounded. What passes can do no more than tokenise.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import numpy as np

from kinfolk.errors import TokenizerError, did_you_mean, shorten_list
from kinfolk.text.components import (
    COMPONENTS,
    KNOWN_PATTERNS,
    LONGEST_STRING,
    LONGEST_TOKEN,
    MOST_TOKENS,
    NESTED,
    int_up_to,
)

MOST_COMPONENTS = 32
DEEPEST = 3
ROOMS = ("version", "truncation", "padding", "added_tokens", *COMPONENTS)


def check_tokenizer(document: Any, where: str) -> dict[str, Any]:
    """The content of a tokenizer.json if it is safe to use; `where` names the file in the error.

    Returned with its own truncation, padding and dropout switched off: nothing is cut, padded or drawn silently.
    """
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise TokenizerError(f"{where}: not a tokenizer.json (it has no model)")
    unknown = [str(name)[:40] for name in document if name not in ROOMS]
    if unknown:
        raise TokenizerError(f"{where}: unknown entry {shorten_list(unknown)}{did_you_mean(unknown[0], ROOMS)}")
    model = {"type": _guess_model(document["model"]), **document["model"]}
    if model["type"] == "BPE":
        model["dropout"] = None
    checked = {**document, "model": model, "truncation": None, "padding": None}
    _Walk(where).component("model", model)
    vocabulary = check_model(model, where)
    vocabulary |= check_added(checked.get("added_tokens"), vocabulary, where)
    for room in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if checked.get(room) is not None:
            _Walk(where, vocabulary).component(room, checked[room])
    return checked


def _guess_model(model: dict[str, Any]) -> str:
    """The kind of a model in an old file, which does not say."""
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "WordLevel"


class _Walk:
    """Goes through one room's components and their components, counting them."""

    def __init__(self, where: str, vocabulary: dict[str, int] | None = None):
        self.where = where
        self.vocabulary = vocabulary or {}
        self.seen = 0

    def component(self, room: str, found: Any, depth: int = 0) -> None:
        kinds = COMPONENTS[room]
        if not isinstance(found, dict) or not isinstance(found.get("type"), str):
            raise TokenizerError(f"{self.where}: the {room} is not an object with a type")
        name = found["type"]
        self.seen += 1
        if name not in kinds:
            raise TokenizerError(f"{self.where}: {room} {name[:40]!r} is not known{did_you_mean(name[:40], kinds)}")
        if self.seen > MOST_COMPONENTS or depth > DEEPEST:
            raise TokenizerError(f"{self.where}: more than {MOST_COMPONENTS} {room} components, or nested too deeply")
        for field, value in found.items():
            if field == "type":
                continue
            if field not in kinds[name]:
                hint = did_you_mean(field[:40], kinds[name])
                raise TokenizerError(f"{self.where}: {room} {name} has an unknown field {field[:40]!r}{hint}")
            if not kinds[name][field](value):
                raise TokenizerError(f"{self.where}: {room} {name} has an impossible {field}: {str(value)[:40]!r}")
        self.content(room, name, found, depth)

    def content(self, room: str, name: str, found: dict[str, Any], depth: int) -> None:
        """The fields whose meaning needs more than a look at their kind."""
        for field, inner_room in NESTED.items():
            if field in found:
                if not isinstance(found[field], list):
                    raise TokenizerError(f"{self.where}: {room} {field} is not a list")
                for inner in found[field]:
                    self.component(inner_room, inner, depth + 1)
        if "pattern" in found or name in ("Replace", "Split"):
            longest = check_pattern(found.get("pattern"), f"{self.where}: {room} {name}")
            # a replacement that grows the text could, repeated, fill the memory
            if len(found.get("content", "")) > longest:
                raise TokenizerError(f"{self.where}: {room} Replace puts a longer text in place of a shorter one")
        if name == "Precompiled":
            check_charsmap(found.get("precompiled_charsmap"), self.where)
        if name in ("BertProcessing", "RobertaProcessing"):
            self.special(found.get("cls"))
            self.special(found.get("sep"))
        if name == "TemplateProcessing":
            self.template(found)

    def special(self, pair: Any) -> None:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TokenizerError(f"{self.where}: the post_processor's special token is not [token, id]")
        if self.vocabulary.get(pair[0]) != pair[1] or isinstance(pair[1], bool):
            raise TokenizerError(
                f"{self.where}: the post_processor uses {pair[0][:40]!r} with another id than the vocabulary"
            )

    def template(self, found: dict[str, Any]) -> None:
        specials = found.get("special_tokens")
        if not isinstance(specials, dict):
            raise TokenizerError(f"{self.where}: the template's special_tokens are not an object")
        for name, special in specials.items():
            if not isinstance(special, dict) or set(special) != {"id", "ids", "tokens"} or special["id"] != name:
                raise TokenizerError(f"{self.where}: the template's special token {name[:40]!r} is malformed")
            ids, tokens = special["ids"], special["tokens"]
            if not (
                isinstance(ids, list) and isinstance(tokens, list) and 0 < len(ids) == len(tokens) <= MOST_COMPONENTS
            ):
                raise TokenizerError(f"{self.where}: the template's special token {name[:40]!r} is malformed")
            for pair in zip(tokens, ids, strict=True):
                self.special(list(pair))
        for kind, texts in (("single", ["A"]), ("pair", ["A", "B"])):
            self.steps(found.get(kind), texts, specials)

    def steps(self, steps: Any, texts: list[str], specials: dict[str, Any]) -> None:
        """Each text exactly once and in order, every special token declared."""
        if not isinstance(steps, list) or len(steps) > MOST_COMPONENTS:
            raise TokenizerError(f"{self.where}: the template is not a short list")
        used = []
        for step in steps:
            if not isinstance(step, dict) or len(step) != 1 or not {"Sequence", "SpecialToken"} & set(step):
                raise TokenizerError(f"{self.where}: the template has a step that is neither text nor special token")
            ((kind, value),) = step.items()
            if not isinstance(value, dict) or set(value) != {"id", "type_id"} or not int_up_to(15)(value["type_id"]):
                raise TokenizerError(f"{self.where}: the template has a malformed step")
            if kind == "Sequence":
                used.append(value["id"])
            elif not isinstance(value["id"], str) or value["id"] not in specials:
                raise TokenizerError(f"{self.where}: the template uses an undeclared token {str(value['id'])[:40]!r}")
        if used != texts:
            raise TokenizerError(f"{self.where}: the template must use {' and '.join(texts)} once each, in this order")


def check_pattern(pattern: Any, where: str) -> int:
    """Refuse a pattern that is neither a plain string nor a published expression; the shortest text it can match."""
    if isinstance(pattern, dict) and len(pattern) == 1:
        ((kind, value),) = pattern.items()
        if kind == "String" and isinstance(value, str) and 0 < len(value) <= LONGEST_STRING:
            return len(value)
        if kind == "Regex" and isinstance(value, str) and value in KNOWN_PATTERNS:
            return 1
        if kind == "Regex":
            raise TokenizerError(f"{where}: the pattern {str(value)[:60]!r} is not among the known ones; refused")
    raise TokenizerError(f"{where}: malformed pattern {str(pattern)[:60]!r}")


MOST_ADDED = 100_000


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


MAX_CHARSMAP_BYTES = 16 * 2**20  # sentencepiece's own tables have 0.2 to 0.4 MB
HAS_LEAF, IS_LEAF = 1 << 8, 1 << 31


def check_charsmap(encoded: Any, where: str) -> None:
    """Refuse a base64 table that a walk could leave."""
    if not isinstance(encoded, str) or len(encoded) > MAX_CHARSMAP_BYTES:
        raise TokenizerError(f"{where}: the precompiled_charsmap is not text of reasonable length")
    try:
        table = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise TokenizerError(f"{where}: the precompiled_charsmap is not base64") from None
    size = int.from_bytes(table[:4], "little")
    if size % 4 or not 1024 <= size <= len(table) - 4:
        raise TokenizerError(f"{where}: the precompiled_charsmap has an impossible length")
    units, strings = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64), table[4 + size :]
    try:
        strings.decode()
    except UnicodeDecodeError:
        raise TokenizerError(f"{where}: the precompiled_charsmap does not hold UTF-8") from None
    if not _stays_inside(units, strings):
        raise TokenizerError(f"{where}: the precompiled_charsmap points outside itself; the file is damaged")


def _stays_inside(units: np.ndarray[Any, np.dtype[np.int64]], strings: bytes) -> bool:
    inner = (units & IS_LEAF) == 0
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    targets = np.arange(len(units)) ^ offsets
    # only units that carry a byte as label can be entered; the root is unit 0
    blocks = targets[inner] | 255
    if len(blocks) and blocks.max() >= len(units):
        return False
    leaves = units[targets[inner & ((units & HAS_LEAF) != 0)]]
    values = leaves & (IS_LEAF - 1)
    if not len(values):
        return True
    if values.max() > len(strings):
        return False
    # a replacement must start at the first byte of a character
    text = np.frombuffer(strings + b"\0", np.uint8)
    return bool(((text[values] & 0xC0) != 0x80).all())
