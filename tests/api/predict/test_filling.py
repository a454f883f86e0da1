"""Hidden words: the reference's numbers for single pieces, the product rule for words of several."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from kinfolk.api.loaded import Encoder, load
from kinfolk.demo import passages
from kinfolk.errors import InputError, MissingHeadError
from kinfolk.models.family import Model
from kinfolk.models.family import family as family_of
from kinfolk.text.train import train_tokenizer
from support.tiny import randomise, write_folder

TEXT = "The [MASK] sleeps in the sun."


@pytest.fixture(scope="module")
def theirs(five_layers: Path) -> Any:
    return transformers.pipeline("fill-mask", model=str(five_layers), device="cpu", top_k=7)


def their_log_probability(theirs: Any, text: str, pieces: list[int]) -> float:
    """log P(p_1) + log P(p_2 | p_1) + …, masks for what is still to come; the text's one mask is widened."""
    mask = theirs.tokenizer.mask_token_id
    ids = theirs.tokenizer(text)["input_ids"]
    index = ids.index(mask)
    total = 0.0
    for step, piece in enumerate(pieces):
        row = [*ids[:index], *pieces[:step], *[mask] * (len(pieces) - step), *ids[index + 1 :]]
        with torch.no_grad():
            scores = theirs.model(torch.tensor([row])).logits[0, index + step]
        total += float(scores.log_softmax(-1)[piece])
    return total


def joined(text: str, word: str) -> str:
    """The text with a word for its mask; a piece that continues a word stands at the word before it."""
    return text.replace(" [MASK]", word[2:] if word.startswith("##") else f" {word}")


def test_single_pieces_have_the_probabilities_of_the_reference(encoder: Encoder, theirs: Any) -> None:
    fills, expected = encoder.fill(TEXT, top=7), theirs(TEXT)
    assert [guess.word for guess in fills] == [entry["token_str"] for entry in expected]
    assert [guess.probability for guess in fills] == pytest.approx([entry["score"] for entry in expected], abs=1e-6)
    assert [guess.score for guess in fills] == pytest.approx([guess.probability for guess in fills])
    assert fills[0].text == joined(TEXT, fills[0].word)


def test_each_of_several_masks_is_guessed_while_the_others_stay(encoder: Encoder, theirs: Any) -> None:
    text = "[MASK] cats [MASK] in the [MASK]."
    fills, expected = encoder.fill(text, top=7), theirs(text)
    for guesses, entries in zip(fills, expected, strict=True):
        assert [guess.word for guess in guesses] == [entry["token_str"] for entry in entries]
        assert [guess.probability for guess in guesses] == pytest.approx(
            [entry["score"] for entry in entries], abs=1e-6
        )
    before, after = text.removesuffix(" in the [MASK]."), " in the [MASK]."
    assert fills[1][0].text == "[MASK]" + joined(before.removeprefix("[MASK]"), fills[1][0].word) + after


def test_byte_level_pieces_have_the_probabilities_of_the_reference(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "roberta", "roberta", "ForMaskedLM", "byte_bpe")
    theirs = transformers.pipeline("fill-mask", model=str(folder), device="cpu", top_k=7)
    fills, expected = load(folder).fill("The<mask> sleeps.", top=7), theirs("The<mask> sleeps.")
    assert [guess.probability for guess in fills] == pytest.approx([entry["score"] for entry in expected], abs=1e-6)
    assert [guess.word for guess in fills if guess.word.isalpha()] == [
        entry["token_str"].strip() for entry in expected if entry["token_str"].strip().isalpha()
    ]


def test_longer_words_are_whole_and_have_the_product_of_their_pieces(encoder: Encoder, theirs: Any) -> None:
    fills = encoder.fill(TEXT, top=20, pieces=3)
    assert [guess.score for guess in fills] == sorted((guess.score for guess in fills), reverse=True)
    counts = set()
    for guess in fills:
        assert " " not in guess.word
        assert not guess.word.startswith(("##", "["))
        spelt = encoder.tokenizer.encode(guess.word, add_special_tokens=False).ids
        count = round(math.log(guess.probability) / math.log(guess.score))
        counts.add(count)
        if len(spelt) == count:  # a word may also be spelt in more pieces than the tokenizer would take
            expected = their_log_probability(theirs, TEXT, spelt)
            assert math.log(guess.probability) == pytest.approx(expected, abs=1e-4)
            assert guess.score == pytest.approx(math.exp(expected / count), abs=1e-6)
    assert {2, 3} <= counts


def test_a_beam_as_wide_as_the_vocabulary_finds_the_best_word(encoder: Encoder, theirs: Any) -> None:
    size, tokenizer = encoder.tokenizer.vocabulary_size, encoder.tokenizer
    fills = encoder.fill(TEXT, top=size, pieces=2)
    first, mask = tokenizer.encode(TEXT).ids, tokenizer.mask_id
    position = first.index(mask)
    starts = [index for index in range(size) if tokenizer.starts_word(index)]
    inside = [index for index in range(size) if tokenizer.id_to_token(index).startswith("##")]
    with torch.no_grad():
        rows = torch.tensor([[*first[:position], piece, mask, *first[position + 1 :]] for piece in starts])
        second = theirs.model(rows).logits[:, position + 1].log_softmax(-1)
        hidden = torch.tensor([[*first[:position], mask, mask, *first[position + 1 :]]])
        best = theirs.model(hidden).logits[0, position].log_softmax(-1)[starts] + second[:, inside].max(-1).values
    two_pieces = max(guess.probability for guess in fills if guess.score > guess.probability * 1.0001)
    assert math.log(two_pieces) == pytest.approx(float(best.max()), abs=1e-4)


@pytest.mark.parametrize(("kind", "relative"), [("byte_bpe", "roberta"), ("unigram", "albert")])
def test_a_word_of_several_pieces_never_ends_in_punctuation(kind: str, relative: str) -> None:
    """Vocabularies that mark the blank before a word do not mark what follows it without one, punctuation included."""
    words = train_tokenizer(kind, [*passages(), "one, two! three? 4,5.6 (seven) eight; it's half-done"], 320)
    family = family_of(relative)
    config = family.config.make(vocabulary_size=words.vocabulary_size, width=16, heads=2, layers=1, inner_width=16)
    model = randomise(Model(family, config, {"masked_lm": 0}, pooler=False)).eval()
    fills = Encoder(model, words).fill(f"They eat {words.special_tokens['mask']} daily", top=200, pieces=2)
    assert isinstance(fills, list)
    several = [guess.word for guess in fills if guess.score > guess.probability * 1.0001]  # type: ignore[union-attr]
    assert len(several) > 50
    assert not [word for word in several if set(word[1:]) & set(".,!?;()")]


def test_given_words_are_ranked_by_the_mean_of_their_pieces(encoder: Encoder, theirs: Any) -> None:
    words = ["cat", "bees", "mountain", "q"]
    fills = encoder.fill(TEXT, words=words)
    assert sorted(guess.word for guess in fills) == sorted(words)
    for guess in fills:
        pieces = encoder.tokenizer.encode(guess.word, add_special_tokens=False).ids
        expected = their_log_probability(theirs, TEXT, pieces)
        assert guess.score == pytest.approx(math.exp(expected / len(pieces)), abs=1e-6)
    assert [guess.score for guess in fills] == sorted((guess.score for guess in fills), reverse=True)
    assert encoder.fill(TEXT, words=words, top=1) == fills  # given words are ranked, never dropped


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("no mask here", {}, r"no \[MASK\]"),
        (TEXT, {"top": 0}, "top=0"),
        (TEXT, {"pieces": 9}, "pieces=9"),
        (TEXT, {"words": "cat"}, "words "),
        (TEXT, {"words": ["日本"]}, "'日本'"),
        (TEXT, {"words": [""]}, "''"),
        (TEXT, {"words": []}, "words "),
        (TEXT * 20, {}, "60: .*the mask"),
        ("a " * 57 + "[MASK]", {"words": ["mountain"]}, " 60: "),
        ("a " * 57 + "[MASK]", {"pieces": 2}, " 60: "),
    ],
)
def test_a_wrong_question_is_answered_in_one_line(encoder: Encoder, text: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder.fill(text, **options)


def test_a_checkpoint_without_the_head_says_which_one_it_needs(encoder: Encoder) -> None:
    encoder = replace(encoder, model=Model(encoder.model.family, encoder.model.config, {}))
    with pytest.raises(MissingHeadError, match=r"masked-LM.*BertForMaskedLM"):
        encoder.fill(TEXT)
    with pytest.raises(MissingHeadError, match="next-sentence"):
        encoder.next_sentence("a", "b")


def test_a_family_that_never_fills_masks_says_so(tmp_path: Path) -> None:
    family = family_of("kinfolk-recurrent-lm")
    config = family.config.make(vocabulary_size=320, width=8, layers=1, positions=60)
    model = Model(family, config, {"next_token": 0}, pooler=False)
    folder = Encoder(randomise(model).eval(), train_tokenizer("wordpiece", passages(), 320)).save(tmp_path / "lm")
    with pytest.raises(MissingHeadError, match=r"^Recurrent LM .*masked-LM"):
        load(folder, device="cpu").fill(TEXT)
