"""Words without end are cut at a documented length; offsets and coverage survive the cut."""

from __future__ import annotations

import pytest
from small_tokenizers import KINDS, SENTENCES, small

from kinfolk.text.encoding import LONGEST_RUN, split_long_words


def test_texts_that_people_write_are_not_cut():
    for text in (" ".join(SENTENCES) * 200, "a" * LONGEST_RUN):
        assert split_long_words(text) == [(0, text)]


def test_pieces_join_to_the_text_and_know_where_they_start():
    text = "the boat " + "river" * 50_000 + " mill"
    pieces = split_long_words(text)
    assert [start for start, _ in pieces] == [0, 9 + LONGEST_RUN, 9 + 2 * LONGEST_RUN]
    assert "".join(piece for _, piece in pieces) == text
    assert all(text[start:].startswith(piece) for start, piece in pieces)


def left_out(text: str, offsets: list[tuple[int, int]]) -> str:
    """The letters that no token stands for."""
    lost, reached = "", 0
    for start, end in [*offsets, (len(text), len(text))]:
        lost += text[reached:start].strip()
        reached = max(reached, end)
    return lost


def test_a_lost_letter_would_be_seen():
    assert left_out("the river", [(0, 3), (4, 9)]) == ""
    assert left_out("the river", [(0, 3), (5, 9)]) == "r"
    assert left_out("the river", [(0, 3), (4, 8)]) == "r"
    assert left_out("the river", []) == "the river"


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_without_end_is_covered_to_its_end(kind: str):
    text = "the " + "river" * 41_000 + " boat"
    ours = small(kind)
    encoding = ours.encode(text, add_special_tokens=False)
    assert left_out(text, encoding.offsets) == ""
    if kind != "wordpiece":  # which takes a word of more than a hundred letters for unknown
        assert "".join(ours.decode(encoding.ids).split()) == "".join(text.split())
    assert encoding.word_ids == sorted(encoding.word_ids)
    assert len(encoding.ids) == len(encoding.word_ids) == len(encoding.tokens) == len(encoding)
    (again,) = ours.encode_many([text], add_special_tokens=False)
    assert again.ids == encoding.ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_without_end_has_specials_and_a_partner(kind: str):
    ours = small(kind)
    pair = ("river" * 21_000, "the boat")
    encoding, plain = ours.encode(pair), ours.encode(("river", "the boat"))
    assert encoding.sequence_ids.count(None) == ours.special_tokens_count(pair=True)
    assert encoding.ids[-4:] == plain.ids[-4:]
    assert encoding.segments[-1] == plain.segments[-1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_million_letters_are_read(kind: str):
    text = "abcdefghij" * 1_000_000
    windows = small(kind).windows(text, 512)
    assert left_out(text, [index for window in windows for index in window.offsets[1:-1]]) == ""
