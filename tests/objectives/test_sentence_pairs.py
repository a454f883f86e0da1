"""Pairs of spans: what follows, what does not, how long they are, and that a seed makes them again."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kinfolk.data.corpus import EncodedCorpus
from kinfolk.errors import DataError
from kinfolk.objectives.sentence_pairs import SentencePairs, shorten_pair

CLS, SEP, LENGTH = 900, 901, 24


class Frame:
    """All that pairs want of a tokenizer."""

    cls_id, sep_id = CLS, SEP


def corpus(documents: int = 30, seed: int = 0) -> EncodedCorpus:
    """Token t of document d is 1000 d + t, so that an id tells where it stood."""
    rng = random.Random(seed)
    ids, sentences, bounds = [], [0], [0]
    for document in range(documents):
        token = 1000 * (document + 1)
        for _ in range(1 if document % 7 == 3 else rng.randint(2, 9)):
            length = rng.randint(1, 12)
            ids += range(token, token + length)
            token += length
            sentences.append(len(ids))
        bounds.append(len(sentences) - 1)
    return EncodedCorpus(np.array(ids, np.int32), np.array(sentences), np.array(bounds), len(ids))


def pairs(length: int = LENGTH, seed: int = 0) -> SentencePairs:
    return SentencePairs(corpus(), Frame(), length, batch_size=8, seed=seed)  # type: ignore[arg-type]


def split(ids: list[int]) -> tuple[list[int], list[int]]:
    middle = ids.index(SEP)
    assert ids[0] == CLS
    assert ids[-1] == SEP
    return ids[1:middle], ids[middle + 1 : -1]


@pytest.mark.parametrize("length", [8, 24, 60])
def test_b_follows_a_or_comes_from_another_document(length: int) -> None:
    samples = pairs(length)
    followed = 0
    for index in range(len(samples) * 40):
        sample = samples[index]
        a, b = split(sample.ids)
        assert a
        assert b
        assert len(sample.ids) <= length
        assert sample.segments == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert np.diff(a).tolist() == [1] * (len(a) - 1)
        assert np.diff(b).tolist() == [1] * (len(b) - 1)
        same = a[0] // 1000 == b[0] // 1000
        assert same is sample.target
        assert not same or b[0] > a[-1]
        followed += same
    assert followed / (len(samples) * 40) == pytest.approx(0.5, abs=0.04)


def test_most_pairs_fill_the_length_where_the_document_is_long_enough() -> None:
    one = EncodedCorpus(np.arange(4000, dtype=np.int32), np.arange(0, 4001, 5), np.array([0, 400, 800]), 4000)
    samples = SentencePairs(one, Frame(), LENGTH, 8, 0)  # type: ignore[arg-type]
    lengths = [len(samples[index]) for index in range(1000)]
    assert sum(length == LENGTH for length in lengths) / 1000 > 0.85
    assert min(lengths) < LENGTH / 2


def test_the_same_seed_makes_the_same_pairs_and_every_epoch_others() -> None:
    one, again, other = pairs(), pairs(), pairs(seed=1)
    count = len(one)
    indices = random.Random(0).sample(range(3 * count), 3 * count)
    assert [again[index] for index in indices] == [one[index] for index in indices]
    assert [one[index].ids for index in range(count)] != [one[index + count].ids for index in range(count)]
    assert [one[index].ids for index in range(count)] != [other[index].ids for index in range(count)]
    batches = [one.batch(step) for step in range(2 * one.batches)]
    assert sorted(index for batch in batches for index in batch) == list(range(2 * count))
    assert one.locate(one.batches + 1) == (1, 1)
    assert one.steps(2.5) == round(2.5 * one.batches)


def test_an_epoch_reads_all_of_a_text() -> None:
    one = EncodedCorpus(np.arange(6000, dtype=np.int32), np.arange(0, 6001, 5), np.array([0, 600, 1200]), 6000)
    samples = SentencePairs(one, Frame(), LENGTH, 8, 0)  # type: ignore[arg-type]
    seen = {id for index in range(4 * len(samples)) for id in samples[index].ids}
    assert len(seen & set(range(6000))) > 5900


def test_one_document_has_no_other_to_take_a_text_from() -> None:
    with pytest.raises(DataError, match="the text is one document"):
        SentencePairs(corpus(1), Frame(), LENGTH, 8, 0)  # type: ignore[arg-type]


def test_documents_of_one_sentence_each_have_nothing_that_follows() -> None:
    ends = np.arange(0, 41, 4)
    lines = EncodedCorpus(np.arange(40, dtype=np.int32), ends, np.arange(11), 40)
    with pytest.raises(DataError, match="none of the 10 documents has two sentences; put blank lines"):
        SentencePairs(lines, Frame(), LENGTH, 8, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("a", "b"), [(3, 4), (50, 2), (2, 50), (50, 50), (1, 1), (9, 8), (0, 30)])
def test_only_the_longer_one_is_cut(a: int, b: int) -> None:
    kept = shorten_pair(list(range(a)), list(range(b)), 10, random.Random(0))
    assert len(kept[0]) + len(kept[1]) == min(10, a + b)
    assert min(len(part) for part in kept) >= min(a, b, 5)
