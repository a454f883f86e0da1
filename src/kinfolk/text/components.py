"""The components that a tokenizer.json may be made of: their names, their fields, and what a field may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_TOKENS = 4_000_000
LONGEST_TOKEN = 512  # characters; the longest in public vocabularies are runs of blanks or dashes
LONGEST_WORD = 256  # WordPiece tries every piece of a word: its cost is the cube of this (BERT: 100)
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

BEHAVIOURS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
Kind = Callable[[Any], bool]


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _flag_or_none(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_STRING


def _some_text(value: Any) -> bool:
    return _text(value) and value != ""


def _text_or_none(value: Any) -> bool:
    return value is None or _text(value)


def _letter(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


def int_up_to(most: int) -> Kind:
    """A whole number from 0 to `most`."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _one_of(*names: str) -> Kind:
    return lambda value: value in names


def _anything(value: Any) -> bool:
    return True  # looked at separately


METASPACE: dict[str, Kind] = {
    "replacement": _letter,
    "prepend_scheme": _one_of("always", "never", "first"),
    "split": _flag,
    "add_prefix_space": _flag,
    "str_rep": _letter,
}
BYTE_LEVEL: dict[str, Kind] = {"add_prefix_space": _flag, "trim_offsets": _flag, "use_regex": _flag}
REPLACE: dict[str, Kind] = {"pattern": _anything, "content": _text}

# room in the file -> component -> its fields
COMPONENTS: dict[str, dict[str, dict[str, Kind]]] = {
    "normalizer": {
        "BertNormalizer": {
            "clean_text": _flag,
            "handle_chinese_chars": _flag,
            "strip_accents": _flag_or_none,
            "lowercase": _flag,
        },
        **{name: {} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")},
        "Strip": {"strip_left": _flag, "strip_right": _flag},
        "Prepend": {"prepend": _some_text},  # an empty one makes the library panic
        "Replace": REPLACE,
        "Precompiled": {"precompiled_charsmap": _anything},
        "Sequence": {"normalizers": _anything},
    },
    "pre_tokenizer": {
        **{name: {} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")},
        "ByteLevel": BYTE_LEVEL,
        "Metaspace": METASPACE,
        "Punctuation": {"behavior": _one_of(*BEHAVIOURS)},
        "Digits": {"individual_digits": _flag},
        "CharDelimiterSplit": {"delimiter": _letter},
        "Split": {"pattern": _anything, "behavior": _one_of(*BEHAVIOURS), "invert": _flag},
        "Sequence": {"pretokenizers": _anything},
    },
    "post_processor": {
        "ByteLevel": BYTE_LEVEL,
        "BertProcessing": {"sep": _anything, "cls": _anything},
        "RobertaProcessing": {"sep": _anything, "cls": _anything, "trim_offsets": _flag, "add_prefix_space": _flag},
        "TemplateProcessing": {"single": _anything, "pair": _anything, "special_tokens": _anything},
        "Sequence": {"processors": _anything},
    },
    "decoder": {
        "ByteLevel": BYTE_LEVEL,
        "Metaspace": METASPACE,
        "WordPiece": {"prefix": _text, "cleanup": _flag},
        "BPEDecoder": {"suffix": _text},
        "Fuse": {},
        "ByteFallback": {},
        "Strip": {"content": _letter, "start": int_up_to(LONGEST_STRING), "stop": int_up_to(0)},  # more may panic
        "Replace": REPLACE,
        "Sequence": {"decoders": _anything},
    },
    "model": {
        "WordPiece": {
            "vocab": _anything,
            "unk_token": _text,
            "continuing_subword_prefix": _text,
            "max_input_chars_per_word": int_up_to(LONGEST_WORD),
        },
        "BPE": {
            "vocab": _anything,
            "merges": _anything,
            "dropout": _anything,
            "unk_token": _text_or_none,
            "continuing_subword_prefix": _text_or_none,
            "end_of_word_suffix": _text_or_none,
            "fuse_unk": _flag,
            "byte_fallback": _flag,
            "ignore_merges": _flag,
        },
        "Unigram": {"vocab": _anything, "unk_id": int_up_to(MOST_TOKENS), "byte_fallback": _flag},
        "WordLevel": {"vocab": _anything, "unk_token": _text},
    },
}
NESTED = {  # fields that hold further components, and of which room
    "normalizers": "normalizer",
    "pretokenizers": "pre_tokenizer",
    "processors": "post_processor",
    "decoders": "decoder",
}
