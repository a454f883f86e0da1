"""Folders of every kind that earlier versions saved: they load for ever, and say what they said when they were saved.

Each folder tests/saved/VERSION/KIND holds a `model` (an index has one beside it) and `expected.json`: calls of its
verbs, and what that version gave. Numbers may differ by rounding, texts not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kinfolk
from kinfolk.api.search import Index
from kinfolk.checkpoints.folder import read_checkpoint
from kinfolk.models.family import all_families
from kinfolk.tasks.text import PROBLEM_TYPES

SAVED = Path(__file__).parent / "saved"
KINDS = sorted(str(path.parent.relative_to(SAVED)) for path in SAVED.glob("*/*/expected.json"))
CLOSE = 1e-6  # of a number's size, or of the largest in its vector; numbers below one count as one
RENAMED = {("generate", "tokens"): "max_tokens"}  # arguments as the recorded calls name them: as they are called now
FIELDS = {"number": "index"}  # and fields of what they gave


def verb_of(model: Any, name: str, folder: Path) -> Callable[..., Any]:
    """What the calls of this name in expected.json call."""
    return partial(Index.open(folder / "index").search, model) if name == "search" else getattr(model, name)


def pairs_as_tuples(argument: Any) -> Any:
    """JSON has no tuples: a list in a list of texts is a pair of them."""
    if not isinstance(argument, list):
        return argument
    return [tuple(item) if isinstance(item, list) else item for item in argument]


def differences(found: Any, expected: Any, where: str = "", scale: float = 1.0) -> Iterator[str]:
    """Where a result is not what is expected, and how; fields that are expected of no object may be new."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            part = found[name] if isinstance(found, Mapping) else getattr(found, FIELDS.get(name, name))
            yield from differences(part, value, f"{where}.{name}")
    elif isinstance(expected, list):
        if len(found) != len(expected):
            yield f"{where}: {len(found)} instead of {len(expected)}"
        largest = max((abs(value) for value in expected if isinstance(value, float)), default=1.0)
        for number, (part, value) in enumerate(zip(found, expected, strict=False)):
            yield from differences(part, value, f"{where}[{number}]", largest)
    elif isinstance(expected, float):
        if not abs(found - expected) <= CLOSE * max(1.0, scale, abs(expected)):
            yield f"{where}: {found!r} instead of {expected!r}"
    elif found != expected:
        yield f"{where}: {found!r} instead of {expected!r}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")  # of texts that are long, or that a vocabulary cannot spell
def test_a_folder_of_an_earlier_version_loads_and_gives_what_it_gave(kind: str) -> None:
    model = kinfolk.load(SAVED / kind / "model", device="cpu")
    for call in json.loads((SAVED / kind / "expected.json").read_text(encoding="utf-8")):
        verb, arguments = verb_of(model, call["verb"], SAVED / kind), map(pairs_as_tuples, call["arguments"])
        options = {RENAMED.get((call["verb"], name), name): value for name, value in call["options"].items()}
        found = verb(*arguments, **options)
        assert list(differences(found, call["gives"], call["verb"])) == []


def test_every_family_task_and_head_has_a_saved_folder() -> None:
    checkpoints = [read_checkpoint(path.parent) for path in SAVED.glob("*/*/model/config.json")]
    saved = {(checkpoint.model.family.name, head) for checkpoint in checkpoints for head in checkpoint.model.heads}
    assert saved == {(family.name, head) for family in all_families() for head in family.heads}
    tasks = {checkpoint.hf_config.get("problem_type") for checkpoint in checkpoints}
    assert tasks - {None} == set(PROBLEM_TYPES.values())  # which share a head


def test_every_verb_was_recorded() -> None:
    calls = [call for kind in KINDS for call in json.loads((SAVED / kind / "expected.json").read_text("utf-8"))]
    assert {call["verb"] for call in calls} == {
        *("embed", "fill", "next_sentence", "sentence_order", "classify", "tag", "answer", "choose"),
        *("perplexity", "generate", "translate", "align", "search"),
    }
