"""Texts fall into words by one rule, and tags into entities that share no word."""

from __future__ import annotations

import random

import pytest

from kinfolk.data.tagging import split_tag
from kinfolk.errors import InputError
from kinfolk.tasks.tag import Tagged, split_text_words
from kinfolk.text.encoding import word_offsets


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Zoë didn't pay 1,000.5 kr.", "Zoë|didn't|pay|1,000.5|kr|."),
        ("a well-known rock'n'roll - or 'so'", "a|well-known|rock'n'roll|-|or|'|so|'"),
        ("at 12:30, x_1 (a.b 3.) ...", "at|12|:|30|,|x_1|(|a|.|b|3|.|)|.|.|."),
        ("北京 is big", "北|京|is|big"),
        ("नमस्ते दुनिया", "नमस्ते|दुनिया"),
        ("e\u0301te\u0301 e\u0301.", "e\u0301te\u0301|e\u0301|."),
        ("👩‍💻☀️hot", "👩‍💻|☀️|hot"),
        ("می\u200cخواهم بروم", "می\u200cخواهم|بروم"),
        ("น้ำ", "น้|ำ"),
        ("a\u00a0b\u2028c\td\n", "a|b|c|d"),
        ("\x10ab", "\x10|ab"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_the_rule_for_words(text: str, words: str) -> None:
    assert [text[start:end] for start, end in word_offsets(text)] == [word for word in words.split("|") if word]


def test_words_cover_all_but_blanks_and_go_forward() -> None:
    draw = random.Random(0)
    for _ in range(200):
        text = "".join(draw.choices("aZ9é\u0301’'-., \n中ก้👩\u200d💻\ufe0f\x01\ud800_", k=30))
        offsets = word_offsets(text)
        assert all(start < end for start, end in offsets)
        assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)
        left = set(range(len(text))) - {index for start, end in offsets for index in range(start, end)}
        assert all(text[index].isspace() for index in left)


def test_given_words_are_joined_by_blanks() -> None:
    text, offsets = split_text_words(("New York", "", "is", "big"))
    assert text == "New York  is big"
    assert offsets == [(0, 8), (9, 9), (10, 12), (13, 16)]


@pytest.mark.parametrize("inputs", [5, None, ["a", 5], {"a"}, b"bytes"])
def test_what_is_no_text_is_refused(inputs: object) -> None:
    with pytest.raises(InputError, match="text 3 "):
        split_text_words(inputs, "text 3")


def test_an_entity_spans_its_words_and_is_as_sure_as_the_least_sure() -> None:
    text = "Ada  Lovelace, London"
    result = Tagged.of(text, word_offsets(text), ("B-PER", "I-PER", "O", "B-LOC"), (0.9, 0.7, 0.8, 0.6))
    assert [(entity.type, entity.text, entity.probability) for entity in result.entities] == [
        ("PER", "Ada  Lovelace", 0.7),
        ("LOC", "London", 0.6),
    ]
    person = result.entities[0]
    assert (person.start, person.end, person.first, person.last) == (0, 13, 0, 2)


def test_no_word_lies_in_two_entities_whatever_the_tags() -> None:
    draw = random.Random(1)
    kinds = [f"{letter}-{kind}" for letter in "BIESLU" for kind in ("PER", "LOC")] + ["O", "B", "I", "NN", "LABEL_0"]
    for _ in range(300):
        tags = draw.choices(kinds, k=8)
        text = "a b c d e f g h"
        result = Tagged.of(text, word_offsets(text), tags, [0.5] * 8)
        inside = [word for entity in result.entities for word in range(entity.first, entity.last)]
        assert len(inside) == len(set(inside))
        assert all(text[entity.start : entity.end] == entity.text for entity in result.entities)
        missing = [tag for word, tag in enumerate(tags) if word not in inside and split_tag(tag)[0] in "BIES"]
        assert [tag for tag in missing if split_tag(tag)[0] not in ("", "O")] == []
