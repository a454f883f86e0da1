"""Vets a tokenizer.json before the tokenizers library sees it.

The library trusts its input: a hostile pattern makes it panic or hang, a normaliser may blow a text up, ids may
collide. So every component must be one that is known here, with known fields of known kinds; patterns are plain
strings or stand in a list of published ones; sizes are bounded. What passes can do no more than tokenise.
"""

from __future__ import annotations

from typing import Any

from kinfolk.errors import TokenizerError, first_few, nearest
from kinfolk.text.charsmap import check_charsmap
from kinfolk.text.components import COMPONENTS, KNOWN_PATTERNS, LONGEST_STRING, NESTED, number
from kinfolk.text.vocabulary import check_added, check_model

MOST_COMPONENTS = 32
DEEPEST = 3
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
            raise TokenizerError(f"{self.where}: {room} {name[:40]!r} is not known{nearest(name[:40], kinds)}")
        if self.seen > MOST_COMPONENTS or depth > DEEPEST:
            raise TokenizerError(f"{self.where}: more than {MOST_COMPONENTS} {room} components, or nested too deeply")
        for field, value in found.items():
            if field == "type":
                continue
            if field not in kinds[name]:
                hint = nearest(field[:40], kinds[name])
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
            if not isinstance(value, dict) or set(value) != {"id", "type_id"} or not number(15)(value["type_id"]):
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
