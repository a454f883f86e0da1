"""What each family of models expects of its tokenizer when only vocabulary files are there (no tokenizer.json).

A recipe names the special tokens by role, the layout around texts, and how words are found. The published
tokenizer.json of each family says the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ROLES = ("cls", "sep", "pad", "unk", "mask", "bos", "eos")

BERT_ROLES = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
FAIRSEQ_ROLES = {
    "cls": "<s>",
    "sep": "</s>",
    "pad": "<pad>",
    "unk": "<unk>",
    "mask": "<mask>",
    "bos": "<s>",
    "eos": "</s>",
}
ALBERT_ROLES = {**BERT_ROLES, "pad": "<pad>", "unk": "<unk>", "bos": "[CLS]", "eos": "[SEP]"}
XLNET_ROLES = {
    "cls": "<cls>",
    "sep": "<sep>",
    "pad": "<pad>",
    "unk": "<unk>",
    "mask": "<mask>",
    "bos": "<s>",
    "eos": "</s>",
}

# places of special tokens by role, A and B for the texts; the number is the segment
BERT_LAYOUT = ("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1")
XLNET_LAYOUT = ("A:0 sep:0 cls:2", "A:0 sep:0 B:1 sep:1 cls:2")
PLAIN_LAYOUT = ("A:0", "A:0 B:1")


@dataclass(frozen=True)
class Recipe:
    """One family's habits."""

    roles: dict[str, str] = field(default_factory=dict)
    layout: tuple[str, str] = PLAIN_LAYOUT
    roberta: bool = False  # <s> a </s></s> b </s>, all in segment 0
    lowercase: bool = True  # unless tokenizer_config.json says otherwise
    word_end: str = ""  # the first GPT marks the last piece of a word
    segments: bool = True  # do models of the family read segments?
    pads_left: bool = False  # XLNet looks back from the end
    quotes: bool = False  # `` and '' become ", and accents go
    strips_always: bool = False  # XLNet's reference strips accents even under keep_accents


RECIPES = {
    "bert": Recipe(BERT_ROLES, BERT_LAYOUT),
    "distilbert": Recipe(BERT_ROLES, BERT_LAYOUT, segments=False),
    "mpnet": Recipe({**FAIRSEQ_ROLES, "unk": "[UNK]"}, roberta=True, segments=False),
    "roberta": Recipe(FAIRSEQ_ROLES, roberta=True, segments=False),
    "gpt2": Recipe(dict.fromkeys(("unk", "bos", "eos"), "<|endoftext|>"), segments=False),
    "openai-gpt": Recipe({"unk": "<unk>"}, word_end="</w>", segments=False),
    "albert": Recipe(ALBERT_ROLES, BERT_LAYOUT, quotes=True),
    "xlnet": Recipe(XLNET_ROLES, XLNET_LAYOUT, lowercase=False, pads_left=True, quotes=True, strips_always=True),
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


def usual_roles(document: dict[str, Any]) -> dict[str, str]:
    """Role -> token, guessed from the names of a tokenizer.json's special tokens."""
    entries = document.get("added_tokens")
    entries = entries if isinstance(entries, list) else []
    present = {entry.get("content") for entry in entries if isinstance(entry, dict)}
    found = {role: next((token for token in tokens if token in present), None) for role, tokens in COMMON.items()}
    return {role: token for role, token in found.items() if token is not None}


def family_of(tokenizer_class: Any) -> str | None:
    """The family whose tokenizer a class name means: DistilBertTokenizerFast -> distilbert."""
    names = {"OpenAIGPT": "openai-gpt"} | {name.replace("-", ""): name for name in (*RECIPES, *RELATIVES)}
    short = str(tokenizer_class).removesuffix("Fast").removesuffix("Tokenizer")
    return names.get(short, names.get(short.lower()))


def recipe_for(family: str | None, guess: str) -> Recipe:
    """The recipe of a family (a public model_type), or of the family that the vocabulary looks like."""
    name = RELATIVES.get(family or "", family or "")
    return RECIPES[name if name in RECIPES else guess]


def special_entries(tokens: dict[str, int], roles: dict[str, str], eats_blank: bool) -> list[dict[str, Any]]:
    """The entries of `added_tokens` for the roles' tokens that the vocabulary has.

    With `eats_blank` the mask takes the blank before it, as RoBERTa's published tokenizer has it: "a <mask>" must not
    leave a piece that is only a blank.
    """
    present = sorted({token for token in roles.values() if token in tokens}, key=lambda token: tokens[token])
    return [
        added_token(tokens[token], token, special=True, lstrip=eats_blank and token == roles.get("mask"))
        for token in present
    ]


def added_token(number: int, token: str, special: bool, lstrip: bool = False) -> dict[str, Any]:
    """One entry of `added_tokens`: found in the text before anything else is done to it."""
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": special}
    return {"id": number, "content": token, **flags}


def post_processor(recipe: Recipe, roles: dict[str, str], tokens: dict[str, int]) -> dict[str, Any]:
    """The layout around texts, as a post-processor of tokenizer.json."""
    if recipe.roberta:
        ends = {role: [roles[role], tokens[roles[role]]] for role in ("sep", "cls")}
        return {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}
    used: set[str] = set()
    single, pair = (_steps(template, roles, used) for template in recipe.layout)
    specials = {token: {"id": token, "ids": [tokens[token]], "tokens": [token]} for token in sorted(used)}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}


def _steps(template: str, roles: dict[str, str], used: set[str]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for step in template.split():
        name, segment = step.split(":")
        if name in ("A", "B"):
            steps.append({"Sequence": {"id": name, "type_id": int(segment)}})
        else:
            used.add(roles[name])
            steps.append({"SpecialToken": {"id": roles[name], "type_id": int(segment)}})
    return steps
