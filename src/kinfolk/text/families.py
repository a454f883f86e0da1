"""The files of a tokenizer, and what each family of models expects of them.

Each kind is read as one form, the content of a tokenizer.json, and written from it; so every source passes the same
check and is loaded in the same way. tokenizer.json is preferred; else vocab.txt (WordPiece), vocab.json with merges.txt
(BPE), or a sentencepiece model (Unigram or BPE). Settings come from tokenizer_config.json and special_tokens_map.json.

Where only vocabulary files are there, a family's recipe names the special tokens by role, the templates around texts,
and how text is split into words. The published tokenizer.json of each family says the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from kinfolk.errors import FolderError, TokenizerError, shorten_list
from kinfolk.files import inside, read_object, read_optional, read_text, require_file, write_bytes, write_json
from kinfolk.text.validation import check_vocabulary, named

Json = dict[str, Any]  # an object of a JSON file
SENTENCEPIECE = "kinfolk.text.sentencepiece"  # loaded where there is such a file
CASED_SHARE = 0.1  # of pieces with capitals: 29 % in BERT's cased vocabulary, next to none in the others
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.model", "tokenizer.model")
LARGEST_LENGTH = 10**9  # files write 1e30 for "no limit"
FLAGS = ("do_lower_case", "keep_accents", "add_prefix_space")
OF_BERT = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")  # settings, and what the normalizer calls them
BERT_SETTINGS = dict(zip(OF_BERT, ("lowercase", "strip_accents", "handle_chinese_chars"), strict=True))
ROLES = ("cls", "sep", "pad", "unk", "mask", "bos", "eos")

BERT_ROLES = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
FAIRSEQ_ROLES = dict(zip(ROLES, ("<s>", "</s>", "<pad>", "<unk>", "<mask>", "<s>", "</s>"), strict=True))
ALBERT_ROLES = {**BERT_ROLES, "pad": "<pad>", "unk": "<unk>", "bos": "[CLS]", "eos": "[SEP]"}
XLNET_ROLES = dict(zip(ROLES, ("<cls>", "<sep>", "<pad>", "<unk>", "<mask>", "<s>", "</s>"), strict=True))

# special tokens by role, A and B for the texts; the number is the segment
BERT_TEMPLATES = ("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1")
XLNET_TEMPLATES = ("A:0 sep:0 cls:2", "A:0 sep:0 B:1 sep:1 cls:2")
PLAIN_TEMPLATES = ("A:0", "A:0 B:1")


@dataclass(frozen=True)
class TokenizerSource:
    """A tokenizer as read: the JSON form, the special tokens by role, extra settings, and where it came from."""

    document: Json
    roles: dict[str, str]
    settings: Json
    location: str


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

    @property
    def input_names(self) -> list[str]:
        """What transformers calls the inputs of such a model."""
        return ["input_ids", *(["token_type_ids"] if self.segments else []), "attention_mask"]


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


def guess_roles(document: Json) -> dict[str, str]:
    """Role -> token, guessed from the names of a tokenizer.json's special tokens."""
    entries = document.get("added_tokens")
    entries = entries if isinstance(entries, list) else []
    present = [entry.get("content") for entry in entries if isinstance(entry, dict)]
    # of several tokens for a role the first counts, so it is set last
    return {role: token for role, tokens in COMMON.items() for token in reversed(tokens) if token in present}


def family_of(tokenizer_class: Any) -> str | None:
    """The family whose tokenizer a class name means: DistilBertTokenizerFast -> distilbert."""
    names = {"OpenAIGPT": "openai-gpt"} | {name.replace("-", ""): name for name in (*RECIPES, *RELATIVES)}
    short = str(tokenizer_class).removesuffix("Fast").removesuffix("Tokenizer")
    return names.get(short, names.get(short.lower()))


def recipe_for(family: str | None, guess: str) -> Recipe:
    """The recipe of a family (a public model_type), or of the family that the vocabulary looks like."""
    name = RELATIVES.get(family or "", family or "")
    return RECIPES[name if name in RECIPES else guess]


def added_token(id: int, token: str, special: bool, lstrip: bool = False) -> Json:
    """One entry of `added_tokens`: matched in the text before anything else is done to it."""
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": special}
    return {"id": id, "content": token, **flags}


def post_processor(recipe: Recipe, roles: dict[str, str], tokens: dict[str, int]) -> Json:
    """The special tokens around texts, as a post-processor of tokenizer.json."""
    if recipe.roberta:
        ends = {role: [roles[role], tokens[roles[role]]] for role in ("sep", "cls")}
        return {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}

    def step(name: str, segment: str) -> Json:
        kind, id = ("Sequence", name) if name in ("A", "B") else ("SpecialToken", roles[name])
        return {kind: {"id": id, "type_id": int(segment)}}

    single, pair = ([step(*part.split(":")) for part in template.split()] for template in recipe.templates)
    used = sorted({part["SpecialToken"]["id"] for part in (*single, *pair) if "SpecialToken" in part})
    specials = {token: {"id": token, "ids": [tokens[token]], "tokens": [token]} for token in used}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}


def roles_of(settings: Json) -> dict[str, str]:
    """Role -> token as the settings name them; a token is text, or an object with its content."""
    tokens = {role: settings.get(f"{role}_token") for role in ROLES}
    contents = {role: token.get("content") if isinstance(token, dict) else token for role, token in tokens.items()}
    roles: Json = {role: token for role, token in contents.items() if token is not None}
    for role, token in roles.items():
        if not isinstance(token, str) or not 0 < len(token) <= 200:
            raise TokenizerError(f"tokenizer settings: {role}_token is not a token: {str(token)[:40]!r}")
    return roles


def flag(settings: Json, name: str, default: bool) -> bool:
    """A setting that must be true or false."""
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise TokenizerError(f"tokenizer settings: {name} must be true or false, not {str(value)[:40]!r}")
    return value


def bert_parts(lowercase: bool, settings: Json) -> Json:
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


def byte_level_parts(prefix: bool) -> Json:
    """GPT-2's pre-tokenization: bytes spelled as characters, a word owns the space before it."""
    level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    return {"normalizer": None, "pre_tokenizer": level, "decoder": {**level, "add_prefix_space": True}}


def metaspace_parts(steps: list[Json], prepend: bool = True, squeeze: bool = True) -> Json:
    """sentencepiece's pre-tokenization: normalization, then spaces become part of the tokens."""
    scheme = "always" if prepend else "never"
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    split = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": split if squeeze else metaspace,
        "decoder": metaspace,
    }


def wordpiece_model(tokens: dict[str, int], unknown: str) -> Json:
    """BERT's model: the longest piece that fits, again and again."""
    limits = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return {"type": "WordPiece", "unk_token": unknown, "vocab": tokens} | limits


def bpe_model(
    tokens: dict[str, int], merges: list[list[str]], unknown: str | None = None, fuse: bool = False, suffix: str = ""
) -> Json:
    """Pieces merged in the order of `merges`."""
    options = {"dropout": None, "continuing_subword_prefix": "", "byte_fallback": False, "ignore_merges": False}
    options |= {"unk_token": unknown, "fuse_unk": fuse, "end_of_word_suffix": suffix}
    return {"type": "BPE", "vocab": tokens, "merges": merges} | options


def assemble(
    model: Json, parts: Json, recipe: Recipe, settings: Json, location: str, extra: Iterable[Json] = ()
) -> TokenizerSource:
    """The JSON form: model and parts, with the family's special tokens and templates; `extra` are more added tokens."""
    vocab, entries = model["vocab"], {entry["content"]: entry for entry in extra}
    tokens = dict(vocab) if isinstance(vocab, dict) else {piece: id for id, (piece, _) in enumerate(vocab)}
    tokens |= {token: entry["id"] for token, entry in entries.items()}
    roles = recipe.roles | roles_of(settings)
    framed = recipe.roberta or "cls" in recipe.templates[0]
    needed = [*(("cls", "sep") if framed else ()), *(("unk",) if model["type"] == "WordPiece" else ())]
    missing = sorted(roles[role] for role in needed if roles[role] not in tokens)
    if missing:
        raise TokenizerError(f"{location}: the vocabulary lacks the special token {shorten_list(missing)}")
    for token in set(roles.values()) & tokens.keys():
        # RoBERTa's mask takes the space before it: "a <mask>" must not leave a token that is only a space
        lstrip = recipe.roberta and token == roles.get("mask")
        entries[token] = added_token(tokens[token], token, special=True, lstrip=lstrip)
    added = sorted(entries.values(), key=lambda entry: entry["id"])
    processor = post_processor(recipe, roles, tokens)
    document = {"version": "1.0", "added_tokens": added, **parts, "post_processor": processor, "model": model}
    defaults = {"model_input_names": recipe.input_names, "padding_side": "left" if recipe.pad_left else "right"}
    present = {role: token for role, token in roles.items() if token in tokens}
    return TokenizerSource(document, present, defaults | settings, location)


def read_source(path: Path, family: str | None = None) -> TokenizerSource:
    """Read a folder, or one tokenizer file (settings are then looked for beside it)."""
    with tokenizer_errors(path):
        if path.is_dir():
            name = next((name for name in FILES if (path / name).is_file()), None)
            if name is None:
                expected = "tokenizer.json, vocab.txt, vocab.json with merges.txt, or spiece.model"
                raise TokenizerError(f"{path}: no tokenizer there; expected {expected}")
            folder, file = path, inside(path, name)
        else:
            folder, file = path.parent, require_file(path, "tokenizer file or folder")
        settings = read_settings(folder)
        family = family or read_optional(inside(folder, "config.json")).get("model_type")
        known = family if isinstance(family, str) else family_of(settings.get("tokenizer_class"))
        if file.suffix == ".txt":
            return _wordpiece(file, settings, known)
        if file.suffix == ".model":
            return import_module(SENTENCEPIECE).read_spiece(file, settings, known)  # type: ignore[no-any-return]
        if file.suffix != ".json":
            raise TokenizerError(f"{file}: expected a .json, .txt or .model file")
        content = read_object(file)
        return (_json if isinstance(content.get("model"), dict) else _bpe)(content, file, settings, known)


@contextmanager
def tokenizer_errors(path: str | Path) -> Iterator[None]:
    """Whatever fails in this block while the files at `path` are read becomes a TokenizerError."""
    try:
        yield
    except TokenizerError:
        raise
    except FolderError as error:
        raise TokenizerError(str(error)) from None
    except (OSError, ValueError) as error:  # a name that the system refuses, for one
        raise TokenizerError(f"{str(path)[:200]!r}: cannot be read ({error})") from None


def read_settings(folder: Path) -> Json:
    """tokenizer_config.json, completed by special_tokens_map.json and added_tokens.json; nulls are left out."""
    settings: Json = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings |= {key: value for key, value in read_optional(inside(folder, name)).items() if value is not None}
    return settings | {"added_tokens": read_optional(inside(folder, "added_tokens.json"))}


def _json(document: Json, file: Path, settings: Json, family: str | None) -> TokenizerSource:
    """A tokenizer.json; BERT's settings beside it overrule what it says, as the reference has it."""
    normalizer = document.get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        changes = {ours: flag(settings, theirs, True) for theirs, ours in BERT_SETTINGS.items() if theirs in settings}
        document = {**document, "normalizer": {**normalizer, **changes}}
    roles = roles_of(settings) or guess_roles(document)
    recipe = recipe_for(family, "bert" if roles.get("cls") == "[CLS]" else "roberta")
    return TokenizerSource(document, roles, {"model_input_names": recipe.input_names} | settings, str(file))


def _wordpiece(file: Path, settings: Json, family: str | None) -> TokenizerSource:
    lines = read_text(file).removesuffix("\n").split("\n")
    tokens = {line.rstrip(): id for id, line in enumerate(lines)}  # of doubles the last counts
    recipe = recipe_for(family, "mpnet" if "<s>" in tokens and "[CLS]" not in tokens else "bert")
    model = wordpiece_model(tokens, (recipe.roles | roles_of(settings))["unk"])
    # to lower-case texts for a vocabulary that tells capitals apart would lose its words with capitals
    capitals = [token != token.lower() for token in tokens if not token.startswith("[")]
    cased = sum(capitals) > len(capitals) * CASED_SHARE
    parts = bert_parts(recipe.lowercase and not cased, settings)
    return assemble(model, parts, recipe, settings, str(file), _added_tokens(settings, file))


def _bpe(content: Json, file: Path, settings: Json, family: str | None) -> TokenizerSource:
    with named(str(file)):
        tokens = check_vocabulary(content)
    merges_file = inside(file.parent, "merges.txt")
    if not merges_file.is_file():
        raise TokenizerError(f"{file}: needs merges.txt beside it")
    merges = []
    for count, line in enumerate(read_text(merges_file).split("\n"), 1):
        pair = line.rstrip("\r").split(" ")
        if line.startswith("#version") or pair == [""]:
            continue
        if len(pair) != 2:
            raise TokenizerError(f"{merges_file}:{count}: expected two tokens, found {line[:40]!r}")
        merges.append(pair)
    guess = "roberta" if "<s>" in tokens else "gpt2" if "<|endoftext|>" in tokens else "openai-gpt"
    recipe = recipe_for(family, guess)
    if recipe.word_suffix:
        unknown = (recipe.roles | roles_of(settings))["unk"]
        model = bpe_model(tokens, merges, unknown, suffix=recipe.word_suffix)
        parts = bert_parts(True, {}) | {"decoder": {"type": "BPEDecoder", "suffix": recipe.word_suffix}}
    else:
        model = bpe_model(tokens, merges)
        parts = byte_level_parts(flag(settings, "add_prefix_space", False))
    return assemble(model, parts, recipe, settings, str(file), _added_tokens(settings, file))


def _added_tokens(settings: Json, file: Path) -> list[Json]:
    """Tokens of added_tokens.json; those that are new must follow the vocabulary without a hole."""
    added = settings["added_tokens"]
    if not all(type(id) is int and token for token, id in added.items()):
        raise TokenizerError(f"{file}: the added_tokens.json beside it is not a list of token -> id")
    return [added_token(id, token, special=False) for token, id in added.items()]


def kept_settings(settings: Json) -> Json:
    """The settings that matter beyond tokenizer.json, as far as they make sense."""
    kept = {name: settings[name] for name in FLAGS if isinstance(settings.get(name), bool)}
    length, names, side = (settings.get(name) for name in ("model_max_length", "model_input_names", "padding_side"))
    if isinstance(length, int | float) and not isinstance(length, bool) and 1 <= length < LARGEST_LENGTH:
        kept["model_max_length"] = int(length)
    if isinstance(names, list) and all(isinstance(name, str) and name.isidentifier() for name in names):
        kept["model_input_names"] = names
    return {**kept, "padding_side": side} if side in ("left", "right") else kept


def save_folder(folder: Path, tokenizer_json: str, special: dict[str, str], settings: Json) -> None:
    """Write tokenizer.json, its settings and the plain vocabulary where there is one; transformers reads equal ids."""
    document = json.loads(tokenizer_json)
    roles = {f"{role}_token": token for role, token in special.items()}
    normalizer, pre_tokenizer = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    if normalizer.get("type") == "BertNormalizer":  # what a reader of vocab.txt needs to know
        settings = settings | {theirs: normalizer[ours] for theirs, ours in BERT_SETTINGS.items()}
    write_bytes(folder / "tokenizer.json", (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode())
    # the class that takes tokenizer.json as it is; a family's own class would rebuild it from defaults
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **settings, **roles})
    write_json(folder / "special_tokens_map.json", roles)
    model = document["model"]
    vocabulary = model["vocab"]
    if model["type"] == "WordPiece":
        by_id = sorted(vocabulary, key=vocabulary.__getitem__)
        if vocabulary[by_id[-1]] == len(by_id) - 1:  # no gaps
            write_bytes(folder / "vocab.txt", "".join(f"{token}\n" for token in by_id).encode())
    # vocab.json with merges.txt says it all for byte-level BPE and for pieces with an end mark
    if model["type"] == "BPE" and (pre_tokenizer.get("type") == "ByteLevel" or model.get("end_of_word_suffix")):
        write_bytes(folder / "vocab.json", json.dumps(vocabulary, ensure_ascii=False).encode())
        lines = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
        write_bytes(folder / "merges.txt", ("\n".join(lines) + "\n").encode())
