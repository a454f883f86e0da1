"""Validates a tokenizer.json before the tokenizers library sees it.

The library trusts its input: a hostile pattern makes it panic or hang, a normalizer may blow a text up, ids may
collide. So every component must be one that is known here, with known fields of known types; patterns are plain
strings or in a list of published ones; tokens and ids are distinct; sizes are bounded. What passes can only tokenize.

Also validated is sentencepiece's normalization table, a double-array trie over UTF-8 bytes and the strings it points
to, because the library that walks the trie does not check its indices. A walk goes from unit i to (i xor its offset)
xor the next byte; it stays inside when the whole block of 256 units that a unit points to does. A leaf's value is where
the replacement starts in the list of strings. Format: 4 bytes length of the trie in bytes, the trie (little-endian
32-bit units), strings that end in NUL.
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
    MAX_TOKENS,
    NESTED,
    int_up_to,
)

MAX_COMPONENTS = 32
MAX_DEPTH = 3
MAX_ADDED = 100_000
MAX_CHARSMAP_BYTES = 16 * 2**20  # sentencepiece's own tables have 0.2 to 0.4 MB
HAS_LEAF, IS_LEAF = 1 << 8, 1 << 31
SECTIONS = ("version", "truncation", "padding", "added_tokens", *COMPONENTS)
ADDED_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def check_tokenizer(document: Any, location: str) -> dict[str, Any]:
    """The content of a tokenizer.json if it is safe to use; `location` names the file in the error.

    Returned with its own truncation, padding and dropout switched off: nothing is cut, padded or dropped silently.
    """
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise TokenizerError(f"{location}: not a tokenizer.json (it has no model)")
    unknown = [str(name)[:40] for name in document if name not in SECTIONS]
    if unknown:
        raise TokenizerError(f"{location}: unknown entry {shorten_list(unknown)}{did_you_mean(unknown[0], SECTIONS)}")
    model = {"type": _guess_model(document["model"]), **document["model"]}
    if model["type"] == "BPE":
        model["dropout"] = None
    checked = {**document, "model": model, "truncation": None, "padding": None}
    _ComponentChecker(location).component("model", model)
    vocabulary = _check_model(model, location)
    vocabulary |= _check_added(checked.get("added_tokens"), vocabulary, location)
    for section in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if checked.get(section) is not None:
            _ComponentChecker(location, vocabulary).component(section, checked[section])
    return checked


def _guess_model(model: dict[str, Any]) -> str:
    """The type of a model in an old file, which does not say."""
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "WordLevel"


class _ComponentChecker:
    """Walks through one section's components and their components, counting them."""

    def __init__(self, location: str, vocabulary: dict[str, int] | None = None):
        self.location = location
        self.vocabulary = vocabulary or {}
        self.count = 0

    def component(self, section: str, content: Any, depth: int = 0) -> None:
        known = COMPONENTS[section]
        if not isinstance(content, dict) or not isinstance(content.get("type"), str):
            raise TokenizerError(f"{self.location}: the {section} is not an object with a type")
        name = content["type"]
        self.count += 1
        if name not in known:
            hint = did_you_mean(name[:40], known)
            raise TokenizerError(f"{self.location}: {section} {name[:40]!r} is not known{hint}")
        if self.count > MAX_COMPONENTS or depth > MAX_DEPTH:
            raise TokenizerError(
                f"{self.location}: more than {MAX_COMPONENTS} {section} components, or nested too deeply"
            )
        for field, value in content.items():
            if field == "type":
                continue
            if field not in known[name]:
                hint = did_you_mean(field[:40], known[name])
                raise TokenizerError(f"{self.location}: {section} {name} has an unknown field {field[:40]!r}{hint}")
            if not known[name][field](value):
                raise TokenizerError(f"{self.location}: {section} {name} has an invalid {field}: {str(value)[:40]!r}")
        self.fields(section, name, content, depth)

    def fields(self, section: str, name: str, content: dict[str, Any], depth: int) -> None:
        """The fields that need more than a check of their type."""
        for field, inner_section in NESTED.items():
            if field in content:
                if not isinstance(content[field], list):
                    raise TokenizerError(f"{self.location}: {section} {field} is not a list")
                for inner in content[field]:
                    self.component(inner_section, inner, depth + 1)
        if "pattern" in content or name in ("Replace", "Split"):
            longest = _check_pattern(content.get("pattern"), f"{self.location}: {section} {name}")
            # a replacement that grows the text could, repeated, fill the memory
            if len(content.get("content", "")) > longest:
                raise TokenizerError(f"{self.location}: {section} Replace puts a longer text in place of a shorter one")
        if name == "Precompiled":
            check_charsmap(content.get("precompiled_charsmap"), self.location)
        if name in ("BertProcessing", "RobertaProcessing"):
            self.special_token(content.get("cls"))
            self.special_token(content.get("sep"))
        if name == "TemplateProcessing":
            self.template(content)

    def special_token(self, pair: Any) -> None:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TokenizerError(f"{self.location}: the post_processor's special token is not [token, id]")
        if self.vocabulary.get(pair[0]) != pair[1] or isinstance(pair[1], bool):
            token = pair[0][:40]
            raise TokenizerError(f"{self.location}: the post_processor's id of {token!r} is not the vocabulary's")

    def template(self, content: dict[str, Any]) -> None:
        special_tokens = content.get("special_tokens")
        if not isinstance(special_tokens, dict):
            raise TokenizerError(f"{self.location}: the template's special_tokens are not an object")
        for name, special in special_tokens.items():
            malformed = TokenizerError(f"{self.location}: the template's special token {name[:40]!r} is malformed")
            if not isinstance(special, dict) or set(special) != {"id", "ids", "tokens"} or special["id"] != name:
                raise malformed
            ids, tokens = special["ids"], special["tokens"]
            if not isinstance(ids, list) or not isinstance(tokens, list):
                raise malformed
            if not 0 < len(ids) == len(tokens) <= MAX_COMPONENTS:
                raise malformed
            for pair in zip(tokens, ids, strict=True):
                self.special_token(list(pair))
        for kind, texts in (("single", ["A"]), ("pair", ["A", "B"])):
            self.steps(content.get(kind), texts, special_tokens)

    def steps(self, steps: Any, texts: list[str], special_tokens: dict[str, Any]) -> None:
        """Each text exactly once and in order, every special token declared."""
        if not isinstance(steps, list) or len(steps) > MAX_COMPONENTS:
            raise TokenizerError(f"{self.location}: the template is not a short list")
        used = []
        for step in steps:
            if not isinstance(step, dict) or len(step) != 1 or not {"Sequence", "SpecialToken"} & set(step):
                raise TokenizerError(f"{self.location}: a step of the template is neither text nor special token")
            ((kind, value),) = step.items()
            if not isinstance(value, dict) or set(value) != {"id", "type_id"} or not int_up_to(15)(value["type_id"]):
                raise TokenizerError(f"{self.location}: the template has a malformed step")
            if kind == "Sequence":
                used.append(value["id"])
            elif not isinstance(value["id"], str) or value["id"] not in special_tokens:
                raise TokenizerError(f"{self.location}: the template uses an undeclared {str(value['id'])[:40]!r}")
        if used != texts:
            raise TokenizerError(f"{self.location}: the template must use {' and '.join(texts)} once each, in order")


def _check_pattern(pattern: Any, location: str) -> int:
    """Refuse a pattern that is neither a plain string nor a published expression; the shortest text it can match."""
    if isinstance(pattern, dict) and len(pattern) == 1:
        ((kind, value),) = pattern.items()
        if kind == "String" and isinstance(value, str) and 0 < len(value) <= LONGEST_STRING:
            return len(value)
        if kind == "Regex" and isinstance(value, str) and value in KNOWN_PATTERNS:
            return 1
        if kind == "Regex":
            raise TokenizerError(f"{location}: the pattern {str(value)[:60]!r} is not among the known ones; refused")
    raise TokenizerError(f"{location}: malformed pattern {str(pattern)[:60]!r}")


def _check_model(model: dict[str, Any], location: str) -> dict[str, int]:
    """Token -> id of a model from tokenizer.json, or a TokenizerError."""
    if model["type"] == "Unigram":
        vocabulary = _check_scored(model.get("vocab"), location)
        if not isinstance(model.get("unk_id"), int) or not model["unk_id"] < len(vocabulary):
            raise TokenizerError(f"{location}: unk_id {model.get('unk_id')} is not an id of the vocabulary")
        return vocabulary
    vocabulary = check_vocabulary(model.get("vocab"), location)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in vocabulary:
        raise TokenizerError(f"{location}: the unknown token {unknown!r} is not in the vocabulary")
    if unknown is None and model["type"] != "BPE":
        raise TokenizerError(f"{location}: the {model['type']} model names no unk_token")
    if model["type"] == "BPE":
        _check_merges(model, vocabulary, location)
    return vocabulary


def _check_added(added: Any, vocabulary: dict[str, int], location: str) -> dict[str, int]:
    """Token -> id of the added tokens; those in the vocabulary must agree with it, the others must follow it."""
    if added is None:
        return {}
    if not isinstance(added, list) or len(added) > MAX_ADDED:
        raise TokenizerError(f"{location}: added_tokens is not a list of reasonable length")
    ids: dict[str, int] = {}
    tokens = {id: token for token, id in vocabulary.items()}
    for entry in added:
        malformed = not isinstance(entry, dict) or not set(entry) <= {"id", "content", *ADDED_FLAGS}
        malformed = malformed or not _is_token(entry.get("content")) or not int_up_to(MAX_TOKENS - 1)(entry.get("id"))
        if malformed or not all(isinstance(entry.get(flag), bool) for flag in ADDED_FLAGS):
            raise TokenizerError(f"{location}: malformed added token {str(entry)[:60]!r}")
        token, id = entry["content"], entry["id"]
        if token in ids or tokens.get(id, token) != token or vocabulary.get(token, id) != id:
            raise TokenizerError(f"{location}: added token {token[:40]!r} (id {id}) collides with another entry")
        ids[token] = id
        tokens[id] = token
    return ids


def check_vocabulary(vocabulary: Any, location: str) -> dict[str, int]:
    """A vocabulary token -> id, if it is one."""
    if not isinstance(vocabulary, dict) or not 0 < len(vocabulary) <= MAX_TOKENS:
        raise TokenizerError(f"{location}: the vocabulary is not an object with 1 to {MAX_TOKENS:,} tokens")
    for token, id in vocabulary.items():
        if type(id) is not int or not 0 <= id < MAX_TOKENS or len(token) > LONGEST_TOKEN:
            raise TokenizerError(f"{location}: {str(token)[:40]!r} has an invalid length or id ({str(id)[:20]})")
    if len(set(vocabulary.values())) != len(vocabulary):
        raise TokenizerError(f"{location}: two tokens have the same id")
    return dict(vocabulary)


def _check_scored(entries: Any, location: str) -> dict[str, int]:
    if not isinstance(entries, list) or not 0 < len(entries) <= MAX_TOKENS:
        raise TokenizerError(f"{location}: the vocabulary is not a list of 1 to {MAX_TOKENS:,} tokens")
    vocabulary: dict[str, int] = {}
    for id, entry in enumerate(entries):
        if not isinstance(entry, list | tuple) or len(entry) != 2 or not _is_token(entry[0]) or not _is_score(entry[1]):
            raise TokenizerError(f"{location}: token {id} is not [token, score]: {str(entry)[:40]!r}")
        if entry[0] in vocabulary:
            raise TokenizerError(f"{location}: duplicate token {entry[0][:40]!r}")
        vocabulary[entry[0]] = id
    return vocabulary


def _check_merges(model: dict[str, Any], vocabulary: dict[str, int], location: str) -> None:
    merges, prefix = model.get("merges"), model.get("continuing_subword_prefix") or ""
    if not isinstance(merges, list) or len(merges) > MAX_TOKENS:
        raise TokenizerError(f"{location}: the merges are not a list of reasonable length")
    for index, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not str:
            raise TokenizerError(f"{location}: merge {index} is not a pair of tokens: {str(merge)[:40]!r}")
        first, second = pair
        if first not in vocabulary or first + second.removeprefix(prefix) not in vocabulary or second not in vocabulary:
            raise TokenizerError(f"{location}: merge {index}, {first[:20]!r} {second[:20]!r}, has unknown tokens")
        if not second.startswith(prefix):
            raise TokenizerError(f"{location}: merge {index} joins {second[:20]!r}, which lacks the prefix {prefix!r}")


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_TOKEN


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_charsmap(encoded: Any, location: str) -> None:
    """Refuse a base64 table that a walk could leave."""
    if not isinstance(encoded, str) or len(encoded) > MAX_CHARSMAP_BYTES:
        raise TokenizerError(f"{location}: the precompiled_charsmap is not text of reasonable length")
    try:
        table = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise TokenizerError(f"{location}: the precompiled_charsmap is not base64") from None
    size = int.from_bytes(table[:4], "little")
    if size % 4 or not 1024 <= size <= len(table) - 4:
        raise TokenizerError(f"{location}: the precompiled_charsmap has an impossible length")
    units, strings = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64), table[4 + size :]
    try:
        strings.decode()
    except UnicodeDecodeError:
        raise TokenizerError(f"{location}: the precompiled_charsmap does not hold UTF-8") from None
    if not _stays_inside(units, strings):
        raise TokenizerError(f"{location}: the precompiled_charsmap points outside itself; the file is damaged")


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
