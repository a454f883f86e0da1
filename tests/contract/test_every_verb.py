"""A verb on a model that lacks its head is one line, in every family; a new head is built or refused the same way."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from relatives import ENCODERS, every_encoder, tiny_model

from kinfolk.api.loaded import Encoder
from kinfolk.demo import passages
from kinfolk.errors import MissingHeadError
from kinfolk.models.family import Family, with_new_head
from kinfolk.text.tokenizer import Tokenizer
from kinfolk.text.train import train_tokenizer

VERBS: dict[str, Callable[[Encoder], object]] = {
    "fill": lambda model: model.fill("a [MASK]"),
    "next_sentence": lambda model: model.next_sentence("a", "b"),
    "sentence_order": lambda model: model.sentence_order("a", "b"),
    "classify": lambda model: model.classify("a"),
    "tag": lambda model: model.tag("a"),
    "answer": lambda model: model.answer("a", "b"),
    "choose": lambda model: model.choose("a", ["b", "c"]),
}
HEADS = sorted({name for family in ENCODERS for name in family.heads})


@cache
def words() -> Tokenizer:
    return train_tokenizer("words", passages(), 40)


@every_encoder
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_without_its_head_is_one_line(family: Family, verb: str) -> None:
    model = Encoder(tiny_model(family, []), words())
    with pytest.raises(MissingHeadError) as caught:
        VERBS[verb](model)
    assert "\n" not in str(caught.value)


@every_encoder
@pytest.mark.parametrize("head", HEADS)
def test_a_new_head_is_built_or_refused_in_one_line(family: Family, head: str) -> None:
    model = tiny_model(family, [])
    if head in family.heads:
        assert list(with_new_head(model, head, 3)[0].heads) == [head]
    else:
        with pytest.raises(MissingHeadError, match=f"^{family.title} has no {head} head; its heads are .*classify"):
            with_new_head(model, head, 3)
