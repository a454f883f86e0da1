"""Vocabularies that were learned here, as sentencepiece models: the same pieces, whoever splits."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
import transformers
from marian_folders import SOURCE, TARGET
from small_tokenizers import NASTY

from kinfolk.errors import TokenizerError
from kinfolk.text.marian import MarianTokenizer, as_marian
from kinfolk.text.pairs import PairTokenizer
from kinfolk.text.train import PAIR_ROLES, train_pair_tokenizer, train_tokenizer
from surroundings import shared_data

SIZES = {"bpe": 200, "unigram": 110}
APART = ("<", "\u200d")  # special tokens, which Marian's tokenizers obey, and a letter that has other rules


def once(tokenizer: PairTokenizer, ids: list[int]) -> list[list[int]]:
    """Runs of unknown pieces, of which the two make different numbers, as one."""
    return [[number] if number == tokenizer.unknown_id else [*run] for number, run in groupby(ids)]


@pytest.mark.parametrize("kind", SIZES)
def test_pieces_ids_and_texts_are_the_same_after_the_move(kind: str, tmp_path: Path) -> None:
    ours = train_pair_tokenizer(kind, SOURCE, TARGET, SIZES[kind])
    made, before = as_marian(ours, 512)
    made.save(tmp_path)
    loaded = MarianTokenizer.load(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    for text in (*SOURCE, *TARGET, "Ｆｕｌｌ ﬁgures", *(text for text in NASTY if not any(map(text.count, APART)))):
        ids = made.encode_source(text)
        assert once(ours, [before[number] for number in ids]) == once(ours, ours.encode_source(text))
        assert loaded.encode_target(text) == made.encode_target(text)
        assert made.decode(made.encode_target(text)) == ours.decode(ours.encode_target(text)).strip()
        if ids and "\0" not in text:
            assert theirs(text)["input_ids"] == ids


@pytest.mark.parametrize("kind", SIZES)
def test_the_pad_stands_last_where_ctranslate2_looks_for_it(kind: str) -> None:
    ours = train_pair_tokenizer(kind, SOURCE, TARGET, SIZES[kind])
    made, before = as_marian(ours, 512)
    assert (made.end_id, made.unknown_id, made.pad_id) == (0, 1, made.target_size - 1)
    assert made.begin_id == made.pad_id
    assert before[0] == ours.end_id
    assert before[-1] == ours.begin_id
    assert len(set(before)) == len(before) == ours.source_size - 1  # <s> and <pad> are one now


def test_no_sentence_of_a_real_corpus_is_split_otherwise() -> None:
    corpus = [shared_data(f"multi30k/val.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")]
    ours = train_pair_tokenizer("bpe", *corpus, 3_000)
    made, before = as_marian(ours, 512)
    for name in ("test2016.en", "test2016.de", "train.en"):
        for text in shared_data(f"multi30k/{name}").read_text(encoding="utf-8").splitlines()[:3_000]:
            assert [before[number] for number in made.encode_source(text)] == ours.encode_source(text)


def test_what_sentencepiece_cannot_say_is_refused() -> None:
    texts = [*SOURCE, *TARGET]
    lower = PairTokenizer(train_tokenizer("bpe", texts, 180, lowercase=True, special_tokens=PAIR_ROLES))
    for tokenizer in (
        train_pair_tokenizer("byte_bpe", SOURCE, TARGET, 320),
        train_pair_tokenizer("wordpiece", SOURCE, TARGET, 300),
        lower,
    ):
        with pytest.raises(TokenizerError, match="sentencepiece"):
            as_marian(tokenizer, 512)
    with pytest.raises(TokenizerError, match=r"CTranslate2 .*vocabulary"):
        as_marian(train_pair_tokenizer("bpe", SOURCE, TARGET, 90, joint=False), 512)
