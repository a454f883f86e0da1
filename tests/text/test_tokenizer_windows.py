"""Windows and cuts: nothing is lost in windows, and cuts agree with the references' truncation."""

from __future__ import annotations

import pytest
from references import both
from small_tokenizers import KINDS, SENTENCES, small

from kinfolk.errors import InputError

LONG = " ".join(SENTENCES)
PAIR = (SENTENCES[0], LONG)
REFERENCES = pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base", "xlnet-base-cased"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "stride"), [(20, 0), (20, 7), (64, 16), (4, 1), (10_000, 5)])
def test_windows_hold_every_token_in_order(kind: str, size: int, stride: int):
    ours = small(kind)
    whole = ours.encode(LONG, add_special_tokens=False)
    joined: list[tuple[int, tuple[int, int], int | None]] = []
    for index, window in enumerate(ours.windows(LONG, size, stride)):
        assert len(window) == len(window.ids) <= size
        rows = zip(window.ids, window.offsets, window.word_ids, window.sequence_ids, strict=True)
        content = [row[:3] for row in rows if row[3] is not None]
        assert len(content) == len(window) - ours.special_tokens_count()
        assert not index or joined[-stride:] == content[:stride] or not stride
        joined += content[stride if index else 0 :]
    assert joined == list(zip(whole.ids, whole.offsets, whole.word_ids, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_one_window_is_the_plain_encoding(kind: str):
    for text in (SENTENCES[0], (SENTENCES[0], SENTENCES[1]), "", ("", "")):
        (window,) = small(kind).windows(text, 500)
        plain = small(kind).encode(text)
        for field in ("ids", "segments", "offsets", "word_ids", "sequence_ids", "tokens"):
            assert getattr(window, field) == getattr(plain, field)


@REFERENCES
@pytest.mark.parametrize("stride", [0, 9])
def test_windows_are_those_of_the_reference(name: str, stride: int):
    ours, theirs = both(name)
    options = {"max_length": 48, "stride": stride, "return_overflowing_tokens": True, "return_token_type_ids": True}
    for text, cut in (((LONG,), "only_first"), (PAIR, "only_second")):
        expected = theirs(*text, truncation=cut, **options)
        actual = ours.windows(text if len(text) == 2 else text[0], 48, stride)
        assert [window.ids for window in actual] == expected["input_ids"]
        assert [window.segments for window in actual] == expected["token_type_ids"]


@REFERENCES
def test_fit_cuts_as_the_reference_does(name: str):
    ours, theirs = both(name)
    for text in ((LONG,), PAIR, PAIR[::-1], (SENTENCES[0], SENTENCES[1]), ("", LONG)):
        for size in (5, 6, 17, 32, 33, 10_000):
            result, kept, total = ours.truncate(text if len(text) == 2 else text[0], size)
            assert result.ids == theirs(*text, truncation="longest_first", max_length=size)["input_ids"]
            assert kept == sum(owner is not None for owner in result.sequence_ids)
            assert total == sum(len(ours.encode(part, add_special_tokens=False)) for part in text)


def test_of_a_pair_the_longer_text_is_windowed():
    ours = small("wordpiece")
    question = ours.encode(SENTENCES[0], add_special_tokens=False).ids
    for pair, whole in ((PAIR, 0), (PAIR[::-1], 1)):
        windows = ours.windows(pair, 60, 5)
        assert len(windows) > 1
        for window in windows:
            rows = zip(window.ids, window.sequence_ids, strict=True)
            assert [number for number, owner in rows if owner == whole] == question


def test_sizes_that_leave_no_room_are_refused():
    ours = small("wordpiece")
    with pytest.raises(InputError, match="size=2 "):
        ours.windows(LONG, 2)
    with pytest.raises(InputError, match="size=20 "):
        ours.windows(PAIR, 20)
    with pytest.raises(InputError, match=r"stride=18 .* 17"):
        ours.windows(LONG, 20, 18)
    with pytest.raises(InputError, match="size is 1"):
        ours.truncate(LONG, 1)


def test_the_last_token_of_a_window_keeps_its_own_place():
    ours = small("wordpiece")
    text = "unbelievable"
    spans = [window.offsets[1] for window in ours.windows(text, 3)]
    assert len(spans) > 1
    assert "".join(text[start:end] for start, end in spans) == text
