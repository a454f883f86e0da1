"""The verb `tag`: one tag per word, offsets into the user's text, the same in any company, from any length."""

from __future__ import annotations

from pathlib import Path

import pytest

import kinfolk
from kinfolk.api.experiment import Trained
from kinfolk.api.loaded import Encoder
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.tasks.tag import Tagged, tag
from kinfolk.text.encoding import word_offsets
from small_tags import WORDS, random_tagger, sentences

TEXTS = [
    "The river has quartz kettle, and a violin yarrow; quartz.",
    "café \U0001f469‍\U0001f4bb didn't\n\n violin",
    "",
    "  \t",
    "\x01\x02",
    "a\ud800b quartz",
]


@pytest.fixture
def tagger(taggers: Trained) -> Encoder:
    return kinfolk.load(taggers.folder, device="cpu")


def words_of(tagged: Tagged) -> list[tuple[str, str]]:
    return [(word.text, word.tag) for word in tagged.words]


def test_a_trained_model_finds_the_entities_of_new_texts(tagger: Encoder) -> None:
    for example in sentences(10, seed=5):
        predictions = tagger.tag(list(example.words), words=True)
        assert [word.tag for word in predictions.words] == list(example.tags)
    predictions = tagger.tag("water quartz kettle paper  violin river")
    assert [(entity.type, entity.text) for entity in predictions.entities] == [
        ("STONE", "quartz kettle"),
        ("TUNE", "violin"),
    ]


def test_offsets_slice_the_users_text(tagger: Encoder) -> None:
    for text, tagged in zip(TEXTS, tagger.tag(TEXTS), strict=True):
        assert [(word.start, word.end) for word in tagged.words] == word_offsets(text)
        assert all(text[part.start : part.end] == part.text for part in (*tagged.words, *tagged.entities))
        assert all(0 <= word.probability <= 1 for word in tagged.words)


def test_a_text_has_the_same_tags_alone_and_in_any_company(tagger: Encoder) -> None:
    together = tagger.tag([*TEXTS, " ".join(WORDS * 9), *TEXTS])
    for index, text in enumerate(TEXTS):
        alone = tagger.tag(text)
        for tagged in (together[index], together[index + len(TEXTS) + 1]):
            assert words_of(tagged) == words_of(alone)
            chances = [word.probability for word in alone.words]
            assert [word.probability for word in tagged.words] == pytest.approx(chances, abs=1e-5)


@pytest.mark.parametrize("head", ["tag", "tag_crf"])
def test_1500_words_have_1500_tags(tiny_bert: Path, head: str) -> None:
    encoder = random_tagger(tiny_bert, head)
    text = " ".join(WORDS * 150)
    predictions = encoder.tag(text)
    assert encoder.context == 40
    assert [word.text for word in predictions.words] == WORDS * 150
    assert len({word.tag for word in predictions.words}) > 1
    assert all(word.probability > 0 for word in predictions.words)


@pytest.mark.parametrize("head", ["tag", "tag_crf"])
def test_no_word_lies_in_two_entities_or_half_in_one(tiny_bert: Path, head: str) -> None:
    encoder = random_tagger(tiny_bert, head)
    text = "unfathomable interdependencies misunderstood, re-established; extraordinarily " * 5
    predictions = encoder.tag(text)
    edges = {word.start for word in predictions.words}, {word.end for word in predictions.words}
    inside = [index for entity in predictions.entities for index in range(entity.first, entity.last)]
    assert inside
    assert len(inside) == len(set(inside))
    assert all(entity.start in edges[0] and entity.end in edges[1] for entity in predictions.entities)


def test_strings_lists_and_words_are_distinguished(tiny_bert: Path) -> None:
    encoder = random_tagger(tiny_bert)
    one, same = encoder.tag("water, stone"), encoder.tag(["water", ",", "stone"], words=True)
    assert isinstance(one, Tagged)
    assert words_of(one) == words_of(same)
    assert [word.start for word in same.words] == [0, 6, 8]
    many = encoder.tag(text for text in ("water, stone", "river"))
    assert [words_of(tagged) for tagged in many] == [words_of(one), words_of(encoder.tag("river"))]
    split = encoder.tag([["water", ",", "stone"], ("river",), []], words=True)
    assert [words_of(tagged) for tagged in split] == [words_of(one), words_of(many[1]), []]
    assert encoder.tag([]) == []
    assert encoder.tag([], words=True) == Tagged((), ())


def test_texts_are_read_as_they_are_asked_for(tiny_bert: Path) -> None:
    def endless() -> object:
        while True:
            yield "water"

    stream = tag(random_tagger(tiny_bert), endless())
    assert [word.text for word in next(stream).words] == ["water"]


@pytest.mark.parametrize(
    ("inputs", "words", "reason"),
    [
        (5, False, "found an int"),
        ({"text": "a"}, False, "texts, found a dict"),
        ("a text", True, "found a str"),
        ({"text": "a"}, True, "words, found a dict"),
        (["a", ["b"]], True, "not both"),
        ([["a"], [5]], True, "text 1 is neither"),
        (["a", 5], False, "text 1 is neither"),
    ],
)
def test_what_is_no_text_is_one_line(tiny_bert: Path, inputs: object, words: bool, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        random_tagger(tiny_bert).tag(inputs, words=words)


def test_a_model_without_a_tagger_says_so(encoder: Encoder) -> None:
    with pytest.raises(MissingHeadError, match="tagger"):
        encoder.tag("a text")
