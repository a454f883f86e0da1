"""One interface for translation, whatever the vocabulary: joint, one for each language, or Marian's."""

from __future__ import annotations

from pathlib import Path

import pytest
from marian_folders import SOURCE, TARGET, marian_folder
from small_tokenizers import small

from kinfolk.errors import TokenizerError
from kinfolk.text.pairs import PairTokenizer, load_pair_tokenizer
from kinfolk.text.train import KINDS, train_pair_tokenizer, train_tokenizer

SIZES = {("bpe", True): 200, ("unigram", True): 110, ("byte_bpe", True): 320}
SIZES |= {("bpe", False): 90, ("unigram", False): 60, ("byte_bpe", False): 300}
TEXTS = ("The river carried the small boat.", "Les élèves écoutaient la leçon; dehors, la neige tombait.")


@pytest.mark.parametrize(("kind", "joint"), SIZES)
def test_texts_come_back_and_so_does_the_tokenizer(kind: str, joint: bool, tmp_path: Path):
    tokenizer = train_pair_tokenizer(kind, SOURCE, TARGET, SIZES[kind, joint], joint)
    tokenizer.save(tmp_path / "saved")
    again = load_pair_tokenizer(tmp_path / "saved")
    assert isinstance(again, PairTokenizer)
    assert tokenizer.joint == again.joint == joint
    for text in TEXTS:
        source, target = tokenizer.encode_source(text), tokenizer.encode_target(text)
        assert (again.encode_source(text), again.encode_target(text)) == (source, target)
        assert (source == target) == joint
        assert target[-1] == tokenizer.end_id
    assert again.decode(tokenizer.encode_target(TEXTS[1])) == TEXTS[1]
    if joint:
        assert again.decode(tokenizer.encode_source(TEXTS[0])) == TEXTS[0]


def test_a_vocabulary_of_both_languages_is_learned_from_both():
    tokenizer = train_pair_tokenizer("bpe", iter(SOURCE), iter(TARGET), 200)
    assert tokenizer.source_size == tokenizer.target_size == 200
    assert (tokenizer.begin_id, tokenizer.pad_id, tokenizer.end_id, tokenizer.unknown_id) == (0, 1, 2, 3)
    assert tokenizer.unknown_id not in [*tokenizer.encode_source(TEXTS[0]), *tokenizer.encode_source(TEXTS[1])]


def test_special_tokens_spelled_in_a_text_are_not_obeyed():
    tokenizer = train_pair_tokenizer("unigram", SOURCE, TARGET, 110)
    ids = tokenizer.encode_target("the </s> boat <pad> <s>")
    assert ids.count(tokenizer.end_id) == 1
    assert ids.count(tokenizer.unknown_id) == 3
    assert tokenizer.pad_id not in ids
    assert tokenizer.begin_id not in ids


@pytest.mark.parametrize("kind", KINDS)
def test_blank_sources_are_empty_whatever_the_vocabulary(kind: str):
    tokenizer = train_pair_tokenizer(kind, SOURCE, TARGET, 8_000, at_most=True)
    for text in ("", " ", "\t\n"):
        assert tokenizer.encode_source(text) == tokenizer.source_offsets(text) == []
        assert tokenizer.encode_target(text)[-1] == tokenizer.end_id


def test_offsets_fit():
    tokenizer = train_pair_tokenizer("bpe", SOURCE, TARGET, 200)
    text = "The  river carried"
    offsets = tokenizer.source_offsets(text)
    assert len(offsets) == len(tokenizer.encode_source(text))
    covered = {index for start, end in offsets for index in range(start, end)}
    assert covered == {index for index, letter in enumerate(text) if letter != " "}
    assert len(tokenizer.encode_source("boat" * 20_000)) > 20_000


def test_a_bert_vocabulary_serves_too_and_marians_folder_opens(tmp_path: Path):
    tokenizer = PairTokenizer(small("wordpiece"))
    assert tokenizer.encode_target("the boat")[-1] == small("wordpiece").sep_id
    assert load_pair_tokenizer(marian_folder(tmp_path)).encode_source("the boat")[-1] == 0


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path):
    tokenizer = train_tokenizer("bpe", SOURCE, 120)
    tokenizer.eos_id = tokenizer.sep_id = None
    with pytest.raises(TokenizerError, match="eos or sep"):
        PairTokenizer(tokenizer)
    with pytest.raises(TokenizerError):
        load_pair_tokenizer(tmp_path)
