"""Random faults in config.json: the folder loads and computes, or is refused in one line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kinfolk.checkpoints.folder import TextModel, read_checkpoint, write_checkpoint
from kinfolk.errors import KinfolkError
from kinfolk.models.family import Model
from kinfolk.nn.packed import pack
from support.tiny import CASES, ENCODERS, our_lm, our_seq2seq, our_transformer, their_marian, their_model
from surroundings import RAN, faults

MUTATIONS = faults("KINFOLK_MUTATIONS", 100)  # of each family's config.json
HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 10**12, 10**30, 2**24, 0.5, 1.5, -0.5, 1e-300, 1e300, "", "x", "bert",
    "gelu", "\ud800", "../..", "x" * 10_000, [], [[]], [None], ["BertModel"], {}, {"a": 1}, [10**9] * 3, {"": [{}]},
]  # fmt: skip


def mutated(text: str, rng: random.Random) -> str:
    """A config.json with one to three faults."""
    settings = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(settings) or ["model_type"])
        kind = rng.randrange(6)
        if kind == 0:
            settings.pop(name, None)
        elif kind == 1:
            settings[name + rng.choice("sx_")] = settings.get(name)
        elif kind == 2:
            nested = "[" * (depth := rng.choice([3, 500, 100_000])) + "]" * depth
            return text.replace(f'"{name}":', f'"{name}": {nested}, "also":', 1)
        elif kind == 3:
            place = rng.randrange(len(text))
            return text[:place] + rng.choice(['"', "{", "}", "NaN", "1e999", "\0", "9" * 5000]) + text[place:]
        elif kind == 4:
            return text.replace("{", f'{{"{name}": {json.dumps(rng.choice(HOSTILE))},', 1)  # the key stands there twice
        else:
            settings[name] = rng.choice(HOSTILE)
    return json.dumps(settings)


def save_theirs(case: str, folder: Path) -> None:
    their_model(case, "ForMaskedLM" if case in ENCODERS else "LMHeadModel").save_pretrained(folder)


def save_ours(make: Callable[..., Model], folder: Path, **settings: Any) -> None:
    write_checkpoint(folder, TextModel(make(**settings).float()))


WRITERS: dict[str, Callable[[Path], None]] = {
    **{case: partial(save_theirs, case) for case in CASES},
    "marian": lambda folder: their_marian().save_pretrained(folder),
    "transformer": partial(save_ours, our_transformer),
    "attention": partial(save_ours, our_seq2seq, score="bilinear"),
    "language model": partial(save_ours, our_lm, tied=False),
}


@pytest.mark.parametrize("case", WRITERS)
def test_a_mutated_config_loads_or_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    WRITERS[case](tmp_path)
    text, rng = (tmp_path / "config.json").read_text(), random.Random(case)
    messages = []
    for _ in range(MUTATIONS):
        (tmp_path / "config.json").write_text(mutated(text, rng), errors="surrogatepass")
        try:
            model = read_checkpoint(tmp_path).model
        except KinfolkError as error:
            messages.append(str(error))
            continue
        source, target = pack([[5, 6, 7], [8]]), pack([[1], [1, 9]])
        conditional = model.family.is_conditional
        vectors = model(source, target) if conditional else model(source)
        assert len(vectors) == (3 if conditional else 4)
    RAN["mutated files"] += MUTATIONS
    assert MUTATIONS / 2 < len(messages) < MUTATIONS
    assert all("\n" not in message and len(message) < 600 for message in messages)
