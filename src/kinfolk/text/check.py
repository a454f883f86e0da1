"""Vets a tokenizer.json before the tokenizers library sees it.

The library trusts its input: a hostile pattern makes it panic or hang, a normaliser may blow a text up, ids may
collide. So every component must be one that is known here, with known fields of known kinds; patterns are plain
strings or stand in a list of published ones; sizes are bounded. What passes can do no more than tokenise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kinfolk.errors import TokenizerError, first_few, nearest
from kinfolk.text.charsmap import check_charsmap
from kinfolk.text.vocabulary import MOST_TOKENS, check_added, check_model

MOST_COMPONENTS = 32
DEEPEST = 3
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


def _number(most: int) -> Kind:
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

# room in the file -> component -> its fields; fields that hold further components have the same name in every file
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
        "Strip": {"content": _letter, "start": _number(LONGEST_STRING), "stop": _number(0)},  # more may panic
        "Replace": REPLACE,
        "Sequence": {"decoders": _anything},
    },
    "model": {
        "WordPiece": {
            "vocab": _anything,
            "unk_token": _text,
            "continuing_subword_prefix": _text,
            "max_input_chars_per_word": _number(LONGEST_WORD),
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
        "Unigram": {"vocab": _anything, "unk_id": _number(MOST_TOKENS), "byte_fallback": _flag},
        "WordLevel": {"vocab": _anything, "unk_token": _text},
    },
}
NESTED = {"normalizers": "normalizer", "pretokenizers": "pre_tokenizer", "processors": "post_processor"}
NESTED["decoders"] = "decoder"
ROOMS = ("version", "truncation", "padding", "added_tokens", *COMPONENTS)


def check(document: Any, where: str) -> dict[str, Any]:
    """The content of a tokenizer.json if it is safe to use; `where` names the file in the error.

    Returned with its own truncation, padding and dropout switched off: nothing is cut, padded or drawn silently.
    """
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise TokenizerError(f"{where}: not a tokenizer.json (it has no model)")
    unknown = [str(name)[:40] for name in document if name not in ROOMS]
    if unknown:
        raise TokenizerError(f"{where}: unknown entry {first_few(unknown)}{nearest(unknown[0], ROOMS)}")
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
            raise TokenizerError(f"{self.where}: {room} {name[:40]!r} is not known{nearest(name, kinds)}")
        if self.seen > MOST_COMPONENTS or depth > DEEPEST:
            raise TokenizerError(f"{self.where}: more than {MOST_COMPONENTS} {room} components, or nested too deeply")
        for field, value in found.items():
            if field == "type":
                continue
            if field not in kinds[name]:
                hint = nearest(field, kinds[name])
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
            for token, number in zip(tokens, ids, strict=True):
                self.special([token, number])
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
            if not isinstance(value, dict) or set(value) != {"id", "type_id"} or not _number(15)(value["type_id"]):
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
