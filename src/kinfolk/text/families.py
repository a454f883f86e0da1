"""What each family of models expects of its tokenizer when only vocabulary files are there (no tokenizer.json).

A recipe names the special tokens by role, the templates around texts, and how text is split into words. The published
tokenizer.json of each family says the same.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

from kinfolk.errors import TokenizerError, shorten_list
from kinfolk.text.sentencepiece import BPE, SentencePieceModel

ROLES = ("cls", "sep", "pad", "unk", "mask", "bos", "eos")

BERT_ROLES = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
FAIRSEQ_ROLES = dict(zip(ROLES, ("<s>", "</s>", "<pad>", "<unk>", "<mask>", "<s>", "</s>"), strict=True))
ALBERT_ROLES = {**BERT_ROLES, "pad": "<pad>", "unk": "<unk>", "bos": "[CLS]", "eos": "[SEP]"}
XLNET_ROLES = dict(zip(ROLES, ("<cls>", "<sep>", "<pad>", "<unk>", "<mask>", "<s>", "</s>"), strict=True))

# templates: special tokens by role, A and B for the texts; the number is the segment
BERT_TEMPLATES = ("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1")
XLNET_TEMPLATES = ("A:0 sep:0 cls:2", "A:0 sep:0 B:1 sep:1 cls:2")
PLAIN_TEMPLATES = ("A:0", "A:0 B:1")


@dataclass(frozen=True)
class Recipe:
    """The tokenizer of one family."""

    roles: dict[str, str] = field(default_factory=dict)
    templates: tuple[str, str] = PLAIN_TEMPLATES
    roberta: bool = False  # <s> a </s></s> b </s>, all in segment 0
    lowercase: bool = True  # unless tokenizer_config.json says otherwise
    word_suffix: str = ""  # the first GPT marks the last piece of a word
    segments: bool = True  # do models of the family read segments?
    pad_left: bool = False  # XLNet looks back from the end
    quotes: bool = False  # `` and '' become ", and accents go
    strip_accents: bool = False  # XLNet's reference strips accents even under keep_accents


RECIPES = {
    "bert": Recipe(BERT_ROLES, BERT_TEMPLATES),
    "distilbert": Recipe(BERT_ROLES, BERT_TEMPLATES, segments=False),
    "mpnet": Recipe({**FAIRSEQ_ROLES, "unk": "[UNK]"}, roberta=True, segments=False),
    "roberta": Recipe(FAIRSEQ_ROLES, roberta=True, segments=False),
    "gpt2": Recipe(dict.fromkeys(("unk", "bos", "eos"), "<|endoftext|>"), segments=False),
    "openai-gpt": Recipe({"unk": "<unk>"}, word_suffix="</w>", segments=False),
    "albert": Recipe(ALBERT_ROLES, BERT_TEMPLATES, quotes=True),
    "xlnet": Recipe(XLNET_ROLES, XLNET_TEMPLATES, lowercase=False, pad_left=True, quotes=True, strip_accents=True),
    "sentencepiece": Recipe({"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "<pad>"}, lowercase=False),
}
RELATIVES = {"electra": "bert", "mobilebert": "bert", "ernie": "bert", "nezha": "bert", "longformer": "roberta"}


COMMON = {  # for a tokenizer.json without settings: tokens that usually play a role
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>", "<|endoftext|>"),
    "eos": ("</s>", "<|endoftext|>"),
}


def guess_roles(document: dict[str, Any]) -> dict[str, str]:
    """Role -> token, guessed from the names of a tokenizer.json's special tokens."""
    entries = document.get("added_tokens")
    entries = entries if isinstance(entries, list) else []
    present = {entry.get("content") for entry in entries if isinstance(entry, dict)}
    roles = {role: next((token for token in tokens if token in present), None) for role, tokens in COMMON.items()}
    return {role: token for role, token in roles.items() if token is not None}


def family_of(tokenizer_class: Any) -> str | None:
    """The family whose tokenizer a class name means: DistilBertTokenizerFast -> distilbert."""
    names = {"OpenAIGPT": "openai-gpt"} | {name.replace("-", ""): name for name in (*RECIPES, *RELATIVES)}
    short = str(tokenizer_class).removesuffix("Fast").removesuffix("Tokenizer")
    return names.get(short, names.get(short.lower()))


def recipe_for(family: str | None, guess: str) -> Recipe:
    """The recipe of a family (a public model_type), or of the family that the vocabulary looks like."""
    name = RELATIVES.get(family or "", family or "")
    return RECIPES[name if name in RECIPES else guess]


def added_token(id: int, token: str, special: bool, lstrip: bool = False) -> dict[str, Any]:
    """One entry of `added_tokens`: matched in the text before anything else is done to it."""
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": special}
    return {"id": id, "content": token, **flags}


def post_processor(recipe: Recipe, roles: dict[str, str], tokens: dict[str, int]) -> dict[str, Any]:
    """The special tokens around texts, as a post-processor of tokenizer.json."""
    if recipe.roberta:
        ends = {role: [roles[role], tokens[roles[role]]] for role in ("sep", "cls")}
        return {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}

    def step(name: str, segment: str) -> dict[str, Any]:
        kind, id = ("Sequence", name) if name in ("A", "B") else ("SpecialToken", roles[name])
        return {kind: {"id": id, "type_id": int(segment)}}

    single, pair = ([step(*part.split(":")) for part in template.split()] for template in recipe.templates)
    used = sorted({part["SpecialToken"]["id"] for part in (*single, *pair) if "SpecialToken" in part})
    specials = {token: {"id": token, "ids": [tokens[token]], "tokens": [token]} for token in used}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}


WITH_SEGMENTS = ["input_ids", "token_type_ids", "attention_mask"]
WITHOUT_SEGMENTS = ["input_ids", "attention_mask"]
SPACE = "▁"


@dataclass(frozen=True)
class TokenizerSource:
    """A tokenizer as read: the JSON form, the special tokens by role, extra settings, and where it came from."""

    document: dict[str, Any]
    roles: dict[str, str]
    settings: dict[str, Any]
    location: str


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
    """BERT's pre-tokenization: clean, lower-case, then split at spaces, punctuation and Chinese characters."""
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": flag(settings, "tokenize_chinese_chars", True),
        "strip_accents": flag(settings, "strip_accents", True) if "strip_accents" in settings else None,
        "lowercase": flag(settings, "do_lower_case", lowercase),
    }
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": decoder}


def byte_level_parts(prefix: bool) -> dict[str, Any]:
    """GPT-2's pre-tokenization: bytes spelled as characters, a word owns the space before it."""
    level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    return {"normalizer": None, "pre_tokenizer": level, "decoder": {**level, "add_prefix_space": True}}


def metaspace_parts(steps: list[dict[str, Any]], prepend: bool = True, squeeze: bool = True) -> dict[str, Any]:
    """sentencepiece's pre-tokenization: normalization, then spaces become part of the tokens."""
    scheme = "always" if prepend else "never"
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    split = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": split if squeeze else metaspace,
        "decoder": metaspace,
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


def spiece_model(model_file: SentencePieceModel, tokens: dict[str, int]) -> dict[str, Any]:
    """The model of a sentencepiece file."""
    if model_file.kind != BPE:
        scored = [[piece.text, piece.score] for piece in model_file.pieces]
        return {
            "type": "Unigram",
            "unk_id": model_file.unknown,
            "byte_fallback": model_file.byte_fallback,
            "vocab": scored,
        }
    # sentencepiece stores no merges: a piece may be made of any two others, and earlier pieces win
    merges = []
    for piece, id in tokens.items():
        for cut in range(1, len(piece)):
            first, second = piece[:cut], piece[cut:]
            if first in tokens and second in tokens:
                merges.append((id, len(first), len(second), first, second))
    ordered = [[first, second] for *_, first, second in sorted(merges)]
    model = bpe_model(tokens, ordered, model_file.pieces[model_file.unknown].text, fuse=True)
    return {**model, "byte_fallback": model_file.byte_fallback}


def spiece_parts(model_file: SentencePieceModel, recipe: Recipe, settings: dict[str, Any]) -> dict[str, Any]:
    """ALBERT and XLNet unify quotes and strip accents before sentencepiece's own table; other models do not."""
    steps: list[dict[str, Any]] = []
    if recipe.quotes:
        steps += [{"type": "Replace", "pattern": {"String": quote}, "content": '"'} for quote in ("``", "''")]
        if recipe.strip_accents or not flag(settings, "keep_accents", False):
            steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if flag(settings, "do_lower_case", recipe.lowercase):
        steps.append({"type": "Lowercase"})
    if model_file.charsmap:
        table = base64.b64encode(model_file.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
    return metaspace_parts(steps, model_file.adds_space, model_file.removes_spaces)


def assemble(
    model: dict[str, Any],
    parts: dict[str, Any],
    recipe: Recipe,
    settings: dict[str, Any],
    location: str,
    extra: list[dict[str, Any]] | None = None,
) -> TokenizerSource:
    """The JSON form: model and parts, with the family's special tokens and templates; `extra` are more added tokens."""
    vocab = model["vocab"]
    tokens = vocab if isinstance(vocab, dict) else {piece: id for id, (piece, _) in enumerate(vocab)}
    tokens = tokens | {entry["content"]: entry["id"] for entry in extra or []}
    roles = recipe.roles | roles_of(settings)
    needed = {"cls", "sep"} if recipe.roberta or "cls" in recipe.templates[0] else set()
    needed |= {"unk"} if model["type"] == "WordPiece" else set()
    missing = sorted(roles[role] for role in needed if roles[role] not in tokens)
    if missing:
        raise TokenizerError(f"{location}: the vocabulary lacks the special token {shorten_list(missing)}")
    entries = {entry["content"]: entry for entry in extra or []}
    for token in set(roles.values()) & tokens.keys():
        # RoBERTa's mask takes the space before it: "a <mask>" must not leave a token that is only a space
        lstrip = recipe.roberta and token == roles.get("mask")
        entries[token] = added_token(tokens[token], token, special=True, lstrip=lstrip)
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(entries.values(), key=lambda entry: entry["id"]),
        **parts,
        "post_processor": post_processor(recipe, roles, tokens),
        "model": model,
    }
    defaults = {
        "model_input_names": WITH_SEGMENTS if recipe.segments else WITHOUT_SEGMENTS,
        "padding_side": "left" if recipe.pad_left else "right",
    }
    return TokenizerSource(
        document, {role: token for role, token in roles.items() if token in tokens}, defaults | settings, location
    )
