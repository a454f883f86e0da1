"""Validates a tokenizer.json before the tokenizers library sees it.

The library trusts its input: a hostile pattern makes it panic or hang, a normalizer may blow a text up, ids may
collide. So every component must be one that is known here, with known fields of known types; patterns are plain
strings or in a list of published ones; tokens and ids are distinct; sizes are bounded. What passes can only tokenize.

Also validated is sentencepiece's normalization table, whose indices no library checks: 4 bytes length of a double-array
trie over UTF-8 bytes, the trie (little-endian 32-bit units), replacements that end in NUL. A walk goes from unit i to
(i xor its offset) xor the next byte; it stays inside when the whole block of 256 units that a unit points to does. A
leaf's value is where the replacement starts.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kinfolk.errors import TokenizerError, did_you_mean, shorten_list

MAX_TOKENS = 4_000_000
LONGEST_TOKEN = 512  # characters; the longest in public vocabularies are runs of blanks or dashes
LONGEST_WORD = 256  # WordPiece tries every substring of a word: its cost is the cube of this (BERT: 100)
LONGEST_STRING = 100
MAX_COMPONENTS = 32
MAX_DEPTH = 3
MAX_ADDED = 100_000
MAX_CHARSMAP_BYTES = 16 * 2**20  # sentencepiece's own tables have 0.2 to 0.4 MB
HAS_LEAF, IS_LEAF = 1 << 8, 1 << 31

KNOWN_PATTERNS = {
    *(r" {2,}", r"\s+", r"\s", r" ", r"\n", r"\d", r"\p{N}", r"\p{N}{1,3}", r"[0-9]", r"[\r\n]"),
    # GPT-2, RoBERTa
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?:'s|'t|'re|'ve|'m|'ll|'d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # CLIP
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    # cl100k and its relatives
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
ADDED_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def _is_int(value: Any, maximum: int) -> bool:
    return type(value) is int and 0 <= value <= maximum


def _is_text(value: Any, least: int = 0, most: int = LONGEST_STRING) -> bool:
    return isinstance(value, str) and least <= len(value) <= most


KINDS: dict[str, Callable[[Any], bool]] = {  # of fields
    "any": lambda value: True,  # checked elsewhere in this file
    "bool": lambda value: isinstance(value, bool),
    "bool?": lambda value: value is None or isinstance(value, bool),
    "text": _is_text,
    "text?": lambda value: value is None or _is_text(value),
    "text+": lambda value: _is_text(value, 1),  # an empty one makes the library panic
    "char": lambda value: _is_text(value, 1, 1),
    "behavior": lambda value: value in BEHAVIORS,
    "scheme": lambda value: value in ("always", "never", "first"),
    "start": lambda value: _is_int(value, LONGEST_STRING),
    "zero": lambda value: _is_int(value, 0),  # more may make the library panic
    "word": lambda value: _is_int(value, LONGEST_WORD),
    "id": lambda value: _is_int(value, MAX_TOKENS),
}
BYTE_LEVEL = "add_prefix_space:bool trim_offsets:bool use_regex:bool"
METASPACE = "prepend_scheme:scheme replacement:char str_rep:char split:bool add_prefix_space:bool"
AFFIXES = "continuing_subword_prefix:text? end_of_word_suffix:text?"

# section of the file -> component -> its fields, each with its kind
COMPONENTS = {
    "normalizer": {
        **dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"), ""),
        "BertNormalizer": "strip_accents:bool? clean_text:bool handle_chinese_chars:bool lowercase:bool",
        "Strip": "strip_left:bool strip_right:bool",
        "Prepend": "prepend:text+",
        "Replace": "pattern:any content:text",
        "Precompiled": "precompiled_charsmap:any",
        "Sequence": "normalizers:any",
    },
    "pre_tokenizer": {
        **dict.fromkeys(("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts"), ""),
        "ByteLevel": BYTE_LEVEL,
        "Metaspace": METASPACE,
        "Punctuation": "behavior:behavior",
        "Digits": "individual_digits:bool",
        "CharDelimiterSplit": "delimiter:char",
        "Split": "pattern:any behavior:behavior invert:bool",
        "Sequence": "pretokenizers:any",
    },
    "post_processor": {
        "ByteLevel": BYTE_LEVEL,
        "BertProcessing": "sep:any cls:any",
        "RobertaProcessing": "sep:any cls:any trim_offsets:bool add_prefix_space:bool",
        "TemplateProcessing": "single:any pair:any special_tokens:any",
        "Sequence": "processors:any",
    },
    "decoder": {
        **dict.fromkeys(("Fuse", "ByteFallback"), ""),
        "ByteLevel": BYTE_LEVEL,
        "Metaspace": METASPACE,
        "WordPiece": "prefix:text cleanup:bool",
        "BPEDecoder": "suffix:text",
        "Strip": "content:char start:start stop:zero",
        "Replace": "pattern:any content:text",
        "Sequence": "decoders:any",
    },
    "model": {
        "WordPiece": "vocab:any unk_token:text continuing_subword_prefix:text max_input_chars_per_word:word",
        "BPE": f"vocab:any merges:any dropout:any unk_token:text? {AFFIXES} "
        "fuse_unk:bool byte_fallback:bool ignore_merges:bool",
        "Unigram": "vocab:any unk_id:id byte_fallback:bool",
        "WordLevel": "vocab:any unk_token:text",
    },
}
SECTIONS = ("version", "truncation", "padding", "added_tokens", *COMPONENTS)


@contextmanager
def named(location: str) -> Iterator[None]:
    """What the checks of this file refuse in this block is said to be in `location`."""
    try:
        yield
    except TokenizerError as error:
        raise TokenizerError(f"{location}: {error}") from None


def _require(valid: bool, message: str) -> None:
    if not valid:
        raise TokenizerError(message)


def check_tokenizer(document: Any, location: str) -> dict[str, Any]:
    """The content of a tokenizer.json if it is safe to use; `location` names the file in the error.

    Returned with its own truncation, padding and dropout switched off: nothing is cut, padded or dropped silently.
    """
    with named(location):
        if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
            raise TokenizerError("not a tokenizer.json (it has no model)")
        unknown = [str(name)[:40] for name in document if name not in SECTIONS]
        if unknown:
            raise TokenizerError(f"unknown entry {shorten_list(unknown)}{did_you_mean(unknown[0], SECTIONS)}")
        model = {"type": _guess_model(document["model"]), **document["model"]}
        if model["type"] == "BPE":
            model["dropout"] = None
        checked = {**document, "model": model, "truncation": None, "padding": None}
        _check_section("model", model, {})
        vocabulary = _check_model(model)
        vocabulary |= _check_added(checked.get("added_tokens"), vocabulary)
        for section in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
            if checked.get(section) is not None:
                _check_section(section, checked[section], vocabulary)
    return checked


def _guess_model(model: dict[str, Any]) -> str:
    """The type of a model in an old file, which does not say."""
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "continuing_subword_prefix" in model else "WordLevel"


def _check_section(section: str, content: Any, vocabulary: dict[str, int]) -> None:
    for count, (name, fields) in enumerate(_components(section, content, 0), 1):
        _require(count <= MAX_COMPONENTS, f"more than {MAX_COMPONENTS} {section} components")
        if name in ("Replace", "Split"):
            longest = _check_pattern(fields.get("pattern"))
            # a replacement that grows the text could, repeated, fill the memory
            _require(len(fields.get("content", "")) <= longest, "Replace puts a longer text in place of a shorter one")
        elif name == "Precompiled":
            check_charsmap(fields.get("precompiled_charsmap"))
        elif name in ("BertProcessing", "RobertaProcessing"):
            _check_special(fields.get("cls"), vocabulary)
            _check_special(fields.get("sep"), vocabulary)
        elif name == "TemplateProcessing":
            _check_template(fields, vocabulary)


def _components(section: str, content: Any, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """A component with its type, and those inside it, when their fields are known and of the right kind."""
    if not isinstance(content, dict) or not isinstance(content.get("type"), str):
        raise TokenizerError(f"the {section} is not an object with a type")
    name, known = content["type"], COMPONENTS[section]
    if name not in known:
        raise TokenizerError(f"{section} {name[:40]!r} is not known{did_you_mean(name[:40], known)}")
    _require(depth <= MAX_DEPTH, f"the {section} is nested too deeply")
    kinds = dict(field.split(":") for field in known[name].split())
    fields = {field: value for field, value in content.items() if field != "type"}
    for field, value in fields.items():
        if field not in kinds:
            hint = did_you_mean(field[:40], kinds)
            raise TokenizerError(f"{section} {name} has an unknown field {field[:40]!r}{hint}")
        if not KINDS[kinds[field]](value):
            raise TokenizerError(f"{section} {name} has an invalid {field}: {str(value)[:40]!r}")
    yield name, fields
    for inner in fields.values() if name == "Sequence" else ():
        _require(isinstance(inner, list), f"the parts of a {section} Sequence are not a list")
        for part in inner:
            yield from _components(section, part, depth + 1)


def _check_special(pair: Any, vocabulary: dict[str, int]) -> None:
    valid = isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
    _require(valid, "the post_processor's special token is not [token, id]")
    if vocabulary.get(pair[0]) != pair[1] or isinstance(pair[1], bool):
        raise TokenizerError(f"the post_processor's id of {pair[0][:40]!r} is not the vocabulary's")


def _check_template(content: dict[str, Any], vocabulary: dict[str, int]) -> None:
    """Each text exactly once and in order, every special token declared."""
    special_tokens: Any = content.get("special_tokens")
    _require(isinstance(special_tokens, dict), "the template's special_tokens are not an object")
    for name, special in special_tokens.items():
        valid = isinstance(special, dict) and set(special) == {"id", "ids", "tokens"} and special["id"] == name
        valid = valid and isinstance(special["ids"], list) and isinstance(special["tokens"], list)
        if not valid or not 0 < len(special["ids"]) == len(special["tokens"]) <= MAX_COMPONENTS:
            raise TokenizerError(f"the template's special token {name[:40]!r} is malformed")
        for pair in zip(special["tokens"], special["ids"], strict=True):
            _check_special(list(pair), vocabulary)
    for kind, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        steps: Any = content.get(kind)
        used = []
        _require(isinstance(steps, list) and len(steps) <= MAX_COMPONENTS, "the template is not a short list")
        for step in steps:
            valid = isinstance(step, dict) and len(step) == 1 and bool({"Sequence", "SpecialToken"} & set(step))
            value: Any = next(iter(step.values())) if valid else None
            valid = isinstance(value, dict) and set(value) == {"id", "type_id"} and _is_int(value["type_id"], 15)
            _require(valid, "the template has a malformed step: neither text nor special token")
            if "Sequence" in step:
                used.append(value["id"])
            elif not isinstance(value["id"], str) or value["id"] not in special_tokens:
                raise TokenizerError(f"the template uses an undeclared {str(value['id'])[:40]!r}")
        _require(used == texts, f"the template must use {' and '.join(texts)} once each, in order")


def _check_pattern(pattern: Any) -> int:
    """Refuse a pattern that is neither a plain string nor a published expression; the shortest text it can match."""
    kind, value = next(iter(pattern.items())) if isinstance(pattern, dict) and len(pattern) == 1 else ("", None)
    if kind == "String" and isinstance(value, str) and _is_text(value, 1):
        return len(value)
    known = kind == "Regex" and isinstance(value, str) and value in KNOWN_PATTERNS
    _require(known, f"malformed pattern {str(pattern)[:60]!r}, or not among the known ones; refused")
    return 1


def _check_model(model: dict[str, Any]) -> dict[str, int]:
    """Token -> id of a model from tokenizer.json, or a TokenizerError."""
    if model["type"] == "Unigram":
        vocabulary, unknown_id = _check_scored(model.get("vocab")), int(model.get("unk_id", MAX_TOKENS))
        _require(unknown_id < len(vocabulary), f"unk_id {unknown_id} is not an id of the vocabulary")
        return vocabulary
    vocabulary, unknown = check_vocabulary(model.get("vocab")), model.get("unk_token")
    _require(unknown is None or unknown in vocabulary, f"the unknown token {unknown!r} is not in the vocabulary")
    _require(unknown is not None or model["type"] == "BPE", f"the {model['type']} model names no unk_token")
    if model["type"] == "BPE":
        _check_merges(model.get("merges"), model.get("continuing_subword_prefix") or "", vocabulary)
    return vocabulary


def _check_added(added: Any, vocabulary: dict[str, int]) -> dict[str, int]:
    """Token -> id of the added tokens; those in the vocabulary must agree with it, the others must follow it."""
    if added is None:
        return {}
    _require(isinstance(added, list) and len(added) <= MAX_ADDED, "added_tokens is not a list of reasonable length")
    ids: dict[str, int] = {}
    tokens = {id: token for token, id in vocabulary.items()}
    for entry in added:
        valid = isinstance(entry, dict) and set(entry) <= {"id", "content", *ADDED_FLAGS}
        valid = valid and _is_text(entry.get("content"), 1, LONGEST_TOKEN) and _is_int(entry.get("id"), MAX_TOKENS - 1)
        if not valid or not all(isinstance(entry.get(flag), bool) for flag in ADDED_FLAGS):
            raise TokenizerError(f"malformed added token {str(entry)[:60]!r}")
        token, id = entry["content"], entry["id"]
        if token in ids or tokens.get(id, token) != token or vocabulary.get(token, id) != id:
            raise TokenizerError(f"added token {token[:40]!r} (id {id}) collides with another entry")
        ids[token], tokens[id] = id, token
    return ids


def check_vocabulary(vocabulary: Any) -> dict[str, int]:
    """A vocabulary token -> id, if it is one."""
    if not isinstance(vocabulary, dict) or not 0 < len(vocabulary) <= MAX_TOKENS:
        raise TokenizerError(f"the vocabulary is not an object with 1 to {MAX_TOKENS:,} tokens")
    for token, id in vocabulary.items():
        if type(id) is not int or not 0 <= id < MAX_TOKENS or len(token) > LONGEST_TOKEN:
            raise TokenizerError(f"{str(token)[:40]!r} has an invalid length or id ({str(id)[:20]})")
    _require(len(set(vocabulary.values())) == len(vocabulary), "two tokens have the same id")
    return dict(vocabulary)


def _check_scored(entries: Any) -> dict[str, int]:
    if not isinstance(entries, list) or not 0 < len(entries) <= MAX_TOKENS:
        raise TokenizerError(f"the vocabulary is not a list of 1 to {MAX_TOKENS:,} tokens")
    for id, entry in enumerate(entries):
        valid = isinstance(entry, list | tuple) and len(entry) == 2 and _is_text(entry[0], 1, LONGEST_TOKEN)
        if not valid or type(entry[1]) not in (int, float) or not math.isfinite(entry[1]):
            raise TokenizerError(f"token {id} is not [token, score]: {str(entry)[:40]!r}")
    vocabulary = {entry[0]: id for id, entry in enumerate(entries)}
    _require(len(vocabulary) == len(entries), "two tokens of the vocabulary are the same")
    return vocabulary


def _check_merges(merges: Any, prefix: str, vocabulary: dict[str, int]) -> None:
    _require(isinstance(merges, list) and len(merges) <= MAX_TOKENS, "the merges are not a list of reasonable length")
    for index, merge in enumerate(merges):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not str:
            raise TokenizerError(f"merge {index} is not a pair of tokens: {str(merge)[:40]!r}")
        first, second = pair
        if first not in vocabulary or first + second.removeprefix(prefix) not in vocabulary or second not in vocabulary:
            raise TokenizerError(f"merge {index}, {first[:20]!r} {second[:20]!r}, has unknown tokens")
        if not second.startswith(prefix):
            raise TokenizerError(f"merge {index} joins {second[:20]!r}, which lacks the prefix {prefix!r}")


def check_charsmap(encoded: Any) -> None:
    """Refuse a base64 table that a walk could leave."""
    if not isinstance(encoded, str) or len(encoded) > MAX_CHARSMAP_BYTES:
        raise TokenizerError("the precompiled_charsmap is not text of reasonable length")
    try:
        table = base64.b64decode(encoded, validate=True)
        size = int.from_bytes(table[:4], "little")
        table[4 + size :].decode()
    except (binascii.Error, ValueError):
        raise TokenizerError("the precompiled_charsmap is not base64 of a table with UTF-8") from None
    valid = size % 4 == 0 and 1024 <= size <= len(table) - 4
    _require(valid, "the precompiled_charsmap has an impossible length")
    units = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64)
    _require(_stays_inside(units, table[4 + size :]), "the precompiled_charsmap points outside itself")


def _stays_inside(units: np.ndarray[Any, np.dtype[np.int64]], strings: bytes) -> bool:
    inner = (units & IS_LEAF) == 0
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    targets = np.arange(len(units)) ^ offsets
    # only units that carry a byte as label can be entered; the root is unit 0
    if (targets[inner] | 255).max(initial=0) >= len(units):
        return False
    values = units[targets[inner & ((units & HAS_LEAF) != 0)]] & (IS_LEAF - 1)
    if values.max(initial=0) > len(strings):
        return False
    # a replacement must start at the first byte of a character
    text = np.frombuffer(strings + b"\0", np.uint8)
    return bool(((text[values] & 0xC0) != 0x80).all())
