"""Random faults in config.json: the folder loads and computes, or is refused in one line."""

from __future__ import annotations

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
from support.config_mutations import mutated
from support.tiny import CASES, ENCODERS, our_lm, our_seq2seq, our_transformer, their_marian, their_model
from surroundings import RAN, faults

MUTATIONS = faults("KINFOLK_MUTATIONS", 100)  # of each family's config.json


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
