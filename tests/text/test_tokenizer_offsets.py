"""Offsets slice the user's own string: inside it, never going back, without blanks, and covering every word."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizers import KINDS, NASTY, SENTENCES, small, strange_texts

from kinfolk.errors import InputError
from kinfolk.text.tokenizer import Tokenizer
from surroundings import shared_fixture

VOCABULARIES = ("bert-base-uncased", "roberta-base", "openai-gpt", "albert-base", "xlnet-base-cased")
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)  # lone surrogates included
ANY = pytest.mark.parametrize("name", [*KINDS, *VOCABULARIES])


@cache
def tokenizer(name: str) -> Tokenizer:
    return small(name) if name in KINDS else Tokenizer.load(shared_fixture(f"vocab/{name}"))


def seen(text: str, offsets: list[tuple[int, int]]) -> str:
    """The characters that some token covers."""
    return "".join(text[index] for index in sorted({index for start, end in offsets for index in range(start, end)}))


def check_offsets(name: str, text: str) -> None:
    encoding = tokenizer(name).encode(text)
    reached = 0
    covered: set[int] = set()
    for (start, end), sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True):
        if sequence is None:
            assert (start, end) == (0, 0)
            continue
        assert reached <= start <= end <= len(text)
        assert text[start:end] == text[start:end].strip()
        reached = start
        covered.update(range(start, end))
    assert [letter for index, letter in enumerate(text) if letter.isalnum() and index not in covered] == []


@ANY
def test_offsets_of_strange_texts_stay_inside_and_cover_every_word(name: str):
    for text in (*NASTY, *SENTENCES, *strange_texts(800, seed=1)):
        check_offsets(name, text)


@ANY
@settings(max_examples=60, deadline=None, derandomize=True)
@given(text=ANY_TEXT)
def test_offsets_of_any_text_stay_inside_and_cover_every_word(name: str, text: str):
    check_offsets(name, text)


@ANY
def test_a_token_owns_no_blank(name: str):
    text = "the  river\u3000carried\nthe boat"
    encoding = tokenizer(name).encode(text, add_special_tokens=False)
    assert seen(text, encoding.offsets) == "therivercarriedtheboat"


@ANY
def test_lone_surrogates_read_as_the_replacement_character(name: str):
    ours = tokenizer(name)
    assert ours.encode("the \ud800river").ids == ours.encode("the \ufffdriver").ids
    assert ours.encode("the \ud800 river").offsets == ours.encode("the \ufffd river").offsets


@ANY
def test_control_characters_do_not_shift_offsets(name: str):
    for text in ("\x10the boat", "\x01\x02the boat", "[SEP]\x10the boat", "\u0301\x10the boat"):
        offsets = tokenizer(name).encode(text, add_special_tokens=False).offsets
        assert seen(text, offsets).endswith("theboat")
        assert {start for start, _ in offsets} >= {text.index("t"), text.index("b")}


@pytest.mark.parametrize("kind", KINDS)
def test_accents_belong_to_the_letter_before_them(kind: str):
    text = "cafe\u0301 river"
    spans = [span for span in small(kind).encode(text, add_special_tokens=False).offsets if span[0] < 5]
    assert max(end for _, end in spans) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_of_a_pair_count_in_each_text(kind: str):
    first, second = "the river", "the old mill"
    encoding = small(kind).encode((first, second))
    texts = {0: first, 1: second}
    for sequence, text in texts.items():
        spans = zip(encoding.offsets, encoding.sequence_ids, strict=True)
        assert seen(text, [span for span, owner in spans if owner == sequence]) == text.replace(" ", "")


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_numbered_in_order(kind: str):
    words = small(kind).encode("the river carried boats", add_special_tokens=False).word_ids
    assert words == sorted(words)
    assert set(words) == set(range(4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_gives_the_same_tokens_alone_and_in_company(kind: str):
    ours = small(kind)
    together = ours.encode_many([*SENTENCES, *NASTY])
    for text, result in zip([*SENTENCES, *NASTY], together, strict=True):
        alone = ours.encode(text)
        assert (result.ids, result.offsets, result.word_ids) == (alone.ids, alone.offsets, alone.word_ids)


@pytest.mark.parametrize("wrong", [None, 3, b"bytes", ("a", "b", "c"), ("a", None), ()])
def test_what_is_no_text_is_refused(wrong: object):
    with pytest.raises(InputError, match="pair of texts, found"):
        small("wordpiece").encode(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        small("wordpiece").encode_many("one text")
