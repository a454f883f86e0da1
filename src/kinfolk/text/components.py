"""The components that a tokenizer.json may be made of: their names, their fields, and what a field may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAX_TOKENS = 4_000_000
LONGEST_TOKEN = 512  # characters; the longest in public vocabularies are runs of blanks or dashes
LONGEST_WORD = 256  # WordPiece tries every substring of a word: its cost is the cube of this (BERT: 100)
LONGEST_STRING = 100

KNOWN_PATTERNS = frozenset(
    {
        r" {2,}",
        r"\s+",
        r"\s",
        r" ",
        r"\n",
        r"\d",
        r"\p{N}",
        r"\p{N}{1,3}",
        r"[0-9]",
        r"[\r\n]",
        # GPT-2, RoBERTa
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?:'s|'t|'re|'ve|'m|'ll|'d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        # CLIP
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        # cl100k and its relatives
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    }
)

BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
Check = Callable[[Any], bool]


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_STRING


def _is_char(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def int_up_to(maximum: int) -> Check:
    """Is it a whole number from 0 to `maximum`?"""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= maximum


def _one_of(*names: str) -> Check:
    return lambda value: value in names


def _any(value: Any) -> bool:
    return True  # checked by validation.py


METASPACE: dict[str, Check] = {
    "replacement": _is_char,
    "prepend_scheme": _one_of("always", "never", "first"),
    "split": _is_bool,
    "add_prefix_space": _is_bool,
    "str_rep": _is_char,
}
BYTE_LEVEL: dict[str, Check] = {"add_prefix_space": _is_bool, "trim_offsets": _is_bool, "use_regex": _is_bool}
REPLACE: dict[str, Check] = {"pattern": _any, "content": _is_text}

# section of the file -> component -> its fields
COMPONENTS: dict[str, dict[str, dict[str, Check]]] = {
    "normalizer": {
        "BertNormalizer": {
            "clean_text": _is_bool,
            "handle_chinese_chars": _is_bool,
            "strip_accents": _optional(_is_bool),
            "lowercase": _is_bool,
        },
        **{name: {} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")},
        "Strip": {"strip_left": _is_bool, "strip_right": _is_bool},
        "Prepend": {"prepend": lambda value: _is_text(value) and value != ""},  # an empty one makes the library panic
        "Replace": REPLACE,
        "Precompiled": {"precompiled_charsmap": _any},
        "Sequence": {"normalizers": _any},
    },
    "pre_tokenizer": {
        **{name: {} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")},
        "ByteLevel": BYTE_LEVEL,
        "Metaspace": METASPACE,
        "Punctuation": {"behavior": _one_of(*BEHAVIORS)},
        "Digits": {"individual_digits": _is_bool},
        "CharDelimiterSplit": {"delimiter": _is_char},
        "Split": {"pattern": _any, "behavior": _one_of(*BEHAVIORS), "invert": _is_bool},
        "Sequence": {"pretokenizers": _any},
    },
    "post_processor": {
        "ByteLevel": BYTE_LEVEL,
        "BertProcessing": {"sep": _any, "cls": _any},
        "RobertaProcessing": {"sep": _any, "cls": _any, "trim_offsets": _is_bool, "add_prefix_space": _is_bool},
        "TemplateProcessing": {"single": _any, "pair": _any, "special_tokens": _any},
        "Sequence": {"processors": _any},
    },
    "decoder": {
        "ByteLevel": BYTE_LEVEL,
        "Metaspace": METASPACE,
        "WordPiece": {"prefix": _is_text, "cleanup": _is_bool},
        "BPEDecoder": {"suffix": _is_text},
        "Fuse": {},
        "ByteFallback": {},
        "Strip": {"content": _is_char, "start": int_up_to(LONGEST_STRING), "stop": int_up_to(0)},  # more may panic
        "Replace": REPLACE,
        "Sequence": {"decoders": _any},
    },
    "model": {
        "WordPiece": {
            "vocab": _any,
            "unk_token": _is_text,
            "continuing_subword_prefix": _is_text,
            "max_input_chars_per_word": int_up_to(LONGEST_WORD),
        },
        "BPE": {
            "vocab": _any,
            "merges": _any,
            "dropout": _any,
            "unk_token": _optional(_is_text),
            "continuing_subword_prefix": _optional(_is_text),
            "end_of_word_suffix": _optional(_is_text),
            "fuse_unk": _is_bool,
            "byte_fallback": _is_bool,
            "ignore_merges": _is_bool,
        },
        "Unigram": {"vocab": _any, "unk_id": int_up_to(MAX_TOKENS), "byte_fallback": _is_bool},
        "WordLevel": {"vocab": _any, "unk_token": _is_text},
    },
}
NESTED = {  # fields that hold further components, and of which section
    "normalizers": "normalizer",
    "pretokenizers": "pre_tokenizer",
    "processors": "post_processor",
    "decoders": "decoder",
}
