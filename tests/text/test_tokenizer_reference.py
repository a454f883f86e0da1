"""Ids, segments and offsets equal those of transformers' classes and of sentencepiece, built from the same files."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import transformers
from references import CLASSES, both
from small_tokenizers import NASTY, SENTENCES, strange_texts

from kinfolk.text.tokenizer import Tokenizer
from surroundings import shared_data, shared_fixture

VOCABULARIES = pytest.mark.parametrize("name", CLASSES)


@cache
def real_lines() -> list[str]:
    """10,000 lines in three languages, each cut at 100 characters."""
    wanted = {"wikipedia/plain.txt": 4000, "wikipedia/zh.txt": 2000, "wikipedia/fr.txt": 2000, "sst2/train.tsv": 6000}
    lines: list[str] = []
    for name, count in wanted.items():
        with shared_data(name).open(encoding="utf-8") as stream:
            lines += [line.rstrip("\n")[:100] for line in itertools.islice(stream, count)]
    assert len(lines) >= 10_000
    return lines[-10_000:]


def differing(ours: Tokenizer, theirs: Any, texts: list[str]) -> list[str]:
    encodings = ours.encode_many(texts)
    expected = theirs.backend_tokenizer.encode_batch(texts)  # what the class calls, without its slow wrapping
    return [text for text, mine, other in zip(texts, encodings, expected, strict=True) if mine.ids != other.ids]


@VOCABULARIES
def test_ten_thousand_real_lines_give_the_ids_of_the_reference(name: str):
    assert differing(*both(name), real_lines()) == []


@VOCABULARIES
def test_nasty_texts_give_the_ids_of_the_reference(name: str):
    texts = [text for text in (*NASTY, *strange_texts(2000, seed=3)) if "<mask>" not in text]
    assert differing(*both(name), texts) == []


@VOCABULARIES
def test_pairs_get_the_specials_and_segments_of_the_reference(name: str):
    ours, theirs = both(name)
    for pair in zip(SENTENCES, reversed(SENTENCES), strict=True):
        actual, expected = ours.encode(pair), theirs(*pair, return_token_type_ids=True)
        assert actual.ids == expected["input_ids"]
        assert actual.segments == expected["token_type_ids"]
        assert actual.sequence_ids == expected.sequence_ids()
    assert ours.encode(pair, add_special_tokens=False).ids == theirs(*pair, add_special_tokens=False)["input_ids"]


@VOCABULARIES
def test_special_tokens_have_the_roles_of_the_reference(name: str):
    ours, theirs = both(name)
    assert {f"{role}_token": token for role, token in ours.special_tokens.items()} == theirs.special_tokens_map
    assert ours.vocabulary_size == len(theirs)


def test_offsets_of_plain_words_are_those_of_the_reference():
    ours, theirs = both("bert-base-uncased")
    for text in SENTENCES:
        expected = theirs(text, return_offsets_mapping=True)
        actual = ours.encode(text)
        assert actual.offsets == expected["offset_mapping"]
        assert actual.word_ids == expected.word_ids()
        assert actual.tokens == expected.tokens()


def test_the_settings_of_a_cased_vocabulary_are_obeyed(tmp_path: Path):
    vocabulary = shared_fixture("vocab/bert-base-cased/vocab.txt").read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    for settings in ('{"do_lower_case": false}', '{"do_lower_case": false, "tokenize_chinese_chars": false}'):
        (tmp_path / "tokenizer_config.json").write_text(settings)
        theirs = transformers.BertTokenizer.from_pretrained(str(tmp_path))
        assert differing(Tokenizer.load(tmp_path), theirs, [*SENTENCES, *NASTY]) == []


def test_mpnet_vocabularies_get_the_double_separator(tmp_path: Path):
    words = ["<s>", "<pad>", "</s>", "[UNK]", "the", "river", "boat", "cat", "##s", "a", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    ours, theirs = Tokenizer.load(tmp_path, "mpnet"), transformers.MPNetTokenizer.from_pretrained(str(tmp_path))
    pair = ("The cats", "a boat <mask>")
    tokens = [ours.id_to_token(number) for number in ours.encode(pair).ids]
    assert tokens == ["<s>", "the", "cat", "##s", "</s>", "</s>", "a", "boat", "<mask>", "</s>"]
    assert ours.encode(pair).ids == theirs(*pair)["input_ids"]
    assert set(ours.encode(pair).segments) == {0}
    assert Tokenizer.load(tmp_path).encode(pair).ids == ours.encode(pair).ids


def test_the_mask_of_roberta_takes_the_blank_before_it():
    ours, _ = both("roberta-base")
    ids = ours.encode("the <mask> of", add_special_tokens=False).ids
    assert ids == [ours.token_to_id(token) for token in ("the", "<mask>", "Ġof")]


@pytest.mark.parametrize("file", ["test_sentencepiece.model", "test_sentencepiece_bpe.model"])
def test_sentencepiece_models_give_the_ids_of_sentencepiece(file: str):
    path = shared_fixture(f"sentencepiece-tiny/{file}")
    ours, theirs = Tokenizer.load(path), sentencepiece.SentencePieceProcessor(model_file=str(path))
    lines = ["I was born in 92000, and this is falsé.", *real_lines()[:3000]]
    assert [result.ids for result in ours.encode_many(lines)] == theirs.encode(lines)


def test_a_published_tokenizer_json_gives_the_ids_of_the_reference_uncut(minilm: Path):
    ours, theirs = Tokenizer.load(minilm), transformers.AutoTokenizer.from_pretrained(str(minilm))
    theirs.backend_tokenizer.no_truncation()
    theirs.backend_tokenizer.no_padding()
    long_text = " ".join(SENTENCES * 5)
    assert ours.max_length == 512
    assert len(ours.encode(long_text)) > 512
    assert differing(ours, theirs, [long_text, *SENTENCES, *NASTY]) == []
