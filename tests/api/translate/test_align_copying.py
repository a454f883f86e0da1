"""Words that a vocabulary cannot spell are copied from the source, where the model looked."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import kinfolk
from kinfolk.api.align import copy_words
from kinfolk.api.translate import TranslationWarning
from kinfolk.text.train import train_pair_tokenizer
from small_pairs import WORDS, train


def with_names(count: int, seed: int) -> list[tuple[str, str]]:
    """Two or three words in reverse order, one of them a name that both languages write alike."""
    draw, results = random.Random(seed), []
    for _ in range(count):
        words = draw.choices(list(WORDS), k=draw.randint(1, 2))
        words.insert(draw.randrange(len(words) + 1), "".join(draw.choices("ABCDEFGH", k=7)))
        results.append((" ".join(words), " ".join(WORDS.get(word, word) for word in reversed(words))))
    return results


@pytest.mark.filterwarnings("ignore:.*are unknown to:kinfolk.api.translate.TranslationWarning")
def test_a_name_that_no_vocabulary_of_words_has_comes_through(tmp_path: Path) -> None:
    known = 4 + 2 * len(WORDS)
    options = {"vocabulary_size": known, "vocabulary_kind": "words", "steps": 120, "evaluations": 1}
    train(tmp_path / "run", "attention", pairs=with_names(400, 0), dev=with_names(10, 1), **options)
    model = kinfolk.load(tmp_path / "run", device="cpu")
    sources, targets = zip(*with_names(40, 2), strict=True)
    copied = model.translate(list(sources), copy_unknown=True)
    with pytest.warns(TranslationWarning, match="copy_unknown"):
        plain = model.translate(list(sources))
    assert sum(text == target for text, target in zip(copied, targets, strict=True)) > 30
    assert not any(text == target for text, target in zip(plain, targets, strict=True))


def test_unknown_words_are_copied_as_they_stand_in_the_text() -> None:
    letters = ["a b c d e , ( )"] * 5
    tokenizer = train_pair_tokenizer("bpe", letters, letters, 13)
    text, written = "ab Ærø 日本 (salt)", "a d日e, (ø) c"
    source, target = tokenizer.encode_source(text), tokenizer.encode_target(written)[:-1]
    offsets = tokenizer.source_offsets(text)
    rows = [index for index, number in enumerate(target) if number == tokenizer.unknown_id]
    assert len(rows) == 2
    weights = np.zeros((2, 1, len(target) + 1, len(source)))
    weights[0, 0, :, -1] = 0.5  # the end of the source is no word
    for row, word in zip(rows, ("Ærø", "日本"), strict=True):
        seen = next(index for index, (start, end) in enumerate(offsets) if start <= text.index(word) < end)
        weights[0, 0, row, seen] = 0.4
    assert copy_words(tokenizer, text, target, weights) == "a Ærø, (日本) c"
