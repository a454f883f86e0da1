"""Alignments: rows sum to one, words are made of their pieces, and the picture shows them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kinfolk.api.align import Alignment, align, word_groups
from kinfolk.api.loaded import Translator, load_translator
from kinfolk.errors import InputError
from kinfolk.text.train import train_pair_tokenizer
from kinfolk.training.pictures import alignment_picture
from small_pairs import pairs
from support.tiny import our_transformer


@pytest.fixture(scope="module")
def transformer() -> Translator:
    tokenizer = train_pair_tokenizer("bpe", *zip(*pairs(200), strict=True), 60)
    network = our_transformer(vocabulary_size=60, pad_id=tokenizer.pad_id, start_id=0, end_id=2).float()
    return Translator(network, tokenizer)


@pytest.mark.parametrize("pieces", [True, False])
def test_every_row_sums_to_one(pieces: bool, transformer: Translator) -> None:
    alignment = transformer.align("salt, moon\tsaltmoon 日本", "sel lunsel!", pieces)
    assert alignment.weights.shape == (3, 4, len(alignment.target), len(alignment.source))
    np.testing.assert_allclose(alignment.weights.sum(-1), 1, atol=1e-5)
    for text, offsets, names in (
        (alignment.source_text, alignment.source_offsets, alignment.source),
        (alignment.target_text, alignment.target_offsets, alignment.target),
    ):
        assert names[-1] == "<end>"
        assert offsets[-1] == (len(text), len(text))
        if not pieces:
            assert [text[start:end] for start, end in offsets[:-1]] == names[:-1]
    if not pieces:
        assert alignment.source == ["salt", ",", "moon", "saltmoon", "日本", "<end>"]
        assert alignment.target == ["sel", "lunsel", "!", "<end>"]


def test_a_word_has_the_weights_of_its_pieces(transformer: Translator) -> None:
    parts, words = (transformer.align("saltmoon star", "lunsel ast", pieces) for pieces in (True, False))
    source, target = (word_groups(text, offsets) for text, offsets in (
        ("saltmoon star", parts.source_offsets), ("lunsel ast", parts.target_offsets)))  # fmt: skip
    assert len(parts.source) > len(words.source) == len(source)
    (first, last), (top, bottom) = source[0], target[0]
    expected = parts.weights[..., top:bottom, first:last].sum(-1).mean(-1)
    np.testing.assert_allclose(words.weights[..., 0, 0], expected, atol=1e-6)


def test_a_trained_model_looks_at_the_word_it_writes(small_translator: Path, tmp_path: Path) -> None:
    model = load_translator(small_translator, device="cpu")
    alignment = model.align("salt moon star")
    assert alignment.target == ["ast", "lun", "sel", "<end>"]
    assert alignment.matrix()[:3].argmax(-1).tolist() == [2, 1, 0]
    path = alignment_picture(alignment, tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_layers_and_heads_are_counted_from_one(transformer: Translator, tmp_path: Path) -> None:
    alignment = transformer.align("salt moon", "lun sel")
    np.testing.assert_array_equal(alignment.matrix(3, 2), alignment.weights[2, 1])
    np.testing.assert_array_equal(alignment.matrix(1), alignment.weights[0].mean(0))
    np.testing.assert_array_equal(alignment.matrix(), alignment.weights[1].mean(0))
    sizes = [alignment_picture(alignment, tmp_path / f"{name}.png", *chosen).stat().st_size
             for name, chosen in {"all": (), "one": (2,), "head": (2, 4)}.items()]  # fmt: skip
    assert sizes[0] > sizes[1]
    for layer, head, message in ((4, None, "layer=4: .*3"), (1, 5, "head=5: .*4"), (0, None, "layer=0")):
        with pytest.raises(InputError, match=message):
            alignment.matrix(layer, head)
    for ask in (alignment.matrix, alignment.only, partial(alignment_picture, alignment, tmp_path / "x.png")):
        with pytest.raises(InputError, match="head=2"):
            ask(head=2)
    with pytest.raises(InputError, match=r"\.png"):
        alignment_picture(alignment, tmp_path / "x.jpg")


def test_plain_data_is_of_the_layer_and_head_that_are_asked_for(transformer: Translator) -> None:
    alignment = transformer.align("salt moon", "lun sel")
    assert np.array(alignment.as_json()["weights"]).shape == alignment.weights.shape
    for chosen, expected in (((2,), alignment.weights[1:2]), ((2, 3), alignment.weights[1:2, 2:3])):
        plain = alignment.only(*chosen).as_json()["weights"]
        np.testing.assert_allclose(plain, expected, atol=1e-6)
    numbers = np.array(plain).flatten().tolist()
    assert all(len(repr(number).partition(".")[2]) <= 6 or "e-" in repr(number) for number in numbers)


def test_words_that_no_font_has_and_formulas_are_drawn_as_words(tmp_path: Path) -> None:
    words = ["日本", "$x^2$", "a" * 50, "<end>"]
    weights = np.full((1, 1, 4, 4), 0.25, dtype=np.float32)
    result = Alignment(words, words, weights, [(0, 0)] * 4, [(0, 0)] * 4, "", "")
    assert alignment_picture(result, tmp_path / "x.png").exists()
    many = ["a"] * 90
    with pytest.raises(InputError, match=r"90 words.* 80 "):
        alignment_picture(Alignment(many, words, weights, [], [], "", ""), tmp_path / "y.png")


def test_an_empty_source_is_refused_and_an_empty_target_is_its_end(transformer: Translator) -> None:
    with pytest.raises(InputError, match=r"source .*empty"):
        transformer.align(" ", "sel")
    assert transformer.align("salt", "").target == ["<end>"]


def test_words_end_at_blanks_marks_and_characters_of_scripts_without_blanks() -> None:
    text = "don't 日本x"
    offsets = [(0, 2), (2, 3), (3, 4), (4, 5), (6, 7), (7, 8), (8, 9), (9, 9)]
    assert word_groups(text, offsets) == [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]


def test_what_the_model_wrote_is_aligned_as_it_wrote_it(small_translator: Path, transformer: Translator) -> None:
    model = load_translator(small_translator, device="cpu")
    for source in ("salt moon star", "moon", "star salt salt"):
        own, explicit = model.align(source), model.align(source, model.translate(source))
        assert (own.target, own.target_offsets) == (explicit.target, explicit.target_offsets)
        np.testing.assert_allclose(own.weights, explicit.weights, atol=1e-6)
    ids = [9, 12, transformer.tokenizer.unknown_id, 40, 41]
    parts = align(transformer, "salt moon", None, ids)
    assert len(parts.target) == len(ids) + 1
    assert "\ufffd" in parts.target[2]
    assert parts.target_text == transformer.tokenizer.decode(ids, unknown="\ufffd")
    assert "".join(parts.target[:-1]) == parts.target_text.replace(" ", "")
    np.testing.assert_allclose(parts.words().weights.sum(-1), 1, atol=1e-5)
